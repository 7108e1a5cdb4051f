"""Centroid-NN: the pool rows nearest to the centroid of each cluster of queries."""

from __future__ import annotations

from crumb.selection.base import Problem, Selection, Strategy, nearest_rows
from crumb.selection.clustering import cluster


class CentroidNN(Strategy):
    """The n nearest pool rows of each query-cluster centroid."""

    name = "centroid"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        contexts = nearest_rows(problem.pool, centroids, problem.n)
        return Selection(labels, centroids, list(contexts), ["budget"] * len(contexts))
