"""Uniform subsampling: contexts drawn at random from the whole pool."""

from __future__ import annotations

from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.finder import Numbered


class Uniform(Strategy):
    """One random context for all queries, or with ``n_clusters`` > 1 one for each cluster."""

    name = "uniform"
    default_clusters = 1

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        rng, size = problem.rng("uniform"), problem.finder.size
        drawn = [rng.choice(size, problem.n, replace=False) for _ in centroids]
        (contexts,) = problem.finder.find(centroids, Numbered(drawn))
        return Selection.of_size_n(labels, centroids, contexts)
