"""Which rows of a pool are worth keeping, row by row and without knowing the others.

A rule has bins. It puts rows into them with a key each, and every bin keeps the rows with the lowest keys: the nearest
ones, where the key is a distance, or a random draw, where it is a random number that belongs to the row. Both can be
found shard by shard and joined. ``limits`` are the keys above which a bin is known to be full.

Shapes: K clusters, b rows of a block, S strata, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from crumb.herding.neighbours import below, nearest_each, squared_distances, tile_rows
from crumb.herding.strata import ELSEWHERE, STRATA
from crumb.scale.closeness import Closeness
from crumb.scale.look import Look

WORTH_PRUNING = 0.5  # share of the rows up to which leaving out the others saves more than it costs
REACH = 1.001  # times the distance up to which rows are near: more than rounding can take away
SAMPLE_CELLS, SAMPLE_PAIRS = (
    1 << 22,
    1 << 26,
)  # clusters × rows of a sample, held at once; and looked at, in tiles
SURE = 30  # rows of a sample from which the number in the pool is foretold …
DEVIATIONS = 4.0  # … with so many standard deviations to spare
COMMON = (
    100  # candidates of a class, for each that may be asked for, with which it needs no watching
)

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # bins, keys, rows of the block


class Rule(ABC):
    n_bins: int

    @abstractmethod
    def caps(self, counts: np.ndarray) -> np.ndarray:
        """How many rows each bin may need, when so many were found for it; never more when more were found."""

    @abstractmethod
    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        """The rows of a block whose keys are below the limits."""

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        """What a uniform sample of a pool of so many rows tells beforehand: without it the first shards would send far
        more rows than are wanted."""
        return np.full(self.n_bins, np.inf)


class Everything(Rule):
    """All rows: where the points of the whole pool are held."""

    n_bins = 1

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.array([np.iinfo(np.int64).max])

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        yield (
            np.zeros(len(look.ids), dtype=np.int64),
            np.zeros(len(look.ids)),
            np.arange(len(look.ids)),
        )


class Nearest(Rule):
    """The ``counts`` (T,) rows nearest to each of some points, of a random ``share`` of all rows.

    ``groups`` (T,): points that lie together, each with its centroid. Rows too far from a centroid are then not held
    against the points of its group, where that leaves out most of them. Where a few rows less do no harm, not
    ``all_of_them`` need be found: what a sample tells of their distance is believed.
    """

    def __init__(
        self,
        points: np.ndarray,
        counts: np.ndarray | int,
        share: float = 1.0,
        groups: np.ndarray | None = None,
        all_of_them: bool = True,
    ):
        self.n_bins, self.share, self.all_of_them = len(points), share, all_of_them
        self.points = np.ascontiguousarray(points, dtype=np.float64)
        self.counts = np.broadcast_to(np.asarray(counts), (len(points),))
        self.groups = np.zeros(len(points), dtype=np.int64) if groups is None else groups
        sizes = np.bincount(self.groups)[:, None]
        self.centroids = np.zeros((len(sizes), points.shape[1]))
        np.add.at(self.centroids, self.groups, self.points / sizes[self.groups])
        self.away = np.sqrt(((self.points - self.centroids[self.groups]) ** 2).sum(axis=1))

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return self.counts

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        rows = (
            np.arange(len(look.ids))
            if self.share == 1.0
            else np.flatnonzero(look.draws < self.share)
        )
        points = look.points if self.share == 1.0 else look.some_points(rows)
        limits = np.minimum(limits, self._of_themselves(points, limits == np.inf))
        for some, near in self._who_looks_at_what(points, limits):
            k, places, distance = below(self.points[some], points[near], limits[some])
            yield some[k], distance, rows[near[places]]

    def _of_themselves(self, points: np.ndarray, unknown: np.ndarray) -> np.ndarray:
        """(T,) limits, for points of which nothing is known, that leave the nearest of these rows."""
        limits = np.full(self.n_bins, np.inf)
        limits[unknown] = _nth(points, self.points[unknown], self.counts[unknown])
        return limits

    def _who_looks_at_what(
        self, points: np.ndarray, limits: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of the points that ask, and the rows that could be near them: within reach of their centroid."""
        together = np.ones(self.n_bins, dtype=bool)
        if len(self.centroids) > 1:
            reach = np.full(len(self.centroids), -np.inf)
            np.maximum.at(reach, self.groups, np.sqrt(limits.clip(0.0)) + self.away)
            rough = squared_distances(self.centroids.astype(points.dtype), points)
            for k, inside in enumerate(rough <= (REACH * reach[:, None]) ** 2):
                if inside.mean() < WORTH_PRUNING:
                    some = np.flatnonzero(self.groups == k)
                    together[some] = False
                    yield some, np.flatnonzero(inside)
        if together.any():
            yield np.flatnonzero(together), np.arange(len(points))

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        # Some rows of the share are nearer than as many of a sample a quarter as large.
        points = sample.points[: int(min(rows * self.share / 4, SAMPLE_PAIRS / self.n_bins))]
        if self.all_of_them:
            return _nth(points, self.points, self.counts)
        among = self.counts * (
            len(points) / (rows * self.share)
        )  # so many of them are expected in the sample
        spare = DEVIATIONS * (1.0 + np.sqrt(among))
        return _nth(
            points, self.points, np.minimum(self.counts, np.ceil(among + spare).astype(np.int64))
        )


class Cells(Rule):
    """n random rows of each cell: of the rows that are nearer to this centroid than to any other.

    ``all_centroids``: where cells exist that nobody asks for; ``used`` are the numbers of those that count.
    """

    def __init__(
        self,
        n_clusters: int,
        n: int,
        all_centroids: np.ndarray | None = None,
        used: np.ndarray | None = None,
    ):
        self.n_bins, self.n, self.all_centroids, self.used = n_clusters, n, all_centroids, used

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.full(self.n_bins, self.n)

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        cells = self._cells(look)
        rows = np.flatnonzero((cells >= 0) & (look.draws < limits[cells]))
        yield cells[rows], look.draws[rows], rows

    def _cells(self, look: Look) -> np.ndarray:
        if self.all_centroids is None or self.used is None:
            return look.distance.argmin(axis=0)
        numbers = np.full(len(self.all_centroids), -1)
        numbers[self.used] = np.arange(len(self.used))
        return numbers[squared_distances(self.all_centroids, look.points).argmin(axis=0)]


class Anyone(Rule):
    """n random rows of the whole pool."""

    n_bins = 1

    def __init__(self, n: int):
        self.n = n

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.array([self.n])

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        rows = np.flatnonzero(look.draws < limits[0])
        yield np.zeros(len(rows), dtype=np.int64), look.draws[rows], rows

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        return np.array([(self.n + DEVIATIONS * (1.0 + np.sqrt(self.n))) / rows])


class Numbered(Rule):
    """Rows whose numbers are known beforehand."""

    n_bins = 1

    def __init__(self, ids: np.ndarray):
        self.ids = np.unique(ids)

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.array([len(self.ids)])

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        rows = np.flatnonzero(np.isin(look.ids, self.ids))
        yield np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows)), rows


class Strata(Rule):
    """Candidates for herding, drawn as ``strata.draw`` does: equally many from each tenth of the queries' closeness,
    those that an inner stratum lacks from the next one out, and a tenth from elsewhere.

    S + 2 bins a cluster: the strata, the nearest rows beyond them (where the strata are short), and random ones beyond.
    """

    def __init__(self, measure: Closeness, members: list[np.ndarray], count: int):
        levels = np.linspace(0, 1, STRATA + 1)[1:]
        of_members = measure.of_members(members)
        self.edges = np.stack([np.quantile(values, levels) for values in of_members])  # (K, S)
        self.measure, self.count, self.n_clusters = measure, count, len(members)
        self.n_bins = self.n_clusters * (STRATA + 2)

    def caps(self, counts: np.ndarray) -> np.ndarray:
        caps = np.empty((self.n_clusters, STRATA + 2), dtype=np.int64)
        caps[:, :STRATA], nearest = quotas(
            counts.reshape(self.n_clusters, -1)[:, :STRATA], self.count
        )
        caps[:, STRATA] = nearest
        caps[:, STRATA + 1] = (
            self.count - _wanted(self.count) + nearest
        )  # the nearest may be among them
        return caps.ravel()

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        limits = limits.reshape(self.n_clusters, -1)
        nearest = (
            limits[:, STRATA] > self.edges[:, -1]
        )  # where the nearest rows beyond are wanted, all rows count
        by_draw = np.delete(limits, STRATA, axis=1)
        reach = np.where(nearest, 1.0, by_draw.max(axis=1).clip(0.0, 1.0))
        near = np.flatnonzero(look.draws < reach.max())
        look.some_points(near)
        for clusters, rows in _who_looks_at_what(reach, look.draws, near, self.measure.shares):
            draws = look.draws[rows]
            points = look.some_points(rows)
            close = self.measure(points, clusters)
            strata = self._strata(close, points, clusters, draws, reach)
            k, found = np.divmod(
                np.flatnonzero(draws < by_draw[clusters[:, None], strata]), len(rows)
            )
            bins = strata[k, found] + (
                strata[k, found] == STRATA
            )  # the rows beyond have the last bin
            yield clusters[k] * (STRATA + 2) + bins, draws[found], rows[found]
            for one in np.flatnonzero(nearest[clusters]):
                beyond = np.flatnonzero(strata[one] == STRATA)
                room = self.measure.rounding(points[beyond])
                near = beyond[
                    _lowest(close[one][beyond], limits[clusters[one], STRATA], self.count, room)
                ]
                keys = self.measure.exactly(points[near], np.full(len(near), clusters[one]))
                yield np.full(len(near), clusters[one] * (STRATA + 2) + STRATA), keys, rows[near]

    def _strata(
        self,
        close: np.ndarray,
        points: np.ndarray,
        clusters: np.ndarray,
        draws: np.ndarray,
        reach: np.ndarray,
    ) -> np.ndarray:
        """(K, b) by ten comparisons, faster than a search for each value; where rounding could decide, exactly, unless
        the row is beyond the reach of the cluster anyway."""
        room = self.measure.rounding(points).astype(close.dtype)
        least, most = close - room, close + room
        strata, highest = np.zeros(close.shape, dtype=np.int8), np.zeros(close.shape, dtype=np.int8)
        for edge in self.edges[clusters].T.astype(close.dtype)[:, :, None]:
            strata += (least > edge).view(np.int8)
            highest += (most > edge).view(np.int8)
        k, rows = np.divmod(np.flatnonzero(strata != highest), close.shape[1])
        matters = draws[rows] < reach[clusters[k]]
        k, rows = k[matters], rows[matters]
        exact = self.measure.exactly(points[rows], clusters[k])
        strata[k, rows] = (self.edges[clusters[k]] < exact[:, None]).sum(axis=1)
        return strata

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        table = np.stack(
            [np.bincount(mine, minlength=STRATA + 1) for mine in self._of_sample(sample)]
        )
        sure = table >= SURE
        whole = np.where(sure, table, 0) * (rows / table[0].sum())
        # Counted cautiously, and as empty where too little is known: the next ones out may have to stand in for them.
        cautious = whole / (1.0 + DEVIATIONS / np.sqrt(np.maximum(table, 1)))
        quota, nearest = quotas(cautious[:, :STRATA].astype(np.int64), self.count)
        wanted = np.column_stack([quota, self.count - _wanted(self.count) + nearest])
        spare = 1.0 + DEVIATIONS / np.sqrt(np.maximum(np.minimum(table, wanted), 1))
        by_draw = np.where(sure, spare * wanted / np.maximum(whole, 1), np.inf)
        return np.insert(by_draw, STRATA, np.where(nearest > 0, np.inf, -np.inf), axis=1).ravel()

    def common(self, sample: Look, n_classes: int, m: int) -> np.ndarray:
        """(K, C) classes of which so many candidates are to be expected that the m nearest need not be watched."""
        quota, _ = quotas(np.full((1, STRATA), self.count), self.count)
        found = []
        for mine in self._of_sample(sample):
            table = np.bincount(
                mine * n_classes + sample.codes[: len(mine)], minlength=(STRATA + 1) * n_classes
            )
            table = table.reshape(STRATA + 1, n_classes)[:STRATA]
            expected = quota[0] @ (table / np.maximum(table.sum(axis=1, keepdims=True), 1))
            found.append((table.sum(axis=0) >= SURE) & (expected >= COMMON * m))
        return np.stack(found)

    def _of_sample(self, sample: Look) -> np.ndarray:
        points, everyone = (
            sample.points[: max(1, SAMPLE_CELLS // self.n_clusters)],
            np.arange(self.n_clusters),
        )
        close, draws = self.measure(points, everyone), np.zeros(len(points))
        return self._strata(close, points, everyone, draws, np.ones(self.n_clusters)).astype(
            np.int64
        )

    def rows(self, bins: list[np.ndarray], counts: np.ndarray, k: int, count: int) -> np.ndarray:
        """The candidates of cluster k, at most ``count``: positions from ``bins``, which hold each bin's in order."""
        mine = bins[k * (STRATA + 2) : (k + 1) * (STRATA + 2)]
        quota, nearest = quotas(counts.reshape(self.n_clusters, -1)[k : k + 1, :STRATA], count)
        taken = [some[:most] for some, most in zip(mine[:STRATA], quota[0].tolist(), strict=True)]
        near = mine[STRATA][: int(nearest[0])]
        others = mine[-1][~np.isin(mine[-1], near)][: count - _wanted(count)]
        return np.sort(np.concatenate([*taken, near, others]))


class RareClasses(Rule):
    """Of each class the m rows nearest to each centroid: those that ``min_per_class`` may ask for.

    ``strata``: candidates that are kept anyway; a class of which they have many is not watched.
    """

    def __init__(self, n_clusters: int, n_classes: int, m: int, strata: Strata | None = None):
        self.n_classes, self.n, self.n_bins, self.strata = (
            n_classes,
            m,
            n_clusters * n_classes,
            strata,
        )

    def caps(self, counts: np.ndarray) -> np.ndarray:
        return np.full(self.n_bins, self.n)

    def find(self, look: Look, limits: np.ndarray) -> Iterator[Entries]:
        limits = limits.reshape(-1, self.n_classes)
        # A class of which too few rows have been seen has no limit yet: its rows, and only they, are all looked at.
        is_open = (limits == np.inf).any(axis=0)
        is_closed = ~is_open & (limits > -np.inf).any(axis=0)
        for classes in (is_open, is_closed):
            most = limits[:, classes].max(axis=1, initial=-np.inf)
            clusters = np.flatnonzero(most > -np.inf)
            if len(clusters):
                rows = np.flatnonzero(classes[look.codes])
                points = look.points if len(rows) == len(look.ids) else look.some_points(rows)
                k, near, distance = below(look.centroids[clusters], points, most[clusters])
                k, near = clusters[k], rows[near]
                codes = look.codes[near]
                kept = distance < limits[k, codes]
                yield (k * self.n_classes + codes)[kept], distance[kept], near[kept]

    def expected_limits(self, sample: Look, rows: int) -> np.ndarray:
        of_class = [sample.points[sample.codes == code] for code in range(self.n_classes)]
        counts = np.full(len(sample.centroids), self.n)
        limits = np.stack([_nth(points, sample.centroids, counts) for points in of_class], axis=1)
        if self.strata is not None:
            limits[self.strata.common(sample, self.n_classes, self.n)] = -np.inf
        return limits.ravel()


def _who_looks_at_what(
    reach: np.ndarray, draws: np.ndarray, near: np.ndarray, together: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Clusters, and some rows that they have to look at: those whose draw is within reach.

    Clusters that reach about as far look together (or all), so that what they share is computed once; at so many rows
    at a time that what is computed stays in the cache.
    """
    steps = np.zeros(len(reach)) if together else np.ceil(np.log2(reach.clip(2.0**-16)) / 2)
    for step in np.unique(steps):
        clusters = np.flatnonzero(steps == step)
        rows = near[draws[near] < reach[clusters].max()]
        for start in range(0, max(1, len(rows)), tile_rows(len(clusters))):
            yield clusters, rows[start : start + tile_rows(len(clusters))]


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


def _nth(points: np.ndarray, asking: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(T,) limits that leave the ``counts`` nearest of some rows; none where there are fewer."""
    limits = np.full(len(asking), np.inf)
    enough = np.flatnonzero(counts <= len(points))
    near = nearest_each(points, asking[enough], counts[enough])
    last = np.array([rows[-1] for rows in near], dtype=np.int64)
    gaps = points[last].astype(np.float64) - asking[enough]
    # The last one itself is wanted, also where its distance, of points laid out otherwise, has another last digit.
    limits[enough] = np.nextafter(np.einsum("ij,ij->i", gaps, gaps) * (1.0 + 1e-9), np.inf)
    return limits


def _lowest(
    values: np.ndarray, limit: float, most: int, room: np.ndarray | float = 0.0
) -> np.ndarray:
    """Places of the values below the limit; where there are many, of the ``most`` lowest and what equals them.

    ``room`` is by how much values may be wrong: what could be among the lowest is.
    """
    least = values - room
    places = np.flatnonzero(least < limit)
    if len(places) > 2 * most:
        cut = np.partition((values + room)[places], most - 1)[most - 1]
        places = places[least[places] <= cut]
    return places
