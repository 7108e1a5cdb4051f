"""What a strategy may ask of the pool, wherever the pool is.

A strategy puts its questions all at once, so that files are read in one pass. A ``Finder`` answers
with row numbers: a list of arrays for each question. ``TableFinder`` has all points in memory;
``scale/finder.py`` reads files. Both give the same answers: random rows are those with the lowest
``row_numbers``, which belong to the rows.

Shapes: N pool rows, K clusters, d columns of the selection space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from sklearn.neighbors import NearestNeighbors

from crumb.rng import generator, row_numbers
from crumb.selection.clustering import cluster, nearest_centroid

if TYPE_CHECKING:
    from crumb.herding.neighbours import Candidates
    from crumb.selection.base import Problem

SUPPORT_ROWS = 20_000  # pool rows that tell whether the pool reaches a query


@dataclass(frozen=True)
class Nearest:
    """The n rows nearest to each point, nearest first."""

    points: np.ndarray  # (K, d)
    n: int


@dataclass(frozen=True)
class RandomOfCells:
    """n random rows of some cells. A cell is the rows nearest to one of the centroids."""

    centroids: np.ndarray  # (cells, d)
    n: int
    cells: np.ndarray  # (K,) those asked for, rising


@dataclass(frozen=True)
class Numbered:
    """Rows whose numbers are known."""

    lists: list[np.ndarray]


Question: TypeAlias = Nearest | RandomOfCells | Numbered


@dataclass(frozen=True)
class Held:
    """Rows of the pool whose points are in memory."""

    points: np.ndarray  # (m, d)
    codes: np.ndarray | None  # (m,) classes 0 … C−1; None: regression, or not needed
    ids: np.ndarray | None = None  # (m,) row numbers, rising; None: the whole pool

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows of the pool are in ``points``."""
        return ids if self.ids is None else np.searchsorted(self.ids, ids)

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The reverse."""
        return places if self.ids is None else self.ids[places]


@dataclass(frozen=True)
class Among:
    """The candidates that herding has: arguments of ``herd_candidates``."""

    most: int
    candidates: Candidates | None = None  # None: from the whole pool
    available: int | None = None
    first: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # what the plan should say of them


class Finder(ABC):
    """Answers the questions of a strategy."""

    whole: ClassVar[bool]  # whether the points of all rows are in memory
    size: int  # N
    held: Held  # after the questions: at least the rows of the answers
    reference: np.ndarray  # points that stand for the pool

    @abstractmethod
    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        """Row numbers. ``centroids`` (K, d): of the clusters that will get contexts."""

    @abstractmethod
    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        """For herding a context for each cluster of queries."""

    @abstractmethod
    def centroids(self, n_clusters: int) -> np.ndarray:
        """Of clusters of the pool, at most that many."""


class TableFinder(Finder):
    """For a pool in memory."""

    whole = True

    def __init__(self, points: np.ndarray, codes: np.ndarray | None = None, seed: int = 0):
        self.held, self.size, self.seed = Held(points, codes), len(points), seed

    @cached_property
    def reference(self) -> np.ndarray:  # type: ignore[override]
        return self.held.points[support_rows(self.size, self.seed)]

    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> list[np.ndarray]:
        if isinstance(question, Nearest):
            return list(nearest_rows(self.held.points, question.points, question.n))
        if isinstance(question, Numbered):
            return question.lists
        order = np.argsort(row_numbers(np.arange(self.size), self.seed, "rows"))
        cells = nearest_centroid(self.held.points, question.centroids)[order]
        return [order[cells == cell][: question.n] for cell in question.cells]

    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        return Among(problem.search.most_candidates)

    def centroids(self, n_clusters: int) -> np.ndarray:
        return cluster(self.held.points, n_clusters, self.seed)[1]


def nearest_rows(pool: np.ndarray, points: np.ndarray, n: int) -> np.ndarray:
    """The n pool rows nearest to each point, nearest first: (len(points), n)."""
    search = NearestNeighbors(n_neighbors=min(n, len(pool)), algorithm="brute").fit(pool)
    return search.kneighbors(np.asarray(points, dtype=pool.dtype), return_distance=False)


def support_rows(rows: int, seed: int) -> np.ndarray:
    """The numbers of the rows that stand for a pool when the evidence is measured."""
    if rows <= SUPPORT_ROWS:
        return np.arange(rows)
    return generator(seed, "support").choice(rows, SUPPORT_ROWS, replace=False)
