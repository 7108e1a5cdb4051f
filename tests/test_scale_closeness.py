"""Closeness of rows to clusters, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.kernel import RandomFourierFeatures
from crumb.scale import closeness
from crumb.scale.closeness import Distance, ExactCross, RffCross, below


def test_closeness_against_brute_force():
    rng = np.random.default_rng(2)
    members = [rng.normal(size=(size, 4)) + 3 * k for k, size in enumerate((30, 1, 7))]
    centroids = np.stack([some.mean(axis=0) for some in members])
    points = rng.normal(size=(500, 4)) * 3
    sigma = 1.5
    gaps = [((points[:, None] - some[None]) ** 2).sum(2) for some in members]
    cross = np.stack([np.exp(-gap / (2 * sigma**2)).mean(axis=1) for gap in gaps])
    exact, all_three = ExactCross(members, centroids, sigma), np.arange(3)
    np.testing.assert_allclose(exact(points, all_three), -cross, atol=1e-12)
    least = np.array([0.05, 0.2, 1e-4])
    exact.prune(least, np.zeros((1, 4)))  # no row of this sample is left out of the first cluster
    assert np.isinf(exact.radii).tolist() == [True, False, False]
    np.testing.assert_allclose(exact(points, all_three)[0], -cross[0], atol=1e-12)
    exact.prune(least, points)
    pruned = exact(points, all_three)
    wanted = cross >= least[:, None]
    assert (pruned > 0).any()  # some rows are left out, and none that is wanted
    np.testing.assert_allclose(pruned[wanted], -cross[wanted], atol=1e-12)
    assert (pruned[~wanted] > -least[:, None].repeat(500, 1)[~wanted]).all()
    features = RandomFourierFeatures.draw(4, 20_000, sigma, rng)
    rff = RffCross(features.omega.numpy(), features.phase.numpy(), members)
    np.testing.assert_allclose(rff(points, all_three), -cross, atol=0.04)
    np.testing.assert_allclose(
        Distance(centroids)(points, all_three), ((points[None] - centroids[:, None]) ** 2).sum(2)
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 60),
    st.integers(1, 6),
    st.integers(0, 100),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([0.0, 10.0, 1e4]),
)
def test_pairs_below_a_limit_are_all_found(rows, clusters, seed, dtype, offset):
    """Whatever the precision of the points, and however far from the origin they lie."""
    rng = np.random.default_rng(seed)
    points = (rng.normal(size=(rows, 3)) + offset).astype(dtype)
    centroids = rng.normal(size=(clusters, 3)) + offset
    distance = ((points.astype(np.float64)[None] - centroids[:, None]) ** 2).sum(axis=2)
    limits = rng.choice([-np.inf, 0.0, 0.5, 3.0, np.inf], clusters)
    k, found, exact = below(centroids, points, limits)
    assert set(zip(k.tolist(), found.tolist(), strict=True)) == {
        pair for pair in np.ndindex(*distance.shape) if distance[pair] < limits[pair[0]]
    }
    np.testing.assert_allclose(exact, distance[k, found], rtol=1e-12)


def test_points_too_far_for_single_precision_are_looked_at():
    points = np.array([[0.0, 0.0], [1e25, 0.0], [1e25, 1e25]], dtype=np.float32)
    _, rows, distance = below(np.zeros((1, 2)), points, np.array([1.5e50]))
    assert rows.tolist() == [0, 1]
    np.testing.assert_allclose(distance, [0.0, 1e50], rtol=1e-6)


def test_tiles_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    points, centroids, limits = rng.normal(size=(100, 3)), rng.normal(size=(4, 3)), np.full(4, 2.0)
    whole = below(centroids, points, limits)
    monkeypatch.setattr(closeness, "TILE_CELLS", 28)
    parts = below(centroids, points, limits)
    orders = [np.lexsort((found[1], found[0])) for found in (whole, parts)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one[orders[0]], other[orders[1]])


def test_exact_closeness_is_within_rounding_and_the_same_alone():
    rng = np.random.default_rng(2)
    members = [rng.normal(size=(size, 5)) + k for k, size in enumerate((30, 1, 7))]
    centroids = np.stack([some.mean(axis=0) for some in members])
    features = RandomFourierFeatures.draw(5, 300, 1.5, rng)
    pruned = ExactCross(members, centroids, 0.7)
    pruned.prune(np.full(3, 1e-2), rng.normal(size=(100, 5)) * 10)
    assert (pruned.radii < np.inf).all()
    measures = [
        Distance(centroids),
        RffCross(features.omega.numpy(), features.phase.numpy(), members),
        ExactCross(members, centroids, 1.5),
        pruned,
    ]
    for dtype in (np.float32, np.float64):
        points = (rng.normal(size=(400, 5)) * 3).astype(dtype)
        for measure in measures:
            fast, room = measure(points, np.arange(3)), measure.rounding(points)
            for k in range(3):
                exact = measure.exactly(points, np.full(400, k))
                assert (np.abs(exact - fast[k]) <= room).all()
                alone = [measure.exactly(points[i : i + 1], np.array([k]))[0] for i in range(0, 400, 7)]
                np.testing.assert_array_equal(alone, exact[::7])
            mixed = measure.exactly(points, np.arange(400) % 3)
            np.testing.assert_array_equal(mixed[::3], measure.exactly(points[::3], np.zeros(134, dtype=int)))
