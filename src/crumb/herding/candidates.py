"""Herding among few candidates: the exact kernel, at the price of an approximation. For CPUs.

A context of n rows is chosen well from a few times n candidates, if these lie where the queries
lie. So each cluster takes candidates at the distances from its centroid at which its queries are
(strata.py), and herds among these with the exact kernel. That is enough where the cluster is one
cloud of rows, but says nothing about the rows left out. So a tenth of the clusters tries twice as
many, and half as many again that are the nearest rows of each query (neighbours.py). They go on
doubling until this lowers the MMD² by less than ``ENOUGH``; then all clusters get as many. What
the last doubling brought is reported.

Shapes: K clusters, G of them in step, M candidates of a cluster, n rows chosen, N pool rows, d
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from crumb.herding.clusters import Clusters, means_within
from crumb.herding.greedy import EarlyStopping, Herded, herd
from crumb.herding.kernel import Rbf, norms
from crumb.herding.neighbours import Neighbours
from crumb.herding.objective import CandidateObjective
from crumb.herding.strata import all_inside, rows_at_distances
from crumb.parallel import MapBlocks
from crumb.rng import generator, row_numbers

FIRST = 24  # candidates of a cluster at first, as a multiple of n
ENOUGH = 0.02  # a doubling that lowers the MMD² by less was not needed
TRIAL = 10  # one cluster in ten tries more candidates, and at least two do
BLOCK = 1 << 13  # pool rows a block of the distances
# Clusters that advance in step: threads wait for each other less over few and long operations.
# With many candidates the operations of one cluster are long enough.
GROUP, GROUP_ROWS = 5, 120_000

# From clusters and a number to that many rows of each cluster (or somewhat more or fewer), rising.
Candidates = Callable[[Sequence[int], int], list[np.ndarray]]


@dataclass(frozen=True)
class Doubling:
    """Candidates of each cluster, and how far twice as many lowered the MMD² of the trial."""

    candidates: int  # those taken by distance; neighbours come on top
    gain: float | None  # as a fraction of the MMD²; None: nothing was tried

    @property
    def enough(self) -> bool:
        return self.gain is not None and self.gain < ENOUGH


def herd_candidates(
    kernel: Rbf,
    pool: Tensor,
    clusters: Clusters,
    n: int,
    most: int,
    seed: int,
    map_blocks: MapBlocks = map,
    early_stopping: EarlyStopping | None = None,
    dtype: type = np.float32,
    candidates: Candidates | None = None,
    available: int | None = None,
    first: int | None = None,
) -> tuple[list[Herded], Doubling]:
    """Choose ``n`` ≤ N rows for each cluster of queries, B = 1.

    Each cluster has 24n candidates (or ``first``), or twice as many and so on, but not more than
    ``most`` (24n at least). Running sums are in ``dtype``, of points relative to their cluster;
    all else is in float64. ``candidates`` names the rows where ``pool`` is not the whole pool:
    at most ``available`` for a cluster.
    """
    whole = available is None
    available = len(pool) if available is None else available
    if candidates is None:
        candidates = PoolCandidates(pool, clusters, n, seed, map_blocks)
    herding = _Herding(kernel, pool, clusters, dtype, map_blocks)

    def contexts(which: Sequence[int], count: int) -> dict[int, Herded]:
        found = herding.contexts(which, candidates(which, count), n, early_stopping)
        return dict(zip(which, found, strict=True))

    count, gain = (first := min(first or FIRST * n, available)), None
    with threadpool_limits(1, "blas"):  # threads take clusters, and do not split products
        found = contexts(range(len(clusters)), count)
        trial = _trial(found, seed)
        before = {k: found[k] for k in trial}
        while count < available:
            twice = min(2 * count, available)
            after = contexts(trial, twice)
            gain = _gain(before, after)
            if gain < ENOUGH or twice > most:
                break
            before, count = after, twice
        if count > first:
            found = before | contexts([k for k in found if k not in trial], count)
    if whole and count == len(pool):  # nothing more can be gained
        gain = 0.0
    return [found[k] for k in range(len(clusters))], Doubling(count, gain)


def _trial(found: dict[int, Herded], seed: int) -> list[int]:
    """The clusters that try more candidates, most likely those with much of the total MMD²."""
    mmd2 = np.array([max(float(found[k].mmd2[-1]), 1e-300) for k in range(len(found))])
    size = max(min(2, len(found)), len(found) // TRIAL)
    chances = mmd2 / mmd2.sum()
    return generator(seed, "trial").choice(len(found), size, replace=False, p=chances).tolist()


def _gain(before: dict[int, Herded], after: dict[int, Herded]) -> float:
    """The fraction by which MMD² fell over all clusters, less its standard error.

    Other candidates alone change the MMD² of a cluster by several percent, up or down.
    Early stopping ends contexts at different sizes: they are compared at the smaller one.
    """
    sizes = [min(len(before[k].mmd2), len(after[k].mmd2)) for k in before]
    first, second = (
        np.array([some[k].mmd2[size - 1] for k, size in zip(before, sizes, strict=True)])
        for some in (before, after)
    )
    if not (first > 0).all():
        return 0.0
    each = 1 - second / first
    error = each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return max(0.0, float(1 - second.sum() / first.sum() - error))


class _Herding:
    """Clusters in groups, each thread with a group of its own."""

    def __init__(
        self, kernel: Rbf, pool: Tensor, clusters: Clusters, dtype: type, map_blocks: MapBlocks
    ):
        self.kernel, self.pool, self.dtype, self.map_blocks = kernel, pool, dtype, map_blocks
        # Far from the origin squared distances would lose digits, but not around the centroid.
        self.centroids, self.members = centred(clusters)
        self.within = means_within(kernel, self.members, map_blocks)  # (K,)

    def contexts(
        self,
        which: Sequence[int],
        rows: Sequence[np.ndarray],
        n: int,
        early_stopping: EarlyStopping | None,
    ) -> list[Herded]:
        """Of some clusters, from the candidates of each."""
        size = max(1, min(GROUP, GROUP_ROWS // max(map(len, rows), default=1), len(which) // 2))

        def of_group(start: int) -> list[Herded]:
            some = slice(start, start + size)
            objective = self.objective(which[some], rows[some])
            herded = herd(objective, n, early_stopping=early_stopping)
            return [
                Herded(mine[context.indices], context.mmd2, context.stop_reason)
                for mine, context in zip(rows[some], herded, strict=True)
            ]

        groups = self.map_blocks(of_group, range(0, len(which), size))
        return list(chain.from_iterable(groups))

    def objective(self, some: Sequence[int], rows: Sequence[np.ndarray]) -> CandidateObjective:
        """Of G clusters with the candidates of each."""
        points, cross = [], []
        for k, mine in zip(some, rows, strict=True):
            points.append(self.pool[mine].double() - self.centroids[k])
            cross.append(self.kernel.row_means(points[-1], self.members[k]))
        return CandidateObjective(self.kernel, points, cross, self.within[list(some)], self.dtype)


def centred(clusters: Clusters) -> tuple[Tensor, list[Tensor]]:
    """Centroids (K, d), and the queries of each cluster relative to its centroid, in float64."""
    members = [some.double() for some in clusters.members]
    centroids = torch.stack([some.mean(0) for some in members])
    return centroids, [some - mean for some, mean in zip(members, centroids, strict=True)]


class PoolCandidates:
    """The candidates of clusters in a pool in memory: by distance, and the queries' neighbours."""

    def __init__(
        self, pool: Tensor, clusters: Clusters, n: int, seed: int, map_blocks: MapBlocks = map
    ):
        self.n, self.map_blocks = n, map_blocks
        # The first rows of a random order are taken, so that more candidates include the fewer.
        # The order is that of a pool on disk.
        self.order = np.argsort(row_numbers(np.arange(len(pool)), seed, "rows"))
        centroids, members = centred(clusters)
        self.distance = self._distances(pool, centroids)  # (K, N) squared
        self.of_queries = [norms(some).numpy() for some in members]
        queries, labels = clusters.queries.double().numpy(), clusters.labels.numpy()
        self.near = Neighbours(pool.numpy(), queries, labels, n, seed, map_blocks)

    def _distances(self, pool: Tensor, centroids: Tensor) -> np.ndarray:
        distance = torch.empty(len(centroids), len(pool), dtype=torch.float32)
        size = norms(centroids)[:, None]

        def fill(start: int) -> None:
            rows = pool[start : start + BLOCK].double()
            squared = torch.addmm(size + norms(rows), centroids, rows.T, alpha=-2.0)
            distance[:, start : start + BLOCK] = squared

        list(self.map_blocks(fill, range(0, len(pool), BLOCK)))
        return distance.numpy()

    def __call__(self, which: Sequence[int], count: int) -> list[np.ndarray]:
        if count == len(self.order):
            return [np.arange(count)] * len(which)

        def by_distance(k: int) -> np.ndarray:
            return rows_at_distances(self.distance[k], self.of_queries[k], count, self.order)

        found = dict(zip(which, self.map_blocks(by_distance, which), strict=True))
        beside = neighbours_beside(count, self.n)
        # Where all rows as near as the queries were taken, their neighbours are among them.
        more = [
            k
            for k in which
            if beside and not all_inside(self.distance[k], self.of_queries[k], count)
        ]
        for k, rows in zip(more, self.near(more, beside) if more else [], strict=True):
            found[k] = np.union1d(found[k], rows)
        return list(found.values())


def neighbours_beside(count: int, n: int) -> int:
    """How many neighbours of the queries join ``count`` candidates by distance: none at first."""
    return 0 if count <= FIRST * n else count // 2
