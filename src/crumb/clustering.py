"""Stage 1: k-means++ and Lloyd on the queries, and the routing of rows to the nearest centroid."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from crumb.quiet import quiet

# Above so many points k-means runs on a sample first and then touches all of them a few times: a tenth of the time on a
# million points, inertia within 0.2 % (docs/performance.md).
SAMPLE, PASSES = 50_000, 5


def cluster(points: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Partition the points into at most ``n_clusters`` non-empty clusters: labels (T,), centroids (K, d).

    K is lowered to the number of distinct points where there are fewer. A label is always the centroid
    nearest to the point, the rule by which a frozen plan routes rows that it has not seen.
    """
    n_clusters = min(n_clusters, len(points))
    if n_clusters == 1:
        return np.zeros(len(points), dtype=np.int64), points.mean(axis=0, keepdims=True)
    with quiet(category=ConvergenceWarning):  # fewer distinct points than clusters: the empty ones are dropped below
        centroids = _k_means(points, n_clusters, seed % 2**32)
    used, labels = np.unique(nearest_centroid(points, centroids), return_inverse=True)
    return labels.astype(np.int64), centroids[used]


def _k_means(points: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Centroids by k-means++ and Lloyd."""
    size = max(SAMPLE, 10 * n_clusters)
    if len(points) <= size:
        return KMeans(n_clusters, n_init=1, random_state=seed).fit(points).cluster_centers_
    chosen = np.sort(np.random.default_rng(seed).choice(len(points), size, replace=False))
    start = KMeans(n_clusters, n_init=1, random_state=seed).fit(points[chosen]).cluster_centers_
    return KMeans(n_clusters, init=start, n_init=1, max_iter=PASSES).fit(points).cluster_centers_


def value_order(points: np.ndarray) -> np.ndarray:
    """``np.lexsort(points.T)``, which sorts by every column, where the last column alone nearly always decides."""
    order = np.argsort(points[:, -1], kind="stable")
    last = points[order, -1]
    tied = np.zeros(len(points), dtype=bool)
    tied[1:] = last[1:] == last[:-1]
    tied[:-1] |= tied[1:]
    rows = order[tied]
    order[tied] = rows[np.lexsort(points[rows].T)]
    return order


def nearest_centroid(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The index of the centroid nearest to each point (the first one of equals)."""
    return pairwise_distances_argmin(points, np.asarray(centroids, dtype=points.dtype))
