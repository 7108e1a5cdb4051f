"""Stage 1, and what every strategy gets (``Problem``), may ask of the pool (``Finder``), and gives.

Stage 1 is k-means++ and Lloyd on the queries; rows go to the nearest centroid. A strategy puts its
questions all at once, so that files are read in one pass. A ``Finder`` answers with row numbers: a
list of arrays for each question. ``TableFinder`` has all points in memory; ``scale/pool.py``
reads files. Both give the same answers: random rows are those with the lowest ``row_numbers``,
which belong to the rows.

Shapes: N pool rows, T queries, K clusters, d columns of the selection space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import NearestNeighbors

from crumb.errors import InvalidInput
from crumb.herding.greedy import RandomFourierFeatures
from crumb.herding.search import Load, Search
from crumb.machine import Advance, MapBlocks, no_progress, one_thread, quiet
from crumb.rng import generator, row_numbers

# Many points are clustered in three steps: a sample; the sample and the points farthest from its
# centroids; a few passes over all points. That takes a fraction of the time on a million points,
# and inertia is within 0.2 % (docs/performance.md).
SAMPLE, PASSES = 50_000, 5
ROUNDS_GROW = 500  # measured: 10 kernel values for each point and centroid of 5,000, 120 of 60,000
ROUTE_CELLS = 1 << 17  # distances held at once while points are routed: they stay in the cache
SPARE = 4  # centroids that are looked at beside the nearest ones
ROUNDING = 16  # how far two distances may be off, in rounding errors of a product for each column


def cluster(points: np.ndarray, n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Non-empty clusters of the points, at most as many as asked: labels (T,), centroids (K, d).

    A label is always the nearest centroid. A frozen plan routes new rows by the same rule.
    """
    n_clusters = min(n_clusters, len(points))
    if n_clusters == 1:
        return np.zeros(len(points), dtype=np.int64), points.mean(axis=0, keepdims=True)
    # With fewer distinct points than clusters some are empty: they are dropped below.
    with quiet("Number of distinct clusters"):
        centroids = _k_means(points, n_clusters, seed % 2**32)
    used, labels = np.unique(nearest_centroid(points, centroids), return_inverse=True)
    return labels.astype(np.int64), centroids[used]


def clustering_values(points: int, n_clusters: int) -> float:
    """Kernel values that take as long as k-means, in one thread: more points take more rounds."""
    return n_clusters * points * min(points, SAMPLE) / ROUNDS_GROW


def _k_means(points: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Centroids by k-means++ and Lloyd."""
    size = max(SAMPLE, 10 * n_clusters)
    if len(points) <= size:
        return _lloyd(points, n_clusters, random_state=seed)
    sample = generator(seed, "clustering").choice(len(points), size, replace=False)
    first = _lloyd(points[np.sort(sample)], n_clusters, random_state=seed)
    away = pairwise_distances_argmin_min(points, first)[1]
    # A small group far out may have no row in the sample.
    farthest = np.argsort(away, kind="stable")[-(size // 50) :]
    sample = np.union1d(sample, farthest)
    second = _lloyd(points[sample], n_clusters, random_state=seed)
    closer = (pairwise_distances_argmin_min(points, second)[1] ** 2).sum() < (away**2).sum()
    return _lloyd(points, n_clusters, init=second if closer else first, max_iter=PASSES)


def _lloyd(points: np.ndarray, n_clusters: int, **options: Any) -> np.ndarray:
    # Several threads add up their sums in the order in which they finish. The last digits of the
    # centroids would differ from run to run, enough to choose another row of two equally good ones.
    # And k-means++ makes many small products, for which threads wait longer than they work.
    with one_thread():
        return KMeans(n_clusters, n_init=1, **options).fit(points).cluster_centers_


def value_order(points: np.ndarray) -> np.ndarray:
    """An order of the rows that depends on their values alone, not on the order given."""
    if len(points) <= SAMPLE:
        return np.lexsort(points.T)
    # Sorting by every column takes seconds for a million rows. Equal rows have equal sums, and
    # other rows hardly ever.
    weights = generator(0, "value order").normal(size=points.shape[1])
    return np.argsort((points * weights).sum(axis=1), kind="stable")


def nearest_centroid(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """The index of the centroid nearest to each point; the first one of equals.

    Matrix products round differently for few rows and for many. Where that could decide, distances
    are computed one by one: a query is routed the same alone and in a batch.
    """
    centroids = np.asarray(centroids, dtype=points.dtype)
    if len(centroids) == 1:
        return np.zeros(len(points), dtype=np.int64)
    labels, rows = np.zeros(len(points), dtype=np.int64), max(1, ROUTE_CELLS // len(centroids))
    for start in range(0, len(points), rows):
        labels[start : start + rows] = _nearest(points[start : start + rows], centroids)
    return labels


def nearest_centroids(
    points: np.ndarray, centroids: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centroids of each point, nearest first, and how far they are, squared: (T, m).

    The products name some more than are wanted, so that their rounding does not decide.
    """
    centroids = np.asarray(centroids, dtype=points.dtype)
    some, count = min(count + SPARE, len(centroids)), min(count, len(centroids))
    labels = np.zeros((len(points), count), dtype=np.int64)
    squares = np.zeros((len(points), count))
    rows = max(1, ROUTE_CELLS // max(len(centroids), some * points.shape[1]))
    for start in range(0, len(points), rows):
        block = points[start : start + rows]
        scores = (centroids * centroids).sum(axis=1) - 2 * (block @ centroids.T)
        near = np.sort(np.argpartition(scores, some - 1, axis=1)[:, :some], axis=1)
        far = np.square(block[:, None] - centroids[near], dtype=np.float64).sum(axis=2)
        order = np.argsort(far, axis=1, kind="stable")[:, :count]
        labels[start : start + rows] = np.take_along_axis(near, order, axis=1)
        squares[start : start + rows] = np.take_along_axis(far, order, axis=1)
    return labels, squares


def _nearest(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    sizes = (centroids * centroids).sum(axis=1)
    scores = sizes - 2 * (points @ centroids.T)  # ‖x − c‖² less ‖x‖²
    labels = scores.argmin(axis=1)
    rows = np.arange(len(points))
    best = scores[rows, labels]
    scores[rows, labels] = np.inf
    lead = scores.min(axis=1) - best  # of the nearest over the next
    scale = sizes.max() + (points * points).sum(axis=1)
    room = ROUNDING * np.finfo(points.dtype).eps * points.shape[1] * scale
    doubtful = np.flatnonzero(lead <= room)
    for start in range(0, len(doubtful), 1_000):
        some = doubtful[start : start + 1_000]
        labels[some] = cdist(points[some], centroids, "sqeuclidean").argmin(axis=1)
    return labels


if TYPE_CHECKING:
    from crumb.options import Options

SUPPORT_ROWS = 20_000  # pool rows that tell whether the pool reaches a query
# ``min_per_class`` swaps at most this share of a context, but always enough for a few classes.
MOST_SWAPPED, FEW_CLASSES = 0.1, 10
REGISTRY: dict[str, type[Strategy]] = {}
UNMEASURED = np.array([np.nan])


class Nearest(NamedTuple):
    """The n rows nearest to each point, nearest first."""

    points: np.ndarray  # (K, d)
    n: int


class CellRows(NamedTuple):
    """n random rows of some cells. A cell is the rows nearest to one of the centroids."""

    centroids: np.ndarray  # (cells, d)
    n: int
    cells: np.ndarray  # (K,) those asked for, rising


Numbered: TypeAlias = list[np.ndarray]  # rows whose numbers are known
Question: TypeAlias = Nearest | CellRows | Numbered
# Arguments of ``herd_candidates``, and what the plan should say of the candidates.
Among: TypeAlias = tuple[dict[str, Any], dict[str, Any]]


@dataclass(frozen=True)
class Held:
    """Rows of the pool whose points are in memory."""

    points: np.ndarray  # (m, d)
    codes: np.ndarray | None  # (m,) classes 0 … C−1; None: regression, or not needed
    ids: np.ndarray | None = None  # (m,) row numbers, rising; None: the whole pool

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows of the pool are in ``points``."""
        return ids if self.ids is None else np.searchsorted(self.ids, ids)

    def points_of(self, ids: np.ndarray) -> np.ndarray:
        return self.points[self.places(ids)]

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The reverse."""
        return places if self.ids is None else self.ids[places]


class Finder(ABC):
    """Answers the questions of a strategy."""

    whole: ClassVar[bool]  # whether the points of all rows are in memory
    size: int  # N
    seed: int
    known: dict[tuple[int, int], np.ndarray]  # centroids of the pool, by their number and seed
    held: Held  # after the questions: at least the rows of the answers
    reference: np.ndarray  # points that stand for the pool

    @abstractmethod
    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        """Row numbers. ``centroids`` (K, d): of the clusters that will get contexts."""

    @abstractmethod
    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        """For herding a context for each cluster of queries."""

    def centroids(self, n_clusters: int) -> np.ndarray:
        """Of clusters of the pool, at most that many. The pool is clustered once, then known."""
        key = n_clusters, self.seed
        found = self.known.get(key)
        if found is None:
            found = self.cluster_pool(n_clusters)
            self.known.clear()  # the latest will be asked for again
            self.known[key] = found
        return found

    @abstractmethod
    def cluster_pool(self, n_clusters: int) -> np.ndarray:
        """What ``centroids`` gives, computed."""


class TableFinder(Finder):
    """For a pool in memory."""

    whole = True

    def __init__(
        self,
        points: np.ndarray,
        codes: np.ndarray | None = None,
        seed: int = 0,
        known: dict[tuple[int, int], np.ndarray] | None = None,
    ):
        self.held, self.size, self.seed = Held(points, codes), len(points), seed
        self.known = {} if known is None else known

    @cached_property
    def reference(self) -> np.ndarray:  # type: ignore[override]
        return self.held.points[support_rows(self.size, self.seed)]

    def find(self, centroids: np.ndarray, *questions: Question) -> list[list[np.ndarray]]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> list[np.ndarray]:
        if isinstance(question, Nearest):
            return list(nearest_rows(self.held.points, question.points, question.n))
        if isinstance(question, list):
            return question
        order = np.argsort(row_numbers(np.arange(self.size), self.seed, "rows"))
        cells = nearest_centroid(self.held.points, question.centroids)[order]
        return [order[cells == cell][: question.n] for cell in question.cells]

    def candidates(self, problem: Problem, labels: np.ndarray, centroids: np.ndarray) -> Among:
        return {"most": problem.search.most_candidates}, {}

    def cluster_pool(self, n_clusters: int) -> np.ndarray:
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


@dataclass(frozen=True)
class Problem:
    """Queries in the selection space, who answers questions about the pool, and the options."""

    finder: Finder
    queries: np.ndarray  # (T, d)
    options: Options  # resolved
    map_blocks: MapBlocks = map
    progress: Advance = no_progress

    @property
    def n(self) -> int:
        """The context size."""
        return self.options.context_size

    @property
    def seed(self) -> int:
        return self.options.seed

    @cached_property
    def search(self) -> Search:
        """How stage 2 searches."""
        clusters = min(self.options.n_clusters, len(self.queries))
        rows, (queries, columns) = self.finder.size, self.queries.shape
        return self.options.search(Load(rows, queries, clusters, self.n, columns))

    def rng(self, purpose: str) -> np.random.Generator:
        return generator(self.seed, purpose)

    def cluster(self) -> tuple[np.ndarray, np.ndarray]:
        """Stage 1: the cluster of each query (T,), and the centroids (K, d)."""
        return cluster(self.queries, self.options.n_clusters, self.seed)

    def route(self, centroids: np.ndarray) -> np.ndarray:
        """The cluster with the nearest centroid for each query: (T,)."""
        return nearest_centroid(self.queries, centroids)

    def features(self) -> RandomFourierFeatures:
        """The same Ω and b however often they are asked for."""
        d, sigma = self.queries.shape[1], self.options.bandwidth
        return RandomFourierFeatures.draw(d, self.search.rff_dim, sigma, self.rng("rff"))

    def tensor(self, points: np.ndarray) -> torch.Tensor:
        """Points of the selection space on the device; GPUs work in float32."""
        tensor = torch.from_numpy(np.ascontiguousarray(points))
        gpu = self.options.device != "cpu"
        return tensor.to(self.options.device, torch.float32) if gpu else tensor


@dataclass
class Selection:
    """The cluster of each query, and the pool rows that each cluster sees, most wanted first."""

    labels: np.ndarray  # (T,)
    centroids: np.ndarray  # (K, d)  where rows that were not planned for are routed
    contexts: list[np.ndarray]  # row numbers
    stop_reasons: list[str] = field(default_factory=list)  # by default: n rows are reached
    mmd2: list[np.ndarray] | None = None  # traces, where the strategy watched them
    kernel: str | None = None  # the way that was taken
    facts: dict[str, Any] = field(default_factory=dict)  # what else the plan should say of it

    def __post_init__(self) -> None:
        self.stop_reasons = self.stop_reasons or ["context size"] * len(self.contexts)

    def keep_rare_classes(self, held: Held, min_per_class: int) -> np.ndarray:
        """``min_per_class`` for every context: how many rows of each are new.

        The trace of a context that has changed is no longer known.
        """
        swapped = np.zeros(len(self.contexts), dtype=np.int64)
        if held.codes is None or not min_per_class:
            return swapped
        rare = RareClasses(held.points, held.codes, min_per_class)
        for k, context in enumerate(self.contexts):
            before = held.places(context)
            after = rare.keep(before, self.centroids[k])
            swapped[k] = int((~np.isin(after, before)).sum())
            self.contexts[k] = held.numbers(after)
            if self.mmd2 is not None and swapped[k]:
                self.mmd2[k] = UNMEASURED
        return swapped


class RareClasses:
    """Keeps rows of every class in contexts, as far as there is room.

    Herding looks at features alone, and so do all the baselines. A rare class that lies elsewhere
    drops out of a context, and the PFN then gives it probability zero. So the least wanted rows of
    frequent classes are swapped for the missing classes' rows nearest to the cluster. Where there
    are many classes only the nearest rows come in: a context stays one of its cluster.
    """

    def __init__(self, pool: np.ndarray, y: np.ndarray, min_per_class: int):
        """``y`` holds class codes 0 … C−1."""
        self.pool, self.y, self.least = pool, y, min_per_class
        self.in_pool = np.bincount(y)
        by_class = np.argsort(y, kind="stable")
        self.rows = np.split(by_class, np.cumsum(self.in_pool)[:-1])  # C arrays

    def keep(self, context: np.ndarray, centroid: np.ndarray) -> np.ndarray:
        """The context with at least ``min_per_class`` rows of each class.

        Rows that stay keep their order; new rows come at the end.
        """
        minima = (np.minimum(self.in_pool, minimum) for minimum in range(self.least, -1, -1))
        wanted = next(rows for rows in minima if rows.sum() <= len(context))  # the most with room
        mine = self.y[context]
        present = np.bincount(mine, minlength=len(self.in_pool))
        missing = np.maximum(wanted - present, 0)
        if not missing.any():
            return context
        incoming = self._nearest(missing, context, centroid)
        # The last rows of classes that can spare them go.
        backwards = mine[::-1]
        later = pd.Series(backwards).groupby(backwards).cumcount().to_numpy()  # of the same class
        leaving = np.flatnonzero(later < (present - wanted)[backwards])[: len(incoming)]
        return np.concatenate([np.delete(context, len(context) - 1 - leaving), incoming])

    def _nearest(
        self, missing: np.ndarray, context: np.ndarray, centroid: np.ndarray
    ) -> np.ndarray:
        """The ``missing`` (C,) rows of each class nearest to a centroid, or the nearest of all."""
        rows = np.concatenate([self.rows[label] for label in np.flatnonzero(missing)])
        rows = rows[~np.isin(rows, context)]
        distance = ((self.pool[rows] - centroid) ** 2).sum(axis=1)
        order = np.lexsort((distance, self.y[rows]))
        labels = self.y[rows[order]]
        place = np.arange(len(labels)) - np.searchsorted(labels, labels)  # within the class
        order = order[place < missing[labels]]
        most = max(int(MOST_SWAPPED * len(context)), FEW_CLASSES * self.least)
        return rows[order[np.sort(np.argsort(distance[order], kind="stable")[:most])]]


class Demand(NamedTuple):
    """What a strategy asks for besides herding."""

    passes: int  # of the model, at most
    points: int  # that are clustered
    clusters: int  # that they are put into; 0: none are
    of_pool: bool = False  # whether they are rows of the pool, and not queries


class Strategy(BaseEstimator, ABC):
    """Base of all strategies. Its parameters are those of ``__init__``, as in scikit-learn."""

    name: ClassVar[str]
    default_clusters: ClassVar[int | None] = None  # of its own
    follows_policy: ClassVar[bool] = True  # K and n depend on the queries: ``choose_sizes``
    drops_rows: ClassVar[bool] = True  # False: every context is the whole pool
    shares: ClassVar[bool] = True  # False: every query has a context of its own
    contexts_per_query: ClassVar[int] = 1  # "auto"

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:  # without a name of its own it must not replace its parent
            REGISTRY[cls.name] = cls

    def demand(self, rows: int, queries: int, clusters: int, n: int) -> Demand:
        """What planning for K clusters and contexts of n rows leads to."""
        return Demand(clusters, queries, clusters if clusters > 1 else 0)

    def learn(self, finder: Finder, n: int) -> object:
        """Find out what does not depend on queries, for contexts of n rows. Most learn nothing."""
        return None

    @abstractmethod
    def select(self, problem: Problem) -> Selection:
        """Give every query a cluster, and every cluster a context of ``problem.n`` pool rows."""


def resolve_strategy(strategy: str | Strategy) -> Strategy:
    """A strategy from its name, or the configured object itself."""
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, str) and strategy in REGISTRY:
        return REGISTRY[strategy]()
    known = ", ".join(map(repr, sorted(REGISTRY)))
    raise InvalidInput(f"Unknown strategy {strategy!r}: choose {known}, or pass a strategy object.")
