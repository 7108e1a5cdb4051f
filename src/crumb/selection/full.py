"""Full context: the whole pool for all queries, in one pass."""

from __future__ import annotations

import numpy as np

from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import cluster


class Full(Strategy):
    """No selection at all: the baseline that the others try to come near to."""

    name = "full"
    default_clusters = 1
    drops_rows = False

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, 1, problem.seed)
        return Selection(labels, centroids, [np.arange(problem.finder.size)], ["whole pool"])
