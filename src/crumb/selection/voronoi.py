"""Voronoi-Uniform: random pool rows from the cell of each query-cluster centroid."""

from __future__ import annotations

import numpy as np

from crumb.selection.base import Problem, Selection, Strategy, nearest_rows, top_up
from crumb.selection.clustering import cluster, nearest_centroid


class VoronoiUniform(Strategy):
    """Uniform draws from the pool rows that are nearest to a centroid.

    A cell with fewer than n rows is topped up with the rows nearest to its centroid, so that every strategy
    works with the same budget (the paper does not say what it does there).
    """

    name = "voronoi"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        cells = nearest_centroid(problem.pool, centroids)
        nearest = nearest_rows(problem.pool, centroids, problem.n)
        rng = problem.rng("voronoi")
        contexts = []
        for cell, neighbours in enumerate(nearest):
            own = rng.permutation(np.flatnonzero(cells == cell))[: problem.n]
            contexts.append(top_up(own, neighbours, problem.n))
        return Selection(labels, centroids, contexts, ["budget"] * len(contexts))
