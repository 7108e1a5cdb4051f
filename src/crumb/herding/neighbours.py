"""Which rows are candidates of a cluster of queries. Without torch, which workers do not load.

They are rows at the distances from the centroid at which the queries lie, and the nearest rows of
every query: a context stands for its queries if each of them has rows of its kind in it. Measured:
docs/method.md.

Shapes: T queries, K clusters, N pool rows, b rows of a block, d columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from crumb.machine import MapBlocks
from crumb.rng import generator, row_numbers

# From clusters and a number to that many rows of each cluster (or somewhat more or fewer), rising.
Candidates: TypeAlias = Callable[[Sequence[int], int], list[np.ndarray]]
# Queries, rows and their squared distances.
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]

FIRST = 24  # candidates of a cluster at first, as a multiple of n
STRATA = 10  # parts of the queries' distances from which equally many candidates come
ELSEWHERE = 0.1  # fraction of the candidates that come from the rows farther away
PAIRS = 2_000_000_000  # distances worth computing (seconds); a random part of larger pools is used
TILE_CELLS = 1 << 18  # of a tile of distances: about what a core's cache holds
BLOCK = 1 << 14  # pool rows that are read at once
QUERIES, PARTS = 256, 4  # queries searched for at once, at most; fewer keep four threads busy
FIRST_ROUND, GROWTH = 128, 2  # rows of the first round, and how many times as many in the next


class PoolCandidates:
    """The candidates of clusters in a pool in memory: by distance, and the queries' neighbours."""

    def __init__(
        self,
        pool: np.ndarray,
        queries: np.ndarray,
        labels: np.ndarray,
        n: int,
        seed: int,
        map_blocks: MapBlocks = map,
    ):
        self.pool, self.n, self.map_blocks = pool, n, map_blocks
        # The first rows of a random order are taken, so that more candidates include the fewer.
        # The order is that of a pool on disk.
        self.order = np.argsort(row_numbers(np.arange(len(pool)), seed, "rows"))
        members = [queries[labels == k] for k in range(labels.max() + 1)]
        centroids = np.stack([mine.mean(axis=0) for mine in members])
        gaps = [mine - mean for mine, mean in zip(members, centroids, strict=True)]
        self.of_queries = [np.einsum("ij,ij->i", gap, gap) for gap in gaps]
        self.distance = np.empty((len(members), len(pool)), dtype=np.float32)  # (K, N) squared

        def fill(start: int) -> None:
            rows = pool[start : start + BLOCK].astype(np.float64, copy=False)
            self.distance[:, start : start + BLOCK] = squared_distances(centroids, rows)

        list(map_blocks(fill, range(0, len(pool), BLOCK)))
        self.asking = [queries[some] for some in asking(labels, n, seed)]
        fraction = fraction_searched(len(pool), sum(map(len, self.asking)))
        self.searched = None  # the rows to search for neighbours; None: all
        if fraction < 1.0:
            numbers = row_numbers(np.arange(len(pool)), seed, "neighbours")
            self.searched = np.flatnonzero(numbers < fraction)

    def __call__(self, which: Sequence[int], count: int) -> list[np.ndarray]:
        if count == len(self.order):
            return [np.arange(count)] * len(which)

        def by_distance(k: int) -> np.ndarray:
            return rows_at_distances(self.distance[k], self.of_queries[k], count, self.order)

        found = dict(zip(which, self.map_blocks(by_distance, which), strict=True))
        if not (beside := neighbours_beside(count, self.n)):
            return list(found.values())
        # Where all rows as near as the queries were taken, their neighbours are among them.
        inside = {k: all_inside(self.distance[k], self.of_queries[k], count) for k in which}
        more = [k for k in which if not inside[k]]
        for k, rows in zip(more, self.neighbours(more, beside) if more else [], strict=True):
            found[k] = np.union1d(found[k], rows)
        return list(found.values())

    def neighbours(self, which: Sequence[int], count: int) -> list[np.ndarray]:
        """At most ``count`` rows near the queries of each cluster (or one a query), rising."""
        sizes = [len(self.asking[k]) for k in which]
        each = np.repeat([each_of(count, size) for size in sizes], sizes)
        queries = np.concatenate([self.asking[k] for k in which])
        near = iter(nearest_each(self.pool, queries, each, self.searched, self.map_blocks))
        return [np.unique(np.concatenate(list(islice(near, size)))) for size in sizes]


def neighbours_beside(count: int, n: int) -> int:
    """How many neighbours of the queries join ``count`` candidates by distance: none at first."""
    return 0 if count <= FIRST * n else count // 2


def each_of(count: int, queries: int) -> int:
    """How many neighbours each query of a cluster has, for ``count`` candidates in all."""
    return max(1, count // queries)


def asking(labels: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
    """The queries of each cluster whose neighbours are candidates: at most n of them."""
    rng = generator(seed, "asking")
    members = (np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1))
    return [m if len(m) <= n else np.sort(rng.choice(m, n, replace=False)) for m in members]


def fraction_searched(rows: int, queries: int) -> float:
    """The fraction of a pool that is searched for the neighbours of the queries."""
    return min(1.0, PAIRS / (rows * queries))


def rows_at_distances(
    distance: np.ndarray, of_queries: np.ndarray, count: int, order: np.ndarray
) -> np.ndarray:
    """``count`` rows at the squared distances of the queries from their mean, rising.

    Equally many from each stratum, those first in ``order``. Where a stratum has fewer, the next
    one out gives more, and beyond the last one the nearest rows do. The fraction ``ELSEWHERE``
    comes from the rows beyond.
    """
    queries = _of_others(of_queries)
    edges = np.quantile(queries, np.linspace(0, 1, min(STRATA, len(queries)) + 1)[1:])
    distance = distance[order]
    inside = np.flatnonzero(distance <= edges[-1])
    stratum = np.searchsorted(edges, distance[inside]).astype(np.uint8)
    inside = inside[np.argsort(stratum, kind="stable")]
    ends = np.bincount(stratum, minlength=len(edges)).cumsum()
    wanted = math.ceil(count * (1 - ELSEWHERE))
    taken: list[np.ndarray] = []
    for i, mine in enumerate(np.split(inside, ends[:-1]), 1):
        taken.append(mine[: round(wanted * i / len(edges)) - sum(map(len, taken))])
    nearest = wanted - sum(map(len, taken))
    taken.append(_beyond(distance, edges[-1], nearest, count - wanted))
    missing = count - sum(map(len, taken))
    if missing:  # nothing is left beyond
        left = np.ones(len(order), dtype=bool)
        left[np.concatenate(taken)] = False
        taken.append(np.flatnonzero(left)[:missing])
    return np.sort(order[np.concatenate(taken)])


def all_inside(distance: np.ndarray, of_queries: np.ndarray, count: int) -> bool:
    """Whether ``rows_at_distances`` takes every row no farther than the farthest query."""
    inside = (distance <= _of_others(of_queries).max()).sum()
    return bool(inside <= math.ceil(count * (1 - ELSEWHERE)))


def _of_others(of_queries: np.ndarray) -> np.ndarray:
    """Queries lie closer to their own mean than other rows of the same kind do."""
    return of_queries * len(of_queries) / max(1, len(of_queries) - 1)


def _beyond(distance: np.ndarray, edge: float, nearest: int, others: int) -> np.ndarray:
    """The ``nearest`` rows beyond the edge, and the first ``others`` of the rest."""
    rows = np.flatnonzero(distance > edge)
    if nearest >= len(rows) or not nearest:
        return rows[: nearest + others]
    near = np.argpartition(distance[rows], nearest)[:nearest]
    return np.concatenate([rows[near], np.delete(rows, near)[:others]])


def nearest_each(
    pool: np.ndarray,
    queries: np.ndarray,
    counts: np.ndarray,
    searched: np.ndarray | None = None,
    map_blocks: MapBlocks = map,
) -> list[np.ndarray]:
    """The ``counts`` (T,) rows nearest to each query, nearest first; of equally near ones the
    first. ``searched``: the rows to search, all by default."""
    size = min(QUERIES, max(1, -(-len(queries) // PARTS)))

    def near(first: int) -> list[np.ndarray]:
        some = slice(first, first + size)
        return _nearest(pool, queries[some], counts[some], searched)

    return list(chain.from_iterable(map_blocks(near, range(0, len(queries), size))))


def _nearest(
    pool: np.ndarray, queries: np.ndarray, counts: np.ndarray, searched: np.ndarray | None
) -> list[np.ndarray]:
    """In rounds: the distances found in one round are a bound for the next one."""
    total, limits = len(pool if searched is None else searched), np.full(len(queries), np.inf)
    found: Pairs = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    start, size = 0, max(FIRST_ROUND, 2 * int(counts.min(initial=0)))
    while start < total:
        parts, end = [found], min(total, start + size)
        for first in range(start, end, BLOCK):
            some = slice(first, min(end, first + BLOCK))
            # A slice where all rows are searched: no copy.
            points = pool[some] if searched is None else pool[searched[some]]
            j, places, distance = below(queries, points, limits)
            parts.append((j, places + first, distance))
        found = _lowest(parts, counts, limits)
        start, size = end, size * GROWTH
    rows = found[1] if searched is None else searched[found[1]]
    return np.split(rows, np.searchsorted(found[0], np.arange(1, len(queries))))


def _lowest(parts: list[Pairs], counts: np.ndarray, limits: np.ndarray) -> Pairs:
    """The ``counts`` nearest pairs of each query, in order; ``limits`` come down."""
    j, rows, distance = (np.concatenate(some) for some in zip(*parts, strict=True))
    order = np.argsort(distance, kind="stable")  # equally near rows stay in the order of the pool
    order = order[np.argsort(j[order].astype(np.int16), kind="stable")]  # 16 bits sort by radix
    j, rows, distance = j[order], rows[order], distance[order]
    edges = np.searchsorted(j, np.arange(len(counts) + 1))
    full = np.diff(edges) >= counts
    limits[full] = distance[(edges[:-1] + counts - 1)[full]]
    kept = np.arange(len(j)) - edges[j] < counts[j]
    return j[kept], rows[kept], distance[kept]


def below(some: np.ndarray, points: np.ndarray, limits: np.ndarray) -> Pairs:
    """All pairs whose squared distance is below the limit of their k: k, rows, exact distances.

    A product in float32 finds them, with room for its rounding; differences in float64 decide.
    """
    room = np.float32(1.0 - 4.0 * points.shape[1] * np.finfo(np.float32).eps)
    wanted = np.flatnonzero(limits > 0)  # others have none
    some, limits = some[wanted], limits[wanted]
    with np.errstate(over="ignore", invalid="ignore"):
        rough = some.astype(np.float32)
        # ‖x − c‖² ≥ −2⟨x, c⟩ + room·‖x‖² + room·‖c‖²; the last term is moved to the other side.
        most = (limits - room * np.einsum("ij,ij->i", rough, rough)).astype(np.float32)[:, None]
        left = np.concatenate([-2.0 * rough, np.full((len(rough), 1), room)], axis=1)
        found, step = [], tile_rows(len(some))
        for start in range(0, max(1, len(points)), step):
            tile = points[start : start + step].astype(np.float32, copy=False)
            sizes = np.einsum("ij,ij->i", tile, tile)
            least = left @ np.concatenate([tile.T, sizes[None]])
            if not np.isfinite(sizes).all():
                least[:, ~np.isfinite(sizes)] = -np.inf  # what has overflowed is checked
            k, rows = np.divmod(np.flatnonzero(least < most), max(1, len(tile)))
            gaps = points[start + rows].astype(np.float64, copy=False) - some[k]
            distance = np.einsum("ij,ij->i", gaps, gaps)
            kept = distance < limits[k]
            found.append((wanted[k[kept]], start + rows[kept], distance[kept]))
    k, rows, distance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return k, rows, distance


def squared_distances(some: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(K, d), (b, d) → (K, b)."""
    squared = some @ points.T
    squared *= -2.0
    squared += np.einsum("ij,ij->i", some, some)[:, None]
    squared += np.einsum("ij,ij->i", points, points)
    return np.maximum(squared, 0.0, out=squared)


def tile_rows(queries: int) -> int:
    """Rows of a tile of distances to that many queries."""
    return max(64, TILE_CELLS // max(1, queries))
