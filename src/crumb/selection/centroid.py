"""Centroid-NN: the pool rows nearest to the centroid of each cluster of queries."""

from __future__ import annotations

from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.finder import Nearest


class CentroidNN(Strategy):
    """The n nearest pool rows of each query-cluster centroid."""

    name = "centroid"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        (nearest,) = problem.finder.find(centroids, Nearest(centroids, problem.n))
        return Selection.of_size_n(labels, centroids, nearest)
