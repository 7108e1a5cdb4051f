"""Uniform subsampling: contexts drawn at random from the whole pool."""

from __future__ import annotations

from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import cluster


class Uniform(Strategy):
    """One random context for all queries (case A), or one for each cluster with ``n_clusters`` > 1 (case B)."""

    name = "uniform"
    default_clusters = 1

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        rng = problem.rng("uniform")
        contexts = [rng.choice(len(problem.pool), problem.n, replace=False) for _ in centroids]
        return Selection(labels, centroids, contexts, ["budget"] * len(contexts))
