"""One row at a time: what a fitted estimator makes of a table of one row, without the table.

Encoding takes a table through pandas and scikit-learn, milliseconds whatever its size. Most rows of a stream hold plain
numbers and text, for which there is little to do: a reader does the same to them in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crumb.table.encoder import TableEncoder, _bounded, _text
from crumb.table.pieces import Layout, Piece, Record
from crumb.table.space import MISSING, SelectionSpace

NUMBERS = frozenset({float, int, bool, np.float64, np.int64, np.bool_})
MAYBE_NUMBERS = NUMBERS | {type(None)}
LARGEST_WHOLE = 2**53  # up to here floats tell whole numbers apart


class RowReader:
    """Rows as the model sees them and as points of the selection space; None where a table has to be asked.

    Whatever is not plain (dates, text in the place of numbers, wrong names or lengths) is left to the table, which
    knows what to do with it or says what is wrong.
    """

    def __init__(self, encoder: TableEncoder, space: SelectionSpace, named: bool):
        self._layout = Layout(encoder.columns_, encoder.kinds_) if named else None
        self._names, self._bounds = set(encoder.columns_), encoder.bounds_
        self._point = _Point(space, encoder)
        self._numbers = [i for i, kind in enumerate(encoder.kinds_) if kind == "number"]
        self._others = [(i, kind) for i, kind in enumerate(encoder.kinds_) if kind != "number"]

    @classmethod
    def of(cls, estimator: Any) -> RowReader | None:
        """None where the selection space is of the user's own making."""
        if estimator._space.features is not None:
            return None
        return cls(
            estimator._encoder, estimator._space, isinstance(estimator._pool.rows, pd.DataFrame)
        )

    def __call__(self, row: Any) -> tuple[Piece, np.ndarray] | None:
        """The row, copied, and its point (1, d)."""
        try:
            read = self._array(row) if self._layout is None else self._record(row, self._layout)
        except (TypeError, ValueError, OverflowError, KeyError):  # a table says it better
            return None
        if read is None or not np.isfinite(read[1]).all():
            return None
        return read

    def _array(self, row: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if isinstance(row, (list, tuple)):
            if not MAYBE_NUMBERS.issuperset(map(type, row)):
                return None
            row = np.array(row, dtype=np.float64)
        if (
            not isinstance(row, np.ndarray)
            or row.shape != (len(self._names),)
            or row.dtype.kind not in "fiub"
        ):
            return None
        kept = row.dtype if row.dtype in (np.float32, np.float64) else np.float64
        values = _bounded(row.astype(kept)[None, :], self._bounds)
        return values, self._point(values[0], values[0])

    def _record(self, row: Any, layout: Layout) -> tuple[Record, np.ndarray] | None:
        given = self._in_order(row, layout.columns)
        if given is None:
            return None
        numbers = [given[i] for i in self._numbers]
        if not MAYBE_NUMBERS.issuperset(map(type, numbers)):
            return None
        values: list[Any] = [np.nan] * len(given)
        for i, kind in self._others:
            values[i] = _word(given[i], kind)
        held = np.full(len(given), np.nan)
        held[self._numbers] = np.array(numbers, dtype=np.float64)
        held = _bounded(held[None, :], self._bounds)[0]
        for i in self._numbers:
            values[i] = float(held[i])
        return Record(layout, values), self._point(held, values)

    def _in_order(self, row: Any, columns: list[Any]) -> Sequence[Any] | None:
        if isinstance(row, pd.Series):
            row = row.to_dict()
        if isinstance(row, Mapping):
            return [row[name] for name in columns] if len(row) == len(columns) else None
        if isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype != np.float32:
            row = row.tolist()
        return row if isinstance(row, (list, tuple)) and len(row) == len(columns) else None


def _word(value: Any, kind: str) -> Any:
    """A value of a column that does not hold numbers, as the encoder would leave it."""
    if kind == "empty" or value is None:
        return np.nan
    if type(value) is str:
        return value
    if type(value) not in NUMBERS or (kind == "category" and isinstance(value, (bool, np.bool_))):
        raise TypeError
    if value != value:
        return np.nan
    if kind != "text" and abs(value) > LARGEST_WHOLE:  # a float would be another category
        raise TypeError
    return _text(value) if kind == "text" else float(value)


class _Point:
    """``default_transformer`` for one row: standardised numbers, then indicators."""

    def __init__(self, space: SelectionSpace, encoder: TableEncoder):
        parts = {
            name: (fitted, list(columns))
            for name, fitted, columns in space.transformer_.transformers_
        }
        (number, self._numbers), (category, self._categories) = parts["number"], parts["category"]
        self._dtype = space.dtype_
        if self._numbers:
            self._mean, self._scale = number[0].mean_, number[0].scale_
        self._places: list[tuple[dict[str, int], int | None]] = []
        self._width = len(self._numbers)
        if self._categories:
            indicators = category[-1]
            rare = getattr(indicators, "infrequent_categories_", [None] * len(self._categories))
            for all_of_them, some in zip(indicators.categories_, rare, strict=True):
                self._places.append(self._column(all_of_them, set() if some is None else set(some)))

    def _column(self, categories: np.ndarray, rare: set[str]) -> tuple[dict[str, int], int | None]:
        """Which indicator a category has; rare ones share the last one, with those that the pool never had."""
        frequent = [name for name in categories if name not in rare]
        places = {name: self._width + i for i, name in enumerate(frequent)}
        self._width += len(frequent) + bool(rare)
        shared = self._width - 1 if rare else None
        return {**places, **dict.fromkeys(rare, self._width - 1)}, shared

    def __call__(self, held: np.ndarray, values: Sequence[Any]) -> np.ndarray:
        point = np.zeros((1, self._width), dtype=self._dtype)
        if self._numbers:
            numbers = held[self._numbers]
            # In the precision of the row, as in StandardScaler.
            numbers -= self._mean.astype(numbers.dtype, copy=False)
            numbers /= self._scale.astype(numbers.dtype, copy=False)
            numbers[np.isnan(numbers)] = 0.0
            point[0, : len(numbers)] = numbers
        for i, (places, shared) in zip(self._categories, self._places, strict=True):
            value = values[i]
            place = places.get(MISSING if value != value else _text(value), shared)
            if place is not None:
                point[0, place] = 1.0
        return point
