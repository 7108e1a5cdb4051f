"""Stage 1: k-means++ and Lloyd on the queries, and the routing of rows to the nearest centroid."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin_min
from threadpoolctl import threadpool_limits

from crumb.machine import quiet
from crumb.rng import generator

# Many points are clustered in three steps: a sample; the sample and the points farthest from its
# centroids; a few passes over all points. That takes a fraction of the time on a million points,
# and inertia is within 0.2 % (docs/performance.md).
SAMPLE, PASSES = 50_000, 5
ROUNDS_GROW = 500  # measured: 10 kernel values for each point and centroid of 5,000, 120 of 60,000
ROUTE_CELLS = 1 << 17  # distances held at once while points are routed: they stay in the cache
ROUNDING = 16  # how far two distances may be off, in rounding errors of a product for each column


def cluster(points: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-empty clusters of the points, at most as many as asked: labels (T,), centroids (K, d).

    A label is always the nearest centroid. A frozen plan routes new rows by the same rule.
    """
    n_clusters = min(n_clusters, len(points))
    if n_clusters == 1:
        return np.zeros(len(points), dtype=np.int64), points.mean(axis=0, keepdims=True)
    # With fewer distinct points than clusters some are empty: they are dropped below.
    with quiet("Number of distinct clusters"):
        centroids = _k_means(points, n_clusters, seed % 2**32)
    used, labels = np.unique(nearest_centroid(points, centroids), return_inverse=True)
    return labels.astype(np.int64), centroids[used]


def clustering_values(points: int, n_clusters: int) -> float:
    """Kernel values that take as long as k-means, in one thread: more points take more rounds."""
    return n_clusters * points * min(points, SAMPLE) / ROUNDS_GROW


def _k_means(points: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Centroids by k-means++ and Lloyd."""
    size = max(SAMPLE, 10 * n_clusters)
    if len(points) <= size:
        return _lloyd(points, n_clusters, random_state=seed)
    sample = generator(seed, "clustering").choice(len(points), size, replace=False)
    first = _lloyd(points[np.sort(sample)], n_clusters, random_state=seed)
    away = pairwise_distances_argmin_min(points, first)[1]
    # A small group far out may have no row in the sample.
    farthest = np.argsort(away, kind="stable")[-(size // 50) :]
    sample = np.union1d(sample, farthest)
    second = _lloyd(points[sample], n_clusters, random_state=seed)
    closer = (pairwise_distances_argmin_min(points, second)[1] ** 2).sum() < (away**2).sum()
    return _lloyd(points, n_clusters, init=second if closer else first, max_iter=PASSES)


def _lloyd(points: np.ndarray, n_clusters: int, **options: Any) -> np.ndarray:
    # Several threads add up their sums in the order in which they finish. The last digits of the
    # centroids would differ from run to run, enough to choose another row of two equally good ones.
    with threadpool_limits(1, "openmp"):
        return KMeans(n_clusters, n_init=1, **options).fit(points).cluster_centers_


def value_order(points: np.ndarray) -> np.ndarray:
    """An order of the rows that depends on their values alone, not on the order given."""
    if len(points) <= SAMPLE:
        return np.lexsort(points.T)
    # Sorting by every column takes seconds for a million rows. Equal rows have equal sums, and
    # other rows hardly ever.
    weights = generator(0, "value order").normal(size=points.shape[1])
    return np.argsort((points * weights).sum(axis=1), kind="stable")


def nearest_centroid(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The index of the centroid nearest to each point; the first one of equals.

    Matrix products round differently for few rows and for many. Where that could decide, distances
    are computed one by one: a query is routed the same alone and in a batch.
    """
    centroids = np.asarray(centroids, dtype=points.dtype)
    if len(centroids) == 1:
        return np.zeros(len(points), dtype=np.int64)
    labels, rows = np.zeros(len(points), dtype=np.int64), max(1, ROUTE_CELLS // len(centroids))
    for start in range(0, len(points), rows):
        labels[start : start + rows] = _nearest(points[start : start + rows], centroids)
    return labels


def _nearest(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    sizes = (centroids * centroids).sum(axis=1)
    scores = sizes - 2 * (points @ centroids.T)  # ‖x − c‖² less ‖x‖²
    labels = scores.argmin(axis=1)
    rows = np.arange(len(points))
    best = scores[rows, labels]
    scores[rows, labels] = np.inf
    lead = scores.min(axis=1) - best  # of the nearest over the next
    scale = sizes.max() + (points * points).sum(axis=1)
    room = ROUNDING * np.finfo(points.dtype).eps * points.shape[1] * scale
    doubtful = np.flatnonzero(lead <= room)
    for start in range(0, len(doubtful), 1_000):
        some = doubtful[start : start + 1_000]
        labels[some] = cdist(points[some], centroids, "sqeuclidean").argmin(axis=1)
    return labels
