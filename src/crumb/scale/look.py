"""A block of the pool, of which no more is worked out than somebody asks for.

Shapes: K clusters, b rows of a block, d columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np

from crumb.herding.neighbours import squared_distances

RowNumbers: TypeAlias = "np.ndarray | None"  # None: all


class Rows(Protocol):
    """Some rows of the pool, of which no more is worked out than is asked for."""

    def points(self, rows: RowNumbers) -> np.ndarray:
        """(b, d) in the selection space."""

    def codes(self, rows: RowNumbers) -> np.ndarray | None:
        """(b,) classes, where there are any."""


@dataclass
class Look:
    """A block of the pool as the rules see it."""

    rows: Rows
    ids: np.ndarray  # (b,) row numbers in the whole pool
    draws: (
        np.ndarray
    )  # (b,) a random number in [0, 1) for each row, a function of its number and the seed alone
    centroids: np.ndarray
    _known: tuple[np.ndarray, np.ndarray] = (
        np.empty(0, dtype=np.int64),
        np.empty((0, 0)),
    )  # rows and their points

    @cached_property
    def points(self) -> np.ndarray:
        """(b, d) of all rows; rules that can do with fewer ask for ``some_points``."""
        return self.rows.points(None)

    @cached_property
    def codes(self) -> np.ndarray:
        codes = self.rows.codes(None)
        assert codes is not None
        return codes

    @cached_property
    def distance(self) -> np.ndarray:
        """(K, b) squared, to the centroids, in float64."""
        return squared_distances(self.centroids, self.points.astype(np.float64))

    def some_points(self, rows: np.ndarray) -> np.ndarray:
        """(rows, d) of some rows, rising; worked out once where later rows are among earlier ones."""
        if "points" in vars(self):
            return self.points[rows]
        places = np.searchsorted(self._known[0], rows)
        if not len(self._known[0]) or not np.array_equal(
            self._known[0].take(places, mode="clip"), rows
        ):
            self._known, places = (rows, self.rows.points(rows)), np.arange(len(rows))
        return self._known[1].T.take(places, axis=1).T  # column by column, as they are worked out

    def some_codes(self, rows: np.ndarray) -> np.ndarray | None:
        return self.codes[rows] if "codes" in vars(self) else self.rows.codes(rows)
