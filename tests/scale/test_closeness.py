"""Closeness of rows to clusters, against brute force."""

from __future__ import annotations

import numpy as np

from crumb.herding.kernel import RandomFourierFeatures
from crumb.scale.strata import Distance, RffCross


def test_closeness_against_brute_force():
    rng = np.random.default_rng(2)
    members = [rng.normal(size=(size, 4)) + 3 * k for k, size in enumerate((30, 1, 7))]
    centroids = np.stack([some.mean(axis=0) for some in members])
    points = rng.normal(size=(500, 4)) * 3
    sigma = 1.5
    gaps = [((points[:, None] - some[None]) ** 2).sum(2) for some in members]
    cross = np.stack([np.exp(-gap / (2 * sigma**2)).mean(axis=1) for gap in gaps])
    all_three = np.arange(3)
    features = RandomFourierFeatures.draw(4, 20_000, sigma, rng)
    rff = RffCross(features.omega.numpy(), features.phase.numpy(), members)
    np.testing.assert_allclose(rff(points, all_three), -cross, atol=0.04)
    np.testing.assert_allclose(
        Distance(centroids)(points, all_three), ((points[None] - centroids[:, None]) ** 2).sum(2)
    )


def test_exact_closeness_is_within_rounding_and_the_same_alone():
    rng = np.random.default_rng(2)
    members = [rng.normal(size=(size, 5)) + k for k, size in enumerate((30, 1, 7))]
    centroids = np.stack([some.mean(axis=0) for some in members])
    features = RandomFourierFeatures.draw(5, 300, 1.5, rng)
    measures = [
        Distance(centroids),
        RffCross(features.omega.numpy(), features.phase.numpy(), members),
    ]
    for dtype in (np.float32, np.float64):
        points = (rng.normal(size=(400, 5)) * 3).astype(dtype)
        for measure in measures:
            fast, room = measure(points, np.arange(3)), measure.rounding(points)
            for k in range(3):
                exact = measure.exactly(points, np.full(400, k))
                assert (np.abs(exact - fast[k]) <= room).all()
                alone = [
                    measure.exactly(points[i : i + 1], np.array([k]))[0] for i in range(0, 400, 7)
                ]
                np.testing.assert_array_equal(alone, exact[::7])
            mixed = measure.exactly(points, np.arange(400) % 3)
            np.testing.assert_array_equal(
                mixed[::3], measure.exactly(points[::3], np.zeros(134, dtype=int))
            )
