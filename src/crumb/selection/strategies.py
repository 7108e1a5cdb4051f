"""The strategies: CRUMB itself, and those that it is compared with."""

from __future__ import annotations

import math
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from crumb.errors import InvalidInput
from crumb.herding.candidates import herd_candidates
from crumb.herding.greedy import (
    Clusters,
    ExactObjective,
    Herded,
    Objective,
    Rbf,
    RffObjective,
    herd,
)
from crumb.selection.base import (
    CellRows,
    Demand,
    Finder,
    Nearest,
    Problem,
    Selection,
    Strategy,
    cluster,
    nearest_centroid,
)


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="mmd", n_clusters=2, context_size=4)
    >>> [sorted(rows.tolist()) for rows in plan.contexts]
    [[1, 2, 3, 4], [96, 97, 98, 99]]
    """

    name = "mmd"
    contexts_per_query = 4  # measured: docs/defaults.md

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        # Where the pool is not in memory, herding has candidates only.
        way = problem.search.name if problem.finder.whole else "candidates"
        if way == "candidates":
            herded, facts = _among_candidates(problem, labels, centroids)
        else:
            herded, facts = _among_all(problem, labels, way), {}
        return Selection(
            labels,
            centroids,
            contexts=[problem.finder.held.numbers(context.indices) for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel=way,
            facts=facts,
        )


def _among_all(problem: Problem, labels: np.ndarray, way: str) -> list[Herded]:
    """By the exact kernel or by random features: every row of the pool is a candidate."""
    pool, clusters = _tensors(problem, labels)
    kernel, batch = Rbf(problem.options.bandwidth), problem.search.batch
    objective: Objective
    if way == "rff":
        features = problem.features().like(pool)
        objective = RffObjective(features, pool, clusters, problem.map_blocks)
    elif batch == 1 and runs_on(pool):
        from crumb.herding.gpu import GpuObjective

        objective = GpuObjective(kernel, pool, clusters)
    else:
        objective = ExactObjective(kernel, pool, clusters, problem.map_blocks)

    def advance(rows: int) -> None:
        problem.progress(rows * len(clusters))

    problem.progress(0, more=problem.n * len(clusters))
    return herd(objective, problem.n, batch, problem.options.early_stopping, advance)


def _among_candidates(
    problem: Problem, labels: np.ndarray, centroids: np.ndarray
) -> tuple[list[Herded], dict[str, Any]]:
    """Contexts, and what the plan should say of the candidates."""
    among, facts = problem.finder.candidates(problem, labels, centroids)
    herded, doubling = herd_candidates(
        Rbf(problem.options.bandwidth),
        *_tensors(problem, labels),
        problem.n,
        seed=problem.seed,
        map_blocks=problem.map_blocks,
        early_stopping=problem.options.early_stopping,
        progress=problem.progress,
        **among,
    )
    return herded, {"candidates": asdict(doubling), **facts}


def _tensors(problem: Problem, labels: np.ndarray) -> tuple[torch.Tensor, Clusters]:
    """The points that are held, and the clusters of queries."""
    pool, queries = problem.tensor(problem.finder.held.points), problem.tensor(problem.queries)
    return pool, Clusters(queries, torch.from_numpy(labels).to(pool.device))


def runs_on(pool: torch.Tensor) -> bool:
    """Whether the kernels of herding/gpu.py can be used."""
    return pool.is_cuda and find_spec("triton") is not None


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
            from crumb.options import positive

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
