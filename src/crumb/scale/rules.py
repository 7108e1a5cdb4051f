"""Which rows of a pool are worth keeping, row by row and without knowing the others.

A rule has bins. It puts rows into them with a key each, and every bin keeps the rows with the lowest keys: the nearest
ones, where the key is a distance, or a random draw, where it is a random number that belongs to the row. Both can be
found shard by shard and joined. ``limits`` are the keys above which a bin is known to be full.

Shapes: K clusters, b rows of a block, S strata, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crumb.scale.closeness import Closeness, squared_distances
from crumb.strata import ELSEWHERE, STRATA

SURE = 30  # rows of a sample from which the number in the pool is foretold …
ROOM_TO_SPARE = 2.0  # … within this factor

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # bins, keys, rows of the block


@dataclass
class Look:
    """A block of the pool as the rules see it."""

    points: np.ndarray  # (b, d)
    ids: np.ndarray  # (b,) row numbers in the whole pool
    draws: np.ndarray  # (b,) a random number in [0, 1) for each row, a function of its number and the seed alone
    codes: np.ndarray | None  # (b,) classes
    centroids: np.ndarray
    measure: Closeness | None

    @cached_property
    def distance(self) -> np.ndarray:
        """(K, b) squared, to the centroids."""
        return squared_distances(self.centroids, self.points)

    @cached_property
    def closeness(self) -> np.ndarray:
        return self.distance if self.measure is None else self.measure(self.points)


class Rule(ABC):
    n_bins: int

    @abstractmethod
    def caps(self, counts: np.ndarray) -> np.ndarray:
        """How many rows each bin may still need, when so many have been counted in it; never more than before."""

    @abstractmethod
    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        """The rows of a block that are below the limits; ``counts`` are added to where ``caps`` goes by them."""

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        """What a uniform sample of a pool of so many rows tells beforehand: without it the first shards would send far
        more rows than are wanted."""
        return np.full(self.n_bins, np.inf)


class NearestRows(Rule):
    """Rules that keep the nearest rows: as many of a sample are at most as near."""

    n: int  # rows a bin

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.full(self.n_bins, self.n)

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        limits = np.full(self.n_bins, np.inf)
        for bins, keys, _ in self.find(sample, limits, np.zeros(self.n_bins, dtype=np.int64)):
            if len(keys) >= self.n:
                # Some room: the same distance, computed in another block, may differ in its last digits.
                limits[bins[0]] = np.partition(keys, self.n - 1)[self.n - 1] * 1.0001 + 1e-6
        return limits


class Everything(Rule):
    """All rows: where the whole pool has room among the candidates."""

    n_bins = 1

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.array([np.iinfo(np.int64).max])

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        yield np.zeros(len(look.ids), dtype=np.int64), np.zeros(len(look.ids)), np.arange(len(look.ids))


class Nearest(NearestRows):
    """The n rows nearest to each centroid."""

    def __init__(self, n_clusters: int, n: int):
        self.n_bins, self.n = n_clusters, n

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        for k in range(self.n_bins):
            rows = _lowest(look.distance[k], limits[k], self.n)
            yield np.full(len(rows), k), look.distance[k][rows], rows


class Cells(Rule):
    """n random rows of each cell: of the rows that are nearer to this centroid than to any other.

    ``all_centroids``: where cells exist that nobody asks for; ``used`` are the numbers of those that count.
    """

    def __init__(
        self, n_clusters: int, n: int, all_centroids: np.ndarray | None = None, used: np.ndarray | None = None
    ):
        self.n_bins, self.n, self.all_centroids, self.used = n_clusters, n, all_centroids, used

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.full(self.n_bins, self.n)

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        cells = self._cells(look)
        rows = np.flatnonzero((cells >= 0) & (look.draws < limits[cells]))
        yield cells[rows], look.draws[rows], rows

    def _cells(self, look: Look) -> np.ndarray:
        if self.all_centroids is None or self.used is None:
            return look.distance.argmin(axis=0)
        numbers = np.full(len(self.all_centroids), -1)
        numbers[self.used] = np.arange(len(self.used))
        return numbers[squared_distances(self.all_centroids, look.points).argmin(axis=0)]


class Numbered(Rule):
    """Rows whose numbers are known beforehand."""

    n_bins = 1

    def __init__(self, ids: np.ndarray):
        self.ids = np.unique(ids)

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.array([len(self.ids)])

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        rows = np.flatnonzero(np.isin(look.ids, self.ids))
        yield np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows)), rows


class RareClasses(NearestRows):
    """Of each class the m rows nearest to each centroid: those that ``min_per_class`` may ask for."""

    def __init__(self, n_clusters: int, n_classes: int, m: int):
        self.n_classes, self.n, self.n_bins = n_classes, m, n_clusters * n_classes

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        assert look.codes is not None
        for k, own in enumerate(limits.reshape(-1, self.n_classes)):
            distance = look.distance[k]
            near = np.flatnonzero(distance < own.max())  # few, once the limits are known
            codes = look.codes[near]
            for code in np.flatnonzero(np.bincount(codes, minlength=self.n_classes)).tolist():
                members = near[codes == code]
                rows = members[_lowest(distance[members], own[code], self.n)]
                yield np.full(len(rows), k * self.n_classes + code), distance[rows], rows


class Strata(Rule):
    """Candidates for herding, drawn as ``strata.draw`` does: equally many from each tenth of the queries' closeness,
    those that an inner stratum lacks from the next one out, and a tenth from elsewhere.

    S + 2 bins a cluster: the strata, the nearest rows beyond them (where the strata are short), and random ones beyond.
    """

    def __init__(self, of_members: list[np.ndarray], count: int):
        levels = np.linspace(0, 1, STRATA + 1)[1:]
        # In the precision of the values: comparing is twice as fast, and the same for counting and for choosing.
        self.edges = np.stack([np.quantile(values, levels).astype(values.dtype) for values in of_members])  # (K, S)
        self.count, self.n_clusters = count, len(of_members)
        self.n_bins = self.n_clusters * (STRATA + 2)

    def caps(self, counts: np.ndarray) -> np.ndarray:
        caps = np.empty((self.n_clusters, STRATA + 2), dtype=np.int64)
        caps[:, :STRATA], nearest = quotas(counts.reshape(self.n_clusters, -1)[:, :STRATA], self.count)
        caps[:, STRATA] = nearest
        caps[:, STRATA + 1] = self.count - _wanted(self.count) + nearest  # the nearest may be among them
        return caps.ravel()

    def find(self, look: Look, limits: np.ndarray, counts: np.ndarray) -> Iterator[Entries]:
        limits, counts = limits.reshape(self.n_clusters, -1), counts.reshape(self.n_clusters, -1)
        drawn = np.flatnonzero(look.draws < limits[:, -1].max())
        for k, edges in enumerate(self.edges):
            first, close = k * (STRATA + 2), look.closeness[k]
            counts[k, :STRATA] += np.diff([np.count_nonzero(close <= edge) for edge in edges], prepend=0)
            lucky = np.flatnonzero(look.draws < limits[k, :STRATA].max())  # few, once the limits are known
            inside = lucky[close[lucky] <= edges[-1]]
            strata = _strata(edges, close[inside])
            wanted = look.draws[inside] < limits[k][strata]
            yield first + strata[wanted], look.draws[inside[wanted]], inside[wanted]
            if limits[k, STRATA] > edges[-1]:
                rows = _lowest(np.where(close > edges[-1], close, np.inf), limits[k, STRATA], self.count)
                yield np.full(len(rows), first + STRATA), close[rows], rows
            beyond = drawn[(close[drawn] > edges[-1]) & (look.draws[drawn] < limits[k, -1])]
            yield np.full(len(beyond), first + STRATA + 1), look.draws[beyond], beyond

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        counts = np.zeros(self.n_bins, dtype=np.int64)
        for _ in self.find(sample, np.zeros(self.n_bins), counts):
            pass
        table = counts.reshape(self.n_clusters, -1)
        table[:, -1] = len(sample.ids) - table[:, :STRATA].sum(axis=1)  # beyond
        sure = table >= SURE
        whole = np.where(sure, table, 0) * (rows / len(sample.ids))
        # Strata of which too little is known count as empty: the next ones out may have to stand in for them.
        quota, nearest = quotas(whole[:, :STRATA].astype(np.int64), self.count)
        wanted = np.column_stack([quota, np.zeros_like(nearest), self.count - _wanted(self.count) + nearest])
        limits = np.where(sure, ROOM_TO_SPARE * wanted / np.maximum(whole, 1), np.inf)
        # Rows beyond are the nearest only where the strata, counted cautiously, fall short.
        _, lacking = quotas((whole[:, :STRATA] / ROOM_TO_SPARE).astype(np.int64), self.count)
        limits[:, STRATA] = np.where(lacking > 0, np.inf, -np.inf)
        return limits.ravel()

    def rows(self, bins: list[np.ndarray], counts: np.ndarray, k: int, count: int) -> np.ndarray:
        """The candidates of cluster k, at most ``count``: positions from ``bins``, which hold each bin's in order."""
        mine = bins[k * (STRATA + 2) : (k + 1) * (STRATA + 2)]
        quota, nearest = quotas(counts.reshape(self.n_clusters, -1)[k : k + 1, :STRATA], count)
        taken = [some[:most] for some, most in zip(mine[:STRATA], quota[0].tolist(), strict=True)]
        near = mine[STRATA][: int(nearest[0])]
        others = mine[-1][~np.isin(mine[-1], near)][: count - _wanted(count)]
        return np.sort(np.concatenate([*taken, near, others]))


def _strata(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """As ``np.searchsorted(edges, values)``: ten comparisons of all values are faster than a search for each."""
    strata = np.zeros(len(values), dtype=np.uint8)
    for edge in edges:
        strata += values > edge
    return strata.astype(np.int64)


def quotas(counts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Of (K, S) rows in the strata, how many to take from each (K, S), and how many from beyond (K,)."""
    wanted, size = _wanted(count), np.zeros(len(counts), dtype=np.int64)
    quota = np.empty(counts.shape, dtype=np.int64)
    for s in range(counts.shape[1]):
        quota[:, s] = round(wanted * (s + 1) / counts.shape[1]) - size
        size += np.minimum(quota[:, s], counts[:, s])
    return quota, wanted - size


def _wanted(count: int) -> int:
    return int(np.ceil(count * (1 - ELSEWHERE)))


def _lowest(values: np.ndarray, limit: float, most: int) -> np.ndarray:
    """Places of the values below the limit; where there are many, of the ``most`` lowest and what equals them."""
    places = np.flatnonzero(values < limit)
    if len(places) > 2 * most:
        below = values[places]
        places = places[below <= np.partition(below, most - 1)[most - 1]]
    return places
