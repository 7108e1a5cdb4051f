"""rules.py: distances of rows to queries and centroids, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.scale.rules import _nth, below, exact_distances, rounding, squared_distances


def test_distances_against_brute_force():
    rng = np.random.default_rng(2)
    centroids, points = rng.normal(size=(3, 4)) * 3, rng.normal(size=(500, 4)) * 3
    np.testing.assert_allclose(
        squared_distances(centroids, points), ((points[None] - centroids[:, None]) ** 2).sum(2)
    )


def test_exact_distances_are_within_rounding_and_the_same_alone():
    rng = np.random.default_rng(2)
    centroids = rng.normal(size=(3, 5)) + np.arange(3)[:, None]
    for dtype in (np.float32, np.float64):
        points = (rng.normal(size=(400, 5)) * 3).astype(dtype)
        fast = squared_distances(centroids.astype(dtype), points)
        room = rounding(points, centroids)
        for k in range(3):
            exact = exact_distances(points, centroids[np.full(400, k)])
            assert (np.abs(exact - fast[k]) <= room).all()
            some = range(0, 400, 7)
            alone = [exact_distances(points[[i]], centroids[[k]])[0] for i in some]
            np.testing.assert_array_equal(alone, exact[::7])
        mixed = exact_distances(points, centroids[np.arange(400) % 3])
        np.testing.assert_array_equal(
            mixed[::3], exact_distances(points[::3], centroids[np.zeros(134, dtype=int)])
        )


def brute_force(points, queries):
    """(T, N) squared distances."""
    return ((points.astype(np.float64)[None] - queries[:, None]) ** 2).sum(axis=2)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(1, 9),
    st.integers(0, 100),
    st.booleans(),
    st.sampled_from([0.0, 1e4]),
)
def test_the_limit_of_the_nearest_rows_of_each_query(rows, queries, seed, ties, offset):
    """Just above the distance of the last one, with ties and far from the origin too."""
    rng = np.random.default_rng(seed)
    points, asked = rng.normal(size=(rows, 3)) + offset, rng.normal(size=(queries, 3)) + offset
    if ties:
        points, asked = points.round(), asked.round()
    counts = rng.integers(1, rows + 1, queries)
    limits = _nth(points, asked, counts)
    for limit, count, distance in zip(limits, counts, brute_force(points, asked), strict=True):
        last = np.sort(distance)[count - 1]
        assert last < limit <= last * (1 + 1e-8) + 1e-300


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
    monkeypatch.setattr("crumb.scale.rules.TILE_CELLS", 28)
    parts = below(centroids, points, limits)
    orders = [np.lexsort((found[1], found[0])) for found in (whole, parts)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one[orders[0]], other[orders[1]])
