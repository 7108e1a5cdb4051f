"""Candidates for herding: a rule that draws rows where the queries of each cluster lie.

How close a row is to a cluster is its squared distance to the centroid. Plain numpy, in the
precision of the rows: workers need not load torch.

Shapes: K clusters, b rows of a block, S strata, C classes, d columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crumb.herding.neighbours import squared_distances, tile_rows
from crumb.herding.strata import ELSEWHERE, STRATA
from crumb.scale.rules import DEVIATIONS, Block, Entries, Rule

BEYOND, NEAREST = STRATA, STRATA + 1  # lists of a cluster after its strata
SAMPLE_CELLS = 1 << 22  # clusters × rows of a sample, held at once
SURE = 30  # rows of a sample from which the number in the pool is estimated
# Expected candidates of a class, for each row of it that a context must have, with which the
# class needs no list of its own.
COMMON = 100


class Distance:
    """Squared distance to the centroids."""

    def __init__(self, centroids: np.ndarray):
        self.centroids = np.ascontiguousarray(centroids, dtype=np.float64)
        self.size = float(_squares(self.centroids).max())

    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b, d) → (K, b), for some clusters by number."""
        return squared_distances(self.centroids[clusters].astype(points.dtype), points)

    def rounding(self, points: np.ndarray) -> np.ndarray:
        """(b,) how far two computations may differ: products for few rows round differently."""
        kind = points.dtype.type
        relative = kind(4.0 * points.shape[1] * np.finfo(points.dtype).eps)
        return relative * (_squares(points) + kind(self.size))

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b,) of each row to a cluster of its own: the same digits whatever rows are there."""
        centroids, total = self.centroids[clusters], np.zeros(len(points))
        for j in range(points.shape[1]):  # by column: no digit depends on the shapes
            gap = points[:, j].astype(np.float64) - centroids[:, j]
            total += gap * gap
        return total


class Strata(Rule):
    """Candidates for herding, as ``rows_at_distances`` (herding/strata.py) takes them in memory.

    Equally many come from each tenth of the queries' closeness to their cluster. What an inner
    stratum lacks comes from the next one out, and a tenth from beyond. Each cluster has S + 2
    lists: the strata, random rows beyond them, and the nearest rows beyond, where strata are short.
    """

    def __init__(self, measure: Distance, members: list[np.ndarray], count: int):
        levels = np.linspace(0, 1, STRATA + 1)[1:]
        gaps = [((some - some.mean(axis=0)) ** 2).sum(axis=1) for some in members]
        # Queries lie closer to their own mean than other rows of the same kind do.
        gaps = [some * len(some) / max(1, len(some) - 1) for some in gaps]
        self.edges = np.stack([np.quantile(some, levels) for some in gaps])  # (K, S)
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
        for clusters, rows in _tiles(reach, block.numbers, possible):
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


def _tiles(
    reach: np.ndarray, numbers: np.ndarray, possible: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Clusters of about the same reach, and some rows whose numbers are within it.

    Tiles are small enough for the cache.
    """
    steps = np.ceil(np.log2(reach.clip(2.0**-16)) / 2)
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


def _squares(points: np.ndarray) -> np.ndarray:
    """‖x‖² of each row."""
    return np.einsum("ij,ij->i", points, points)
