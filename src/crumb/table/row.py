"""One row at a time: what a fitted estimator makes of a table of one row, without the table.

Encoding a table takes milliseconds, whatever its size. Most rows of a stream hold plain numbers and
text. A reader does the same to these in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from crumb.table.encoder import TableEncoder, bounded, text_of
from crumb.table.pieces import Layout, Piece, Record
from crumb.table.space import ColumnSpace

NUMBERS = frozenset({float, int, bool, np.float64, np.int64, np.bool_})
MAYBE_NUMBERS = NUMBERS | {type(None)}
LARGEST_WHOLE = 2**53  # up to here floats tell whole numbers apart


class RowReader:
    """Rows as the model sees them and as points of the selection space; None if a table is needed.

    What is not plain (dates, text where numbers belong, wrong names or lengths) is left to the
    table, which knows what to do with it or says what is wrong.
    """

    def __init__(self, encoder: TableEncoder, space: ColumnSpace, named: bool):
        self._layout = Layout(encoder.columns_, encoder.kinds_) if named else None
        self._columns, self._bounds = len(encoder.columns_), encoder.bounds_
        self._space = space
        self._numbers = [i for i, kind in enumerate(encoder.kinds_) if kind == "number"]
        self._others = [(i, kind) for i, kind in enumerate(encoder.kinds_) if kind != "number"]

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
            or row.shape != (self._columns,)
            or row.dtype.kind not in "fiub"
        ):
            return None
        kept = row.dtype if row.dtype in (np.float32, np.float64) else np.float64
        values = bounded(row.astype(kept)[None, :], self._bounds)
        return values, self._space.point(values[0], values[0].astype(np.float64))

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
        held = bounded(held[None, :], self._bounds)[0]
        for i in self._numbers:
            values[i] = float(held[i])
        return Record(layout, values), self._space.point(values, held)

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
    return text_of(value) if kind == "text" else float(value)
