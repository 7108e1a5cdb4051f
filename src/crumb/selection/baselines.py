"""The strategies that CRUMB is compared with."""

from __future__ import annotations

import math

import numpy as np

from crumb.errors import InvalidInput, positive
from crumb.selection.base import CellRows, Demand, Finder, Nearest, Problem, Selection, Strategy
from crumb.selection.clustering import cluster, nearest_centroid


class Full(Strategy):
    """The whole pool for all queries, in one pass: what the others try to come near to.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="full")
    >>> plan.sizes.tolist()
    [100]
    """

    name = "full"
    default_clusters = 1
    follows_policy = False
    drops_rows = False

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, 1, problem.seed)
        return Selection(labels, centroids, [np.arange(problem.finder.size)], ["whole pool"])


class Uniform(Strategy):
    """One random context for all queries, or with ``n_clusters`` > 1 one for each cluster.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="uniform", context_size=4)
    >>> plan.sizes.tolist(), plan.labels.tolist()
    ([4], [0, 0, 0])
    """

    name = "uniform"
    default_clusters = 1
    follows_policy = False

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        rng, size = problem.rng("uniform"), problem.finder.size
        drawn = [rng.choice(size, problem.n, replace=False) for _ in centroids]
        (contexts,) = problem.finder.find(centroids, drawn)
        return Selection(labels, centroids, contexts)


class KNN(Strategy):
    """The n nearest pool rows of each query. Every query is a cluster: ``n_clusters`` is unused.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="knn", context_size=4)
    >>> [sorted(rows.tolist()) for rows in plan.contexts]
    [[1, 2, 3, 4], [2, 3, 4, 5], [96, 97, 98, 99]]
    """

    name = "knn"
    shares = False
    follows_policy = False

    def demand(self, rows: int, queries: int, clusters: int, n: int) -> Demand:
        return Demand(queries, 0, 0)

    def select(self, problem: Problem) -> Selection:
        queries = problem.queries
        (nearest,) = problem.finder.find(queries, Nearest(queries, problem.n))
        return Selection(np.arange(len(queries)), queries, nearest)


class CentroidNN(Strategy):
    """The n nearest pool rows of each query-cluster centroid.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="centroid", n_clusters=2, context_size=4)
    >>> [sorted(rows.tolist()) for rows in plan.contexts]
    [[1, 2, 3, 4], [96, 97, 98, 99]]
    """

    name = "centroid"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        (nearest,) = problem.finder.find(centroids, Nearest(centroids, problem.n))
        return Selection(labels, centroids, nearest)


class VoronoiUniform(Strategy):
    """Random pool rows from the cell of each query-cluster centroid.

    A cell with fewer than n rows is topped up with the rows nearest to its centroid, so that every
    strategy has the same context size (the paper does not say what it does there).

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="voronoi", n_clusters=2, context_size=4)
    >>> plan.sizes.tolist(), plan.labels.tolist()
    ([4, 4], [0, 0, 1])
    """

    name = "voronoi"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        cells = np.arange(len(centroids))
        return Selection(labels, centroids, _contexts_of_cells(problem, centroids, cells))


class MICP(Strategy):
    """The mixture of in-context prompters of MixturePFN, without its fine-tuning stage.

    Cluster the pool, give each cluster a fixed context, route each query to the nearest one.

    Parameters
    ----------
    gamma : float, default=1.0
        K' = ⌈gamma · N / n⌉ clusters of the pool.
    n_clusters : int or None, default=None
        K' itself, in the place of ``gamma``.

    Examples
    --------
    >>> from crumb import MICP, CrumbClassifier
    >>> CrumbClassifier(strategy=MICP(gamma=2.0)).strategy.prompters(rows=10_000, n=500)
    40
    """

    name = "micp"
    follows_policy = False

    def __init__(self, gamma: float = 1.0, n_clusters: int | None = None):
        self.gamma = gamma
        self.n_clusters = n_clusters

    def demand(self, rows: int, queries: int, clusters: int, n: int) -> Demand:
        prompters = self.prompters(rows, n)
        return Demand(min(queries, prompters), rows, prompters, of_pool=True)

    def learn(self, finder: Finder, n: int) -> np.ndarray:
        return finder.centroids(self.prompters(finder.size, n))

    def select(self, problem: Problem) -> Selection:
        centroids = self.learn(problem.finder, problem.n)
        # K*: only the prompters that got queries run, so only they are built.
        used, labels = np.unique(nearest_centroid(problem.queries, centroids), return_inverse=True)
        return Selection(labels, centroids[used], _contexts_of_cells(problem, centroids, used))

    def prompters(self, rows: int, n: int) -> int:
        """K' for a pool of that many rows and contexts of n."""
        if self.n_clusters is not None:
            return positive("MICP's n_clusters", self.n_clusters)
        if not self.gamma > 0:
            raise InvalidInput(f"MICP's gamma must be positive, got {self.gamma!r}.")
        return math.ceil(self.gamma * rows / n)


def _contexts_of_cells(
    problem: Problem, centroids: np.ndarray, cells: np.ndarray
) -> list[np.ndarray]:
    """n random rows of each of some cells, topped up with the nearest rows of other cells."""
    n, some = problem.n, centroids[cells]
    found = problem.finder.find(some, CellRows(centroids, n, cells), Nearest(some, n))
    return [
        np.concatenate([own, near[~np.isin(near, own)][: n - len(own)]])
        for own, near in zip(*found, strict=True)
    ]
