"""Which rows of the pool to keep, row by row, without knowing the others.

A rule has lists. It puts rows into them, each with a key, and every list keeps the rows of lowest
key: the nearest rows where the key is a distance, random rows where it is the row's own random
number. Both can be found shard by shard and joined. A list that is full has a limit: rows with
higher keys need not be looked at.

Shapes: K clusters, b rows of a block, S strata, C classes, T points whose neighbours are wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from crumb.herding.neighbours import (
    ELSEWHERE,
    STRATA,
    below,
    nearest_each,
    squared_distances,
    tile_rows,
)
from crumb.scale.block import Block
from crumb.scale.closeness import Closeness

BEYOND, NEAREST = STRATA, STRATA + 1  # lists of a cluster after its strata
WORTH_PRUNING = 0.5  # fraction of the rows up to which leaving out the others saves time
REACH = 1.001  # times the distance up to which rows are near: more than rounding takes away
SAMPLE_CELLS = 1 << 22  # clusters × rows of a sample, held at once
SAMPLE_PAIRS = 1 << 26  # points × rows of a sample, compared in tiles
SURE = 30  # rows of a sample from which the number in the pool is estimated …
DEVIATIONS = 4.0  # … with this many standard deviations to spare
# Expected candidates of a class, for each row of it that a context must have, with which the
# class needs no list of its own.
COMMON = 100

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # lists, keys, rows of the block


class Rule(ABC):
    n_lists: int
    most: np.ndarray | int  # rows that a list keeps

    def room(self, counts: np.ndarray) -> np.ndarray:
        """``most`` of each list when ``counts`` were found; it may fall when more are found."""
        return np.broadcast_to(self.most, counts.shape)

    @abstractmethod
    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        """The rows of a block whose keys are below the limits."""

    def expected_limits(self, sample: Block, rows: int) -> np.ndarray:
        """What a random sample of a pool of ``rows`` tells about the limits beforehand.

        Without it the first shards would send far more rows than are wanted.
        """
        return np.full(self.n_lists, np.inf)


class NumberedRows(Rule):
    """Rows whose numbers are known beforehand."""

    n_lists = 1

    def __init__(self, ids: np.ndarray):
        self.ids = np.unique(ids)
        self.most = len(self.ids)

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        places = np.searchsorted(block.ids, self.ids)
        rows = places[block.ids.take(places, mode="clip") == self.ids]
        yield np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows)), rows


class RowsOfCells(Rule):
    """n random rows of each of some ``cells``. A cell is the rows nearest to a centroid."""

    def __init__(self, centroids: np.ndarray, n: int, cells: np.ndarray):
        self.centroids, self.most, self.n_lists = centroids, n, len(cells)
        self.lists = np.full(len(centroids), -1)
        self.lists[cells] = np.arange(len(cells))

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        # Here, because it loads torch, which workers need for nothing else.
        from crumb.selection.clustering import nearest_centroid

        rows = np.flatnonzero(block.numbers < limits.max())
        lists = self.lists[nearest_centroid(block.some_points(rows), self.centroids)]
        kept = (lists >= 0) & (block.numbers[rows] < limits[lists])
        yield lists[kept], block.numbers[rows[kept]], rows[kept]


class NearestRows(Rule):
    """The ``counts`` (T,) rows nearest to each of T points, of a random ``fraction`` of all rows.

    ``groups`` (T,) says which points lie together. Rows too far from the centre of a group are not
    compared with its points, where that leaves out most rows. With ``roughly`` a few rows may be
    missing: what a sample tells about their distance is believed.
    """

    most: np.ndarray

    def __init__(
        self,
        points: np.ndarray,
        counts: np.ndarray | int,
        fraction: float = 1.0,
        groups: np.ndarray | None = None,
        roughly: bool = False,
    ):
        self.n_lists, self.fraction, self.roughly = len(points), fraction, roughly
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self.most = np.broadcast_to(np.asarray(counts), (len(points),))
        self.groups = np.zeros(len(points), dtype=np.int64) if groups is None else groups
        sizes = np.bincount(self.groups)[:, None]
        self.centres = np.zeros((len(sizes), points.shape[1]))
        np.add.at(self.centres, self.groups, self.points / sizes[self.groups])
        self.away = np.sqrt(((self.points - self.centres[self.groups]) ** 2).sum(axis=1))

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        if self.fraction == 1.0:
            rows, points = np.arange(len(block)), block.points
        else:
            rows = np.flatnonzero(block.numbers < self.fraction)
            points = block.some_points(rows)
        unknown = limits == np.inf
        limits = limits.copy()
        limits[unknown] = _nth(points, self.points[unknown], self.most[unknown])
        for some, near in self._within_reach(points, limits):
            k, places, distance = below(self.points[some], points[near], limits[some])
            yield some[k], distance, rows[near[places]]

    def _within_reach(
        self, points: np.ndarray, limits: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of the T points, and the rows that could be near them (triangle inequality)."""
        together = np.ones(self.n_lists, dtype=bool)
        if len(self.centres) > 1:
            reach = np.full(len(self.centres), -np.inf)
            np.maximum.at(reach, self.groups, np.sqrt(limits.clip(0.0)) + self.away)
            rough = squared_distances(self.centres.astype(points.dtype), points)
            for k, inside in enumerate(rough <= (REACH * reach[:, None]) ** 2):
                if inside.mean() < WORTH_PRUNING:
                    some = np.flatnonzero(self.groups == k)
                    together[some] = False
                    yield some, np.flatnonzero(inside)
        if together.any():
            yield np.flatnonzero(together), np.arange(len(points))

    def expected_limits(self, sample: Block, rows: int) -> np.ndarray:
        # The nearest rows of the fraction are nearer than those of a sample a quarter as large.
        size = int(min(rows * self.fraction / 4, SAMPLE_PAIRS / self.n_lists))
        points, counts = sample.points[:size], self.most
        if self.roughly:
            expected = counts * (len(points) / (rows * self.fraction))  # of them in the sample
            spare = DEVIATIONS * (1.0 + np.sqrt(expected))
            counts = np.minimum(counts, np.ceil(expected + spare).astype(np.int64))
        return _nth(points, self.points, counts)


class Strata(Rule):
    """Candidates for herding, as ``rows_at_distances`` (herding/) takes them in memory.

    Equally many come from each tenth of the queries' closeness to their cluster. What an inner
    stratum lacks comes from the next one out, and a tenth from beyond. Each cluster has S + 2
    lists: the strata, random rows beyond them, and the nearest rows beyond, where strata are short.
    """

    def __init__(self, measure: Closeness, members: list[np.ndarray], count: int):
        levels = np.linspace(0, 1, STRATA + 1)[1:]
        of_members = measure.of_members(members)
        self.edges = np.stack([np.quantile(values, levels) for values in of_members])  # (K, S)
        self.measure, self.count, self.n_clusters = measure, count, len(members)
        self.n_lists = self.n_clusters * (STRATA + 2)

    def room(self, counts: np.ndarray) -> np.ndarray:
        quota, nearest = quotas(counts.reshape(self.n_clusters, -1)[:, :STRATA], self.count)
        # The nearest rows may be among the random ones beyond.
        beyond = self.count - _inside(self.count) + nearest
        return np.column_stack([quota, beyond, nearest]).ravel()

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        limits = limits.reshape(self.n_clusters, -1)
        by_number, nearest = limits[:, :NEAREST], limits[:, NEAREST]
        wanted = nearest > self.edges[:, -1]  # then all rows count, whatever their number
        reach = np.where(wanted, 1.0, by_number.max(axis=1).clip(0.0, 1.0))  # (K,)
        possible = np.flatnonzero(block.numbers < reach.max())
        block.some_points(possible)
        for clusters, rows in _tiles(reach, block.numbers, possible, self.measure.shares):
            points, numbers = block.some_points(rows), block.numbers[rows]
            close = self.measure(points, clusters)
            strata = self._strata(close, points, clusters, numbers, reach)
            drawn = np.flatnonzero(numbers < by_number[clusters[:, None], strata])
            k, places = np.divmod(drawn, len(rows))
            lists = clusters[k] * (STRATA + 2) + strata[k, places]
            yield lists, numbers[places], rows[places]
            for place, k in enumerate(clusters.tolist()):
                if wanted[k]:
                    beyond = np.flatnonzero(strata[place] == BEYOND)
                    keys, near = self._nearest(close[place, beyond], points[beyond], k, nearest[k])
                    lists = np.full(len(near), k * (STRATA + 2) + NEAREST)
                    yield lists, keys, rows[beyond[near]]

    def _strata(
        self,
        close: np.ndarray,
        points: np.ndarray,
        clusters: np.ndarray,
        numbers: np.ndarray,
        reach: np.ndarray,
    ) -> np.ndarray:
        """(K, b) by ten comparisons, faster than a search for each value.

        Where rounding could decide, the exact closeness does, if the row is within reach.
        """
        room = self.measure.rounding(points).astype(close.dtype)
        least, most = close - room, close + room
        strata, highest = np.zeros(close.shape, dtype=np.int8), np.zeros(close.shape, dtype=np.int8)
        for edge in self.edges[clusters].T.astype(close.dtype)[:, :, None]:
            strata += (least > edge).view(np.int8)
            highest += (most > edge).view(np.int8)
        k, rows = np.divmod(np.flatnonzero(strata != highest), close.shape[1])
        matters = numbers[rows] < reach[clusters[k]]
        k, rows = k[matters], rows[matters]
        exact = self.measure.exactly(points[rows], clusters[k])
        strata[k, rows] = (self.edges[clusters[k]] < exact[:, None]).sum(axis=1)
        return strata

    def _nearest(
        self, close: np.ndarray, points: np.ndarray, cluster: int, limit: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact closeness below the limit, at most about ``count`` of them, and their places."""
        room = self.measure.rounding(points)
        places = np.flatnonzero(close - room < limit)
        if len(places) > 2 * self.count:
            highest = (close + room)[places]
            cut = np.partition(highest, self.count - 1)[self.count - 1]
            places = places[(close - room)[places] <= cut]  # all that could be among the lowest
        return self.measure.exactly(points[places], np.full(len(places), cluster)), places

    def expected_limits(self, sample: Block, rows: int) -> np.ndarray:
        strata = self._of_sample(sample)
        table = np.stack([np.bincount(mine, minlength=STRATA + 1) for mine in strata])
        sure = table >= SURE
        whole = np.where(sure, table, 0) * (rows / table[0].sum())
        # Estimated low, and as empty where too little is known: the next stratum may stand in.
        cautious = whole / (1.0 + DEVIATIONS / np.sqrt(np.maximum(table, 1)))
        quota, nearest = quotas(cautious[:, :STRATA].astype(np.int64), self.count)
        wanted = np.column_stack([quota, self.count - _inside(self.count) + nearest])
        spare = 1.0 + DEVIATIONS / np.sqrt(np.maximum(np.minimum(table, wanted), 1))
        by_number = np.where(sure, spare * wanted / np.maximum(whole, 1), np.inf)
        return np.column_stack([by_number, np.where(nearest > 0, np.inf, -np.inf)]).ravel()

    def common(self, sample: Block, n_classes: int, m: int) -> np.ndarray:
        """(K, C) classes with enough expected candidates, so that the m nearest need no list."""
        quota, _ = quotas(np.full((1, STRATA), self.count), self.count)
        found = []
        for mine in self._of_sample(sample):
            pairs = mine * n_classes + sample.codes[: len(mine)]
            table = np.bincount(pairs, minlength=(STRATA + 1) * n_classes)
            table = table.reshape(STRATA + 1, n_classes)[:STRATA]
            expected = quota[0] @ (table / np.maximum(table.sum(axis=1, keepdims=True), 1))
            found.append((table.sum(axis=0) >= SURE) & (expected >= COMMON * m))
        return np.stack(found)

    def _of_sample(self, sample: Block) -> np.ndarray:
        points = sample.points[: max(1, SAMPLE_CELLS // self.n_clusters)]
        clusters, reach = np.arange(self.n_clusters), np.ones(self.n_clusters)
        close, numbers = self.measure(points, clusters), np.zeros(len(points))
        return self._strata(close, points, clusters, numbers, reach).astype(np.int64)

    def candidates(
        self, lists: list[np.ndarray], counts: np.ndarray, k: int, count: int
    ) -> np.ndarray:
        """At most ``count`` candidates of cluster k, rising, from the rows in its lists."""
        mine = lists[k * (STRATA + 2) : (k + 1) * (STRATA + 2)]
        quota, nearest = quotas(counts.reshape(self.n_clusters, -1)[k : k + 1, :STRATA], count)
        taken = [some[:most] for some, most in zip(mine, quota[0].tolist(), strict=False)]
        near = mine[NEAREST][: int(nearest[0])]
        others = mine[BEYOND][~np.isin(mine[BEYOND], near)][: count - _inside(count)]
        return np.sort(np.concatenate([*taken, near, others]))


class RareClasses(Rule):
    """The m rows of each class nearest to each centroid, which ``min_per_class`` may ask for.

    ``strata``: candidates that are kept anyway. A class that has many of them gets no list.
    """

    most: int

    def __init__(self, centroids: np.ndarray, n_classes: int, m: int, strata: Strata | None = None):
        self.centroids, self.n_classes, self.most, self.strata = centroids, n_classes, m, strata
        self.n_lists = len(centroids) * n_classes

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        limits = limits.reshape(-1, self.n_classes)
        # A class of which too few rows are known has no limit yet: all its rows are looked at.
        is_open = (limits == np.inf).any(axis=0)
        is_closed = ~is_open & (limits > -np.inf).any(axis=0)
        for classes in (is_open, is_closed):
            most = limits[:, classes].max(axis=1, initial=-np.inf)
            clusters = np.flatnonzero(most > -np.inf)
            if len(clusters):
                rows = np.flatnonzero(classes[block.codes])
                points = block.points if len(rows) == len(block) else block.some_points(rows)
                k, near, distance = below(self.centroids[clusters], points, most[clusters])
                k, near = clusters[k], rows[near]
                codes = block.codes[near]
                kept = distance < limits[k, codes]
                yield (k * self.n_classes + codes)[kept], distance[kept], near[kept]

    def expected_limits(self, sample: Block, rows: int) -> np.ndarray:
        of_class = [sample.points[sample.codes == code] for code in range(self.n_classes)]
        counts = np.full(len(self.centroids), self.most)
        limits = np.stack([_nth(points, self.centroids, counts) for points in of_class], axis=1)
        if self.strata is not None:
            limits[self.strata.common(sample, self.n_classes, self.most)] = -np.inf
        return limits.ravel()


def _tiles(
    reach: np.ndarray, numbers: np.ndarray, possible: np.ndarray, together: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Clusters, and some rows whose numbers are within their reach.

    Clusters of about the same reach (or all ``together``) share the work on a row. Tiles are small
    enough for the cache.
    """
    steps = np.zeros(len(reach)) if together else np.ceil(np.log2(reach.clip(2.0**-16)) / 2)
    for step in np.unique(steps):
        clusters = np.flatnonzero(steps == step)
        rows = possible[numbers[possible] < reach[clusters].max()]
        for start in range(0, max(1, len(rows)), tile_rows(len(clusters))):
            yield clusters, rows[start : start + tile_rows(len(clusters))]


def quotas(counts: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """How many rows to take of the (K, S) in each stratum, and how many from beyond (K,)."""
    inside, size = _inside(count), np.zeros(len(counts), dtype=np.int64)
    quota = np.empty(counts.shape, dtype=np.int64)
    for s in range(counts.shape[1]):
        quota[:, s] = round(inside * (s + 1) / counts.shape[1]) - size
        size += np.minimum(quota[:, s], counts[:, s])
    return quota, inside - size


def _inside(count: int) -> int:
    """Of ``count`` candidates those that should come from the strata."""
    return int(np.ceil(count * (1 - ELSEWHERE)))


def _nth(points: np.ndarray, some: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(T,) limits that leave the ``counts`` nearest rows; ∞ where there are fewer rows."""
    limits = np.full(len(some), np.inf)
    enough = np.flatnonzero(counts <= len(points))
    near = nearest_each(points, some[enough], counts[enough])
    last = np.array([rows[-1] for rows in near], dtype=np.int64)
    gaps = points[last].astype(np.float64) - some[enough]
    # The last one itself is wanted, also where the last digit of its distance is another one.
    limits[enough] = np.nextafter(np.einsum("ij,ij->i", gaps, gaps) * (1.0 + 1e-9), np.inf)
    return limits
