"""Which rows of the pool to keep, row by row, without knowing the others.

A rule has lists. It puts rows into them, each with a key, and every list keeps the rows of lowest
key: the nearest rows where the key is a distance, random rows where it is the row's own random
number. Both can be found shard by shard and joined. A list that is full has a limit: rows with
higher keys need not be looked at. Plain numpy: workers need not load torch.

Shapes: b rows of a block, d columns, K clusters, S strata, C classes, T points whose neighbours are
wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa
from scipy.spatial.distance import cdist

from crumb.herding.neighbours import ELSEWHERE
from crumb.rng import row_numbers
from crumb.scale.reader import Reader

STRATA = 10  # parts of the queries' distances from which equally many candidates come
TILE_CELLS = 1 << 18  # of a tile of distances: about what a core's cache holds
SAMPLE_PAIRS = 1 << 26  # points × rows of a sample, compared in tiles
DEVIATIONS = 4.0  # standard deviations to spare in what a sample tells about the pool
BEYOND, NEAREST = STRATA, STRATA + 1  # lists of a cluster after its strata
SAMPLE_CELLS = 1 << 22  # clusters × rows of a sample, held at once
SURE = 30  # rows of a sample from which the number in the pool is estimated
# Expected candidates of a class, for each row of it that a context must have, with which the
# class needs no list of its own.
COMMON = 100

# Queries, rows and their squared distances.
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # lists, keys, rows of the block


class Block:
    """Some rows of the pool, of which no more is computed than a rule asks for."""

    def __init__(self, ids: np.ndarray, reader: Reader, table: pa.Table, with_codes: bool):
        self.ids, self.reader, self.table, self.with_codes = ids, reader, table, with_codes
        self.numbers = row_numbers(ids, reader.seed, "rows")  # (b,) the random number of each row
        self._known = np.empty(0, dtype=np.int64), np.empty((0, 0))  # rows and their points

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def points(self) -> np.ndarray:
        """(b, d) of all rows."""
        return self.reader.points(self.table)

    @cached_property
    def codes(self) -> np.ndarray:
        """(b,) of all rows."""
        return self.reader.codes(self.table)

    def some_points(self, rows: np.ndarray) -> np.ndarray:
        """Of rows in rising order; computed once where later rows are among earlier ones."""
        if len(rows) == len(self):
            return self.points
        if "points" in vars(self):
            return self.points[rows]
        known, points = self._known
        places = np.searchsorted(known, rows)
        if not len(known) or not np.array_equal(known.take(places, mode="clip"), rows):
            self._known = rows, self.reader.points(self.table, rows)
            return self._known[1]
        return points.T.take(places, axis=1).T  # column by column, as they were computed


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
        from crumb.selection.base import nearest_centroid

        rows = np.flatnonzero(block.numbers < limits.max())
        lists = self.lists[nearest_centroid(block.some_points(rows), self.centroids)]
        kept = (lists >= 0) & (block.numbers[rows] < limits[lists])
        yield lists[kept], block.numbers[rows[kept]], rows[kept]


class NearestRows(Rule):
    """The ``counts`` (T,) rows nearest to each of T points, of a random ``fraction`` of all rows.

    With ``roughly`` a few may be missing: what a sample tells about their distance is believed.
    """

    most: np.ndarray

    def __init__(
        self,
        points: np.ndarray,
        counts: np.ndarray | int,
        fraction: float = 1.0,
        roughly: bool = False,
    ):
        self.n_lists, self.fraction, self.roughly = len(points), fraction, roughly
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self.most = np.broadcast_to(np.asarray(counts), (len(points),))

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        rows = np.flatnonzero(block.numbers < self.fraction)
        points = block.some_points(rows)
        lists, places, distance = _nearest(points, self.points, self.most, limits)
        yield lists, distance, rows[places]

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
    """Candidates for herding: rows at the distances of the queries from their centroid.

    Equally many come from each tenth of the queries' squared distances to their centroid. What an
    inner stratum lacks comes from the next one out, and a tenth from beyond. Each cluster has S + 2
    lists: the strata, random rows beyond them, and the nearest rows beyond, where strata are short.
    """

    def __init__(self, centroids: np.ndarray, members: list[np.ndarray], count: int):
        levels = np.linspace(0, 1, STRATA + 1)[1:]
        gaps = [((some - some.mean(axis=0)) ** 2).sum(axis=1) for some in members]
        # Queries lie closer to their own mean than other rows of the same kind do.
        gaps = [some * len(some) / max(1, len(some) - 1) for some in gaps]
        self.edges = np.stack([np.quantile(some, levels) for some in gaps])  # (K, S)
        self.centroids = np.ascontiguousarray(centroids, dtype=np.float64)
        self.count, self.n_clusters = count, len(members)
        self.n_lists = self.n_clusters * (STRATA + 2)

    def room(self, counts: np.ndarray) -> np.ndarray:
        return quotas(counts.reshape(self.n_clusters, -1), self.count).ravel()

    def entries(self, block: Block, limits: np.ndarray) -> Iterator[Entries]:
        limits = limits.reshape(self.n_clusters, -1)
        by_number, nearest = limits[:, :NEAREST], limits[:, NEAREST]
        wanted = nearest > self.edges[:, -1]  # then all rows count, whatever their number
        reach = np.where(wanted, 1.0, by_number.max(axis=1).clip(0.0, 1.0))  # (K,)
        possible = np.flatnonzero(block.numbers < reach.max())
        block.some_points(possible)
        for clusters, rows in _tiles(reach, block.numbers, possible):
            points, numbers = block.some_points(rows), block.numbers[rows]
            strata = self._strata(points, numbers, clusters, reach)
            drawn = np.flatnonzero(numbers < by_number[clusters[:, None], strata])
            k, places = np.divmod(drawn, len(rows))
            lists = clusters[k] * (STRATA + 2) + strata[k, places]
            yield lists, numbers[places], rows[places]
            for place in np.flatnonzero(wanted[clusters]):
                k, beyond = clusters[place], np.flatnonzero(strata[place] == BEYOND)
                asked = self.centroids[[k]], np.array([self.count]), nearest[[k]]
                _, near, keys = _nearest(points[beyond], *asked)
                yield np.full(len(near), k * (STRATA + 2) + NEAREST), keys, rows[beyond[near]]

    def _strata(
        self, points: np.ndarray, numbers: np.ndarray, clusters: np.ndarray, reach: np.ndarray
    ) -> np.ndarray:
        """(K, b) by ten comparisons, faster than a search for each value.

        Where rounding could decide, the exact distance does, if the row is within reach.
        """
        close = squared_distances(self.centroids[clusters].astype(points.dtype), points)
        room = rounding(points, self.centroids)
        least, most = close - room, close + room
        strata, highest = np.zeros(close.shape, dtype=np.int8), np.zeros(close.shape, dtype=np.int8)
        for edge in self.edges[clusters].T.astype(close.dtype)[:, :, None]:
            strata += (least > edge).view(np.int8)
            highest += (most > edge).view(np.int8)
        k, rows = np.divmod(np.flatnonzero(strata != highest), close.shape[1])
        matters = numbers[rows] < reach[clusters[k]]
        k, rows = k[matters], rows[matters]
        exact = exact_distances(points[rows], self.centroids[clusters[k]])
        strata[k, rows] = (self.edges[clusters[k]] < exact[:, None]).sum(axis=1)
        return strata

    def expected_limits(self, sample: Block, rows: int) -> np.ndarray:
        strata = self._of_sample(sample)
        table = np.stack([np.bincount(mine, minlength=STRATA + 1) for mine in strata])
        sure = table >= SURE
        whole = np.where(sure, table, 0) * (rows / table[0].sum())
        # Estimated low, and as empty where too little is known: the next stratum may stand in.
        cautious = whole / (1.0 + DEVIATIONS / np.sqrt(np.maximum(table, 1)))
        quota = quotas(cautious.astype(np.int64), self.count)
        wanted, nearest = quota[:, :NEAREST], quota[:, NEAREST]
        spare = 1.0 + DEVIATIONS / np.sqrt(np.maximum(np.minimum(table, wanted), 1))
        by_number = np.where(sure, spare * wanted / np.maximum(whole, 1), np.inf)
        return np.column_stack([by_number, np.where(nearest > 0, np.inf, -np.inf)]).ravel()

    def common(self, sample: Block, n_classes: int, m: int) -> np.ndarray:
        """(K, C) classes with enough expected candidates, so that the m nearest need no list."""
        quota = quotas(np.full((1, STRATA), self.count), self.count)[0, :STRATA]
        found = []
        for mine in self._of_sample(sample):
            pairs = mine * n_classes + sample.codes[: len(mine)]
            table = np.bincount(pairs, minlength=(STRATA + 1) * n_classes)
            table = table.reshape(STRATA + 1, n_classes)[:STRATA]
            expected = quota @ (table / np.maximum(table.sum(axis=1, keepdims=True), 1))
            found.append((table.sum(axis=0) >= SURE) & (expected >= COMMON * m))
        return np.stack(found)

    def _of_sample(self, sample: Block) -> np.ndarray:
        some = slice(max(1, SAMPLE_CELLS // self.n_clusters))
        clusters, reach = np.arange(self.n_clusters), np.ones(self.n_clusters)
        strata = self._strata(sample.points[some], sample.numbers[some], clusters, reach)
        return strata.astype(np.int64)

    def candidates(
        self, lists: list[np.ndarray], counts: np.ndarray, k: int, count: int
    ) -> np.ndarray:
        """At most ``count`` candidates of cluster k, rising, from the rows in its lists."""
        mine = lists[k * (STRATA + 2) : (k + 1) * (STRATA + 2)]
        quota = quotas(counts.reshape(self.n_clusters, -1)[[k]], count)[0]
        *taken, beyond, near = (some[:most] for some, most in zip(mine, quota, strict=True))
        others = beyond[~np.isin(beyond, near)][: quota[BEYOND] - quota[NEAREST]]
        return np.sort(np.concatenate([*taken, near, others]))


def _tiles(
    reach: np.ndarray, numbers: np.ndarray, possible: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Clusters of about the same reach, and some rows within it: few enough for the cache."""
    steps = np.ceil(np.log2(reach.clip(2.0**-16)) / 2)
    for step in np.unique(steps):
        clusters = np.flatnonzero(steps == step)
        rows = possible[numbers[possible] < reach[clusters].max()]
        for start in range(0, max(1, len(rows)), tile_rows(len(clusters))):
            yield clusters, rows[start : start + tile_rows(len(clusters))]


def quotas(counts: np.ndarray, count: int) -> np.ndarray:
    """(K, S + 2) rows to keep in each list of a cluster that has ``counts`` rows in its strata."""
    inside, size = int(np.ceil(count * (1 - ELSEWHERE))), np.zeros(len(counts), dtype=np.int64)
    quota = np.empty((len(counts), STRATA + 2), dtype=np.int64)
    for s in range(STRATA):
        quota[:, s] = round(inside * (s + 1) / STRATA) - size
        size += np.minimum(quota[:, s], counts[:, s])
    quota[:, NEAREST] = inside - size
    quota[:, BEYOND] = count - size  # the nearest rows may be among the random ones
    return quota


def rounding(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """(b,) how far two products for distances may differ: for few rows they round differently."""
    kind = points.dtype.type
    relative = kind(4.0 * points.shape[1] * np.finfo(kind).eps)
    farthest = np.einsum("ij,ij->i", centroids, centroids).max()
    return relative * (np.einsum("ij,ij->i", points, points) + kind(farthest))


def exact_distances(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """(b,) squared, of each row to a centroid of its own."""
    total = np.zeros(len(points))
    for j in range(points.shape[1]):  # by column: no digit depends on the shapes
        gap = points[:, j].astype(np.float64) - centroids[:, j]
        total += gap * gap
    return total


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
                points = block.some_points(rows)
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


def _nearest(points: np.ndarray, some: np.ndarray, counts: np.ndarray, limits: np.ndarray) -> Pairs:
    """The pairs below the limits; where one is not known yet, the ``counts`` nearest."""
    unknown, limits = limits == np.inf, limits.copy()
    limits[unknown] = _nth(points, some[unknown], counts[unknown])
    return below(some, points, limits)


def _nth(points: np.ndarray, some: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(T,) limits that leave the ``counts`` nearest rows; ∞ where there are fewer rows."""
    limits, step = np.full(len(some), np.inf), max(1, TILE_CELLS // max(1, len(points)))
    enough = np.flatnonzero(counts <= len(points))
    for start in range(0, len(enough), step):
        these = enough[start : start + step]
        for one, distance in zip(these, cdist(some[these], points, "sqeuclidean"), strict=True):
            limits[one] = np.partition(distance, counts[one] - 1)[counts[one] - 1]
    # The last one itself is wanted, also where the last digit of its distance is another one.
    return np.nextafter(limits * (1.0 + 1e-9), np.inf)


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
