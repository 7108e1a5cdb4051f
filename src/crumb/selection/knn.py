"""Per-query nearest neighbours: a context for every query, and so a pass for every query."""

from __future__ import annotations

import numpy as np

from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.finder import Nearest


class KNN(Strategy):
    """The n nearest pool rows of each query. Every query is a cluster: ``n_clusters`` is unused."""

    name = "knn"

    def select(self, problem: Problem) -> Selection:
        queries = problem.queries
        (nearest,) = problem.finder.find(queries, Nearest(queries, problem.n))
        return Selection.of_size_n(np.arange(len(queries)), queries, nearest)
