"""Stage 1: k-means++ and Lloyd on the queries, and the routing of rows to the nearest centroid."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

from crumb.quiet import quiet

LLOYD_CELLS = 500_000_000  # rows × clusters above which Lloyd's passes take minutes on a CPU


def cluster(points: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Partition the points into at most ``n_clusters`` non-empty clusters: labels (T,), centroids (K, d).

    K is lowered to the number of distinct points where there are fewer. A label is always the centroid
    nearest to the point, the rule by which a frozen plan routes rows that it has not seen.
    """
    n_clusters = min(n_clusters, len(points))
    if n_clusters == 1:
        return np.zeros(len(points), dtype=np.int64), points.mean(axis=0, keepdims=True)
    kind = KMeans if len(points) * n_clusters <= LLOYD_CELLS else MiniBatchKMeans
    with quiet(category=ConvergenceWarning):  # fewer distinct points than clusters: the empty ones are dropped below
        centroids = kind(n_clusters, n_init=1, random_state=seed % 2**32).fit(points).cluster_centers_
    used, labels = np.unique(nearest_centroid(points, centroids), return_inverse=True)
    return labels.astype(np.int64), centroids[used]


def nearest_centroid(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The index of the centroid nearest to each point (the first one of equals)."""
    return pairwise_distances_argmin(points, np.asarray(centroids, dtype=points.dtype))
