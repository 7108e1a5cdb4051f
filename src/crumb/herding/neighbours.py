"""Which rows are candidates of a cluster of queries. Without torch, which workers do not load.

In memory they are the rows nearest to the queries (``PoolCandidates``). In files they are rows at
the distances from the centroid at which the queries lie, and the nearest rows of every query
(``scale/rules.py``). A context stands for its queries if each of them has rows of its kind in it.
Measured: docs/method.md.

Shapes: T queries, K clusters, N pool rows, b rows of a block, d columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from crumb.rng import generator, row_numbers

# From clusters and a number to that many rows of each cluster (or somewhat more or fewer), rising.
Candidates: TypeAlias = Callable[[Sequence[int], int], list[np.ndarray]]

NEAR = 12  # candidates of a cluster in memory at first, as a multiple of n
FIRST = 24  # the same for a pool in files
ELSEWHERE = 0.1  # fraction of the candidates that come from the rows farther away
PAIRS = 2_000_000_000  # distances worth computing (seconds); a random part of larger pools is used
PAIRS_A_ROW = 20_000  # the same for each row of a pass, which takes ten times as long
SAMPLE, LEAST_RANK = 4_096, 8  # rows that tell the reach of a query, and its rank among them
SAME = 1e-6  # of the reach: rows no farther from a query are its equals
LEAST_REACH = 1e-3  # of the mean reach of the cluster's queries
NEAR_CELLS = 1 << 17  # of a tile of float64


class PoolCandidates:
    """The rows of a pool in memory that are nearest to the queries of a cluster.

    Squared distances from a query count in units of its reach, within which lie about as many rows
    as its share of the first candidates. So queries where the pool is thin have candidates, too.
    A tenth are random rows: for queries that the pool does not reach, herding spreads the context.
    """

    def __init__(
        self, pool: np.ndarray, queries: np.ndarray, labels: np.ndarray, n: int, seed: int
    ):
        self.size, self.first, self.rows = len(pool), NEAR * n, np.arange(len(pool))
        self.asking = [queries[some].astype(np.float64) for some in asking(labels, n, seed)]
        passes = n * len(self.asking) + len(queries)
        fraction = fraction_searched(len(pool), sum(map(len, self.asking)), passes)
        numbers = row_numbers(self.rows, seed, "rows")  # the order of a pool on disk
        if fraction < 1.0:
            fraction = max(fraction, 4 * self.first / self.size)  # more than are wanted
            self.rows = np.flatnonzero(numbers < fraction)
            pool, numbers = pool[self.rows], numbers[self.rows]
        self.pool, self.numbers = pool, numbers
        self.norms = np.einsum("ij,ij->i", pool, pool, dtype=np.float64)
        self.order = np.argsort(numbers)
        self.sample = np.sort(self.order[:SAMPLE])

    def __call__(self, which: Sequence[int], count: int) -> list[np.ndarray]:
        if count >= self.size:
            return [np.arange(self.size)] * len(which)
        if count >= len(self.pool):
            return [self.rows] * len(which)
        return [self._lowest(near, count) for near in self._nearness(which)]

    def _nearness(self, which: Sequence[int]) -> np.ndarray:
        """The distance of each row from the queries of each cluster, in units of their reach.

        The pool is read once for all of them.
        """
        asking = [self.asking[k] for k in which]
        reach, equals = map(np.concatenate, zip(*map(self._reach, asking), strict=True))
        queries, ends = np.concatenate(asking), np.cumsum([len(some) for some in asking])
        near, step = np.empty((len(which), len(self.pool))), max(64, NEAR_CELLS // len(queries))
        for start in range(0, len(self.pool), step):
            some = slice(start, start + step)
            distance = self._distance(queries, some, reach)
            for j in np.flatnonzero(equals):
                # Of many equal rows as many come first as of other rows.
                same = distance[j] <= SAME
                distance[j] += np.where(same, self.numbers[some], 1.0) * equals[j]
            for row, mine in zip(near, np.split(distance, ends[:-1]), strict=True):
                mine.min(axis=0, out=row[some])
        return near

    def _lowest(self, near: np.ndarray, count: int) -> np.ndarray:
        """``count`` rows, rising: the nearest ones, and a tenth at random."""
        wanted = count - int(ELSEWHERE * count)
        # Nearly all rows are farther than a bound that some rows of the sample give.
        rank = min(len(self.sample) - 1, int(1.5 * wanted / len(near) * len(self.sample)) + 8)
        some = np.flatnonzero(near <= np.partition(near[self.sample], rank)[rank])
        if len(some) <= wanted:
            some = np.arange(len(near))
        left = np.ones(len(near), dtype=bool)
        left[some[np.argpartition(near[some], wanted)[:wanted]]] = False
        random = self.order[:count]
        left[random[left[random]][: count - wanted]] = False
        return self.rows[~left]

    def _reach(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The reach of each query, squared, and how many shares of rows equal it."""
        distance = self._distance(queries, self.sample)
        share = self.first / len(queries) / len(self.pool) * len(self.sample)
        last = len(self.sample) - 1
        rank = min(max(LEAST_RANK, round(share)), last)
        reach = np.partition(distance, rank, axis=1)[:, rank]
        equals = (distance <= SAME * reach.mean()).sum(axis=1)
        for j in np.flatnonzero(equals > rank):
            reach[j] = np.sort(distance[j])[min(equals[j] + rank, last)]
        reach = np.maximum(reach, LEAST_REACH * reach.mean())
        return np.where(reach > 0, reach, 1.0), np.where(equals > rank, equals / rank, 0.0)

    def _distance(
        self, queries: np.ndarray, some: slice | np.ndarray, reach: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """(T, b) squared, in units of each query's reach: one product, with two more columns."""
        points = self.pool[some]
        right = np.empty((points.shape[1] + 2, len(points)))
        right[:-2], right[-2], right[-1] = points.T, self.norms[some], 1.0
        ones = np.ones((len(queries), 1))
        squares = np.einsum("ij,ij->i", queries, queries)[:, None]
        left = np.concatenate([-2.0 * queries, ones, squares], axis=1)
        left /= np.broadcast_to(reach, len(queries))[:, None]
        return left @ right


def asking(labels: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
    """The queries of each cluster whose neighbours are candidates: at most n of them."""
    rng = generator(seed, "asking")
    members = (np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1))
    return [m if len(m) <= n else np.sort(rng.choice(m, n, replace=False)) for m in members]


def fraction_searched(rows: int, queries: int, passes: int = 0) -> float:
    """The fraction of a pool that is searched for the neighbours of the queries.

    ``passes``: rows and queries of all passes to come. Where they are many, more is worth it.
    """
    return min(1.0, max(PAIRS, PAIRS_A_ROW * passes) / (rows * queries))
