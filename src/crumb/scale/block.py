"""Some rows of the pool as rules see them. No more is computed than a rule asks for.

Shapes: b rows of a block, d columns of the selection space.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from crumb.rng import row_numbers

Some: TypeAlias = "np.ndarray | None"  # places in the block, rising; None: all


class Block:
    """``points_of`` and ``codes_of`` give the points and the classes of some of the rows."""

    def __init__(
        self,
        ids: np.ndarray,
        seed: int,
        points_of: Callable[[Some], np.ndarray],
        codes_of: Callable[[Some], np.ndarray] | None = None,
    ):
        self.ids = ids  # (b,) row numbers in the pool
        self.numbers = row_numbers(ids, seed, "rows")  # (b,) the random number of each row
        self._points_of, self._codes_of = points_of, codes_of
        self._known = np.empty(0, dtype=np.int64), np.empty((0, 0))  # rows and their points

    @classmethod
    def of(cls, points: np.ndarray, codes: np.ndarray | None, ids: np.ndarray, seed: int) -> Block:
        """A block that is in memory already."""
        codes_of = None if codes is None else partial(_taken, codes)
        return cls(ids, seed, partial(_taken, points), codes_of)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def points(self) -> np.ndarray:
        """(b, d) of all rows."""
        return self._points_of(None)

    @cached_property
    def codes(self) -> np.ndarray:
        """(b,) of all rows."""
        assert self._codes_of is not None
        return self._codes_of(None)

    def some_points(self, rows: np.ndarray) -> np.ndarray:
        """Of rows in rising order; computed once where later rows are among earlier ones."""
        if "points" in vars(self):
            return self.points[rows]
        known, points = self._known
        places = np.searchsorted(known, rows)
        if not len(known) or not np.array_equal(known.take(places, mode="clip"), rows):
            self._known = rows, self._points_of(rows)
            return self._known[1]
        return points.T.take(places, axis=1).T  # column by column, as they were computed

    def some_codes(self, rows: np.ndarray) -> np.ndarray | None:
        if "codes" in vars(self):
            return self.codes[rows]
        return None if self._codes_of is None else self._codes_of(rows)


def _taken(values: np.ndarray, rows: Some) -> np.ndarray:
    return values if rows is None else values[rows]
