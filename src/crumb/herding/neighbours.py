"""Candidates of a cluster: the nearest rows of every query, equally many for each.

A context stands for its queries if each of them has rows of its kind in it. Measured:
docs/method.md.

Shapes: T queries, N pool rows, b rows of a block, d columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from crumb.parallel import MapBlocks
from crumb.rng import generator, row_numbers

# Queries, rows and their squared distances.
Pairs: TypeAlias = "tuple[np.ndarray, np.ndarray, np.ndarray]"
PAIRS = 2_000_000_000  # distances worth computing (seconds); a random part of larger pools is used
TILE_CELLS = 1 << 18  # of a tile of distances: about what a core's cache holds
BLOCK = 1 << 14  # pool rows that are read at once
QUERIES, PARTS = 256, 4  # queries searched for at once, at most; fewer keep four threads busy
FIRST_ROUND, GROWTH = 128, 2  # rows of the first round, and how many times as many in the next


def each_of(count: int, queries: int) -> int:
    """How many neighbours each query of a cluster has, for ``count`` candidates in all."""
    return max(1, count // queries)


def asking(labels: np.ndarray, n: int, seed: int) -> list[np.ndarray]:
    """The queries of each cluster whose neighbours are candidates: at most n of them."""
    rng = generator(seed, "asking")
    members = [np.flatnonzero(labels == k) for k in range(int(labels.max()) + 1)]
    return [
        mine if len(mine) <= n else np.sort(rng.choice(mine, n, replace=False)) for mine in members
    ]


def fraction_searched(rows: int, queries: int) -> float:
    """The fraction of a pool that is searched for the neighbours of the queries."""
    return min(1.0, PAIRS / (rows * queries))


class Neighbours:
    """The candidates of clusters in a pool in memory."""

    def __init__(
        self,
        pool: np.ndarray,
        queries: np.ndarray,
        labels: np.ndarray,
        n: int,
        seed: int,
        map_blocks: MapBlocks = map,
    ):
        self.queries = [queries[some] for some in asking(labels, n, seed)]
        self.pool, self.map_blocks = pool, map_blocks
        fraction = fraction_searched(len(pool), sum(map(len, self.queries)))
        self.searched = None  # the rows to search; None: all
        if fraction < 1.0:
            numbers = row_numbers(np.arange(len(pool)), seed, "neighbours")
            self.searched = np.flatnonzero(numbers < fraction)

    def __call__(self, clusters: Sequence[int], count: int) -> list[np.ndarray]:
        """At most ``count`` rows for each of some clusters (or one a query), rising."""
        sizes = [len(self.queries[k]) for k in clusters]
        each = np.repeat([each_of(count, size) for size in sizes], sizes)
        queries = np.concatenate([self.queries[k] for k in clusters])
        near = iter(nearest_each(self.pool, queries, each, self.searched, self.map_blocks))
        return [np.unique(np.concatenate(list(islice(near, size)))) for size in sizes]


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
    total = len(pool) if searched is None else len(searched)
    limits, found = np.full(len(queries), np.inf), _nothing()
    start, size = 0, max(FIRST_ROUND, 2 * int(counts.min(initial=0)))
    while start < total:
        parts = [found]
        for first in range(start, min(total, start + size), BLOCK):
            some = slice(first, min(total, start + size, first + BLOCK))
            rows = np.arange(some.start, some.stop) if searched is None else searched[some]
            points = pool[some] if searched is None else pool[rows]
            j, places, distance = below(queries, points, limits)
            parts.append((j, rows[places], distance))
        found = _lowest(parts, counts, limits)
        start, size = start + size, size * GROWTH
    return np.split(found[1], np.searchsorted(found[0], np.arange(1, len(queries))))


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


def _nothing() -> Pairs:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)


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
