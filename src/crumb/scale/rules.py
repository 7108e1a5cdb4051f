"""Which rows of the pool to keep, row by row, without knowing the others.

A rule has lists. It puts rows into them, each with a key, and every list keeps the rows of lowest
key: the nearest rows where the key is a distance, random rows where it is the row's own random
number. Both can be found shard by shard and joined. A list that is full has a limit: rows with
higher keys need not be looked at. ``strata.py`` has the rule for herding.

Shapes: b rows of a block, d columns, K clusters, C classes, T points whose neighbours are wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from crumb.herding.neighbours import below, nearest_each
from crumb.rng import row_numbers
from crumb.scale.reader import Reader

if TYPE_CHECKING:
    from crumb.scale.strata import Strata

SAMPLE_PAIRS = 1 << 26  # points × rows of a sample, compared in tiles
DEVIATIONS = 4.0  # standard deviations to spare in what a sample tells about the pool

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
        if "points" in vars(self):
            return self.points[rows]
        known, points = self._known
        places = np.searchsorted(known, rows)
        if not len(known) or not np.array_equal(known.take(places, mode="clip"), rows):
            self._known = rows, self.reader.points(self.table, rows)
            return self._known[1]
        return points.T.take(places, axis=1).T  # column by column, as they were computed

    def some_codes(self, rows: np.ndarray) -> np.ndarray | None:
        if "codes" in vars(self):
            return self.codes[rows]
        return self.reader.codes(self.table, rows) if self.with_codes else None


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
        if self.fraction == 1.0:
            rows, points = np.arange(len(block)), block.points
        else:
            rows = np.flatnonzero(block.numbers < self.fraction)
            points = block.some_points(rows)
        unknown = limits == np.inf
        limits = limits.copy()
        limits[unknown] = _nth(points, self.points[unknown], self.most[unknown])
        lists, places, distance = below(self.points, points, limits)
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
