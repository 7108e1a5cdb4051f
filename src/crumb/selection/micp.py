"""MICP, the mixture of in-context prompters of MixturePFN, without its fine-tuning stage."""

from __future__ import annotations

import math

import numpy as np

from crumb.checks import positive
from crumb.errors import InvalidInput
from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import nearest_centroid
from crumb.selection.voronoi import contexts_of_cells


class MICP(Strategy):
    """Cluster the pool, give each cluster a fixed context, route each query to the nearest one.

    Parameters
    ----------
    gamma : float, default=1.0
        K' = ⌈gamma · N / n⌉ clusters of the pool.
    n_clusters : int or None, default=None
        K' itself, in the place of ``gamma``.
    """

    name = "micp"

    def __init__(self, gamma: float = 1.0, n_clusters: int | None = None):
        self.gamma = gamma
        self.n_clusters = n_clusters

    def select(self, problem: Problem) -> Selection:
        centroids = problem.finder.centroids(self.prompters(problem.finder.size, problem.n))
        # K*: only the prompters that got queries run, so only they are built.
        used, labels = np.unique(nearest_centroid(problem.queries, centroids), return_inverse=True)
        contexts = contexts_of_cells(problem, centroids, used)
        return Selection.of_size_n(labels, centroids[used], contexts)

    def prompters(self, rows: int, n: int) -> int:
        """K' for a pool of that many rows and contexts of n."""
        if self.n_clusters is not None:
            return positive("MICP's n_clusters", self.n_clusters)
        if not self.gamma > 0:
            raise InvalidInput(f"MICP's gamma must be positive, got {self.gamma!r}.")
        return math.ceil(self.gamma * rows / n)
