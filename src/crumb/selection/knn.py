"""Per-query nearest neighbours: a context for every query, and so a pass for every query."""

from __future__ import annotations

import numpy as np

from crumb.selection.base import Problem, Selection, Strategy, nearest_rows


class KNN(Strategy):
    """The n nearest pool rows of each query. ``n_clusters`` plays no part: every query is its own cluster."""

    name = "knn"

    def select(self, problem: Problem) -> Selection:
        contexts = nearest_rows(problem.pool, problem.queries, problem.n)
        labels = np.arange(len(problem.queries))
        return Selection(labels, problem.queries, list(contexts), ["budget"] * len(labels))
