"""Distances of rows to centroids, against brute force."""

from __future__ import annotations

import numpy as np

from crumb.scale.rules import exact_distances, rounding, squared_distances


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
