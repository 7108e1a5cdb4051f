"""Voronoi-Uniform: random pool rows from the cell of each query-cluster centroid."""

from __future__ import annotations

import numpy as np

from crumb.selection.base import Problem, Selection, Strategy, top_up
from crumb.selection.finder import Nearest, RandomOfCells


class VoronoiUniform(Strategy):
    """Uniform draws from the pool rows that are nearest to a centroid.

    A cell with fewer than n rows is topped up with the rows nearest to its centroid, so that every
    strategy has the same context size (the paper does not say what it does there).
    """

    name = "voronoi"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        return Selection.of_size_n(
            labels, centroids, contexts_of_cells(problem, centroids, np.arange(len(centroids)))
        )


def contexts_of_cells(
    problem: Problem, centroids: np.ndarray, cells: np.ndarray
) -> list[np.ndarray]:
    """n random rows of each of some cells, topped up with the nearest rows of other cells."""
    own, nearest = problem.finder.find(
        centroids[cells],
        RandomOfCells(centroids, problem.n, cells),
        Nearest(centroids[cells], problem.n),
    )
    return [top_up(mine, near, problem.n) for mine, near in zip(own, nearest, strict=True)]
