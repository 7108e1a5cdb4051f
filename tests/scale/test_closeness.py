"""Closeness of rows to clusters, against brute force."""

from __future__ import annotations

import numpy as np

from crumb.scale.strata import Distance


def test_closeness_against_brute_force():
    rng = np.random.default_rng(2)
    centroids, points = rng.normal(size=(3, 4)) * 3, rng.normal(size=(500, 4)) * 3
    np.testing.assert_allclose(
        Distance(centroids)(points, np.arange(3)), ((points[None] - centroids[:, None]) ** 2).sum(2)
    )


def test_exact_closeness_is_within_rounding_and_the_same_alone():
    rng = np.random.default_rng(2)
    measure = Distance(rng.normal(size=(3, 5)) + np.arange(3)[:, None])
    for dtype in (np.float32, np.float64):
        points = (rng.normal(size=(400, 5)) * 3).astype(dtype)
        fast, room = measure(points, np.arange(3)), measure.rounding(points)
        for k in range(3):
            exact = measure.exactly(points, np.full(400, k))
            assert (np.abs(exact - fast[k]) <= room).all()
            alone = [measure.exactly(points[i : i + 1], np.array([k]))[0] for i in range(0, 400, 7)]
            np.testing.assert_array_equal(alone, exact[::7])
        mixed = measure.exactly(points, np.arange(400) % 3)
        np.testing.assert_array_equal(
            mixed[::3], measure.exactly(points[::3], np.zeros(134, dtype=int))
        )
