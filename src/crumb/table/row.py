"""One row at a time: read without a table, and put together into one.

Encoding a table takes milliseconds, whatever its size. Most rows of a stream hold plain numbers and
text. A reader does the same to these in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput
from crumb.table.cells import is_missing, number_of
from crumb.table.encoder import Rows, TableEncoder, bounded, take, texts
from crumb.table.space import ColumnSpace

PLAIN = frozenset({float, int, bool, type(None), np.float64, np.int64, np.bool_})


@dataclass(frozen=True, eq=False)
class Record:
    """One encoded row without a frame: a frame of one row costs a millisecond."""

    encoder: TableEncoder
    values: list[Any]

    def __len__(self) -> int:
        return 1


Piece: TypeAlias = "Rows | Record"


class RowReader:
    """Rows as the model sees them and as points of the selection space; None if a table is needed.

    What cannot be read (text where numbers belong, wrong names or lengths) is left to the table,
    which says what is wrong.
    """

    def __init__(self, encoder: TableEncoder, space: ColumnSpace, named: bool):
        self._encoder, self._space, self._named = encoder, space, named
        self._numbers = [i for i, kind in enumerate(encoder.kinds_) if kind == "number"]
        self._empty = [i for i, kind in enumerate(encoder.kinds_) if kind == "empty"]
        self._words = [(i, words) for i, words in enumerate(encoder.words_) if words is not None]

    def __call__(self, row: Any, joining: bool = False) -> tuple[Piece, np.ndarray] | None:
        """The row, copied, and its point (1, d)."""
        try:
            read = self._record(row, joining) if self._named else self._array(row)
        except (TypeError, ValueError, OverflowError, KeyError):  # a table says it better
            return None
        if read is None or not np.isfinite(read[1]).all():
            return None
        return read

    def _array(self, row: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if isinstance(row, (list, tuple)):
            row = _numbers(row)
        if not isinstance(row, np.ndarray) or row.dtype.kind not in "fiub":
            return None
        if row.shape != (len(self._encoder.columns_),):
            return None
        kept = row.dtype if row.dtype in (np.float32, np.float64) else np.float64
        values = bounded(row.astype(kept)[None, :], self._encoder.bounds_)
        return values, self._space.point(values[0], values[0].astype(np.float64))

    def _record(self, row: Any, joining: bool) -> tuple[Record, np.ndarray] | None:
        given = self._in_order(row, self._encoder.columns_)
        if given is None or (joining and not all(is_missing(given[i]) for i in self._empty)):
            return None
        values: list[Any] = [np.nan] * len(given)
        for i, words in self._words:
            values[i] = words.cell(given[i])
        held = np.full(len(given), np.nan)
        held[self._numbers] = _numbers([given[i] for i in self._numbers])
        held = bounded(held[None, :], self._encoder.bounds_)[0]
        for i in self._numbers:
            values[i] = float(held[i])
        return Record(self._encoder, values), self._space.point(values, held)

    def _in_order(self, row: Any, columns: list[Any]) -> Sequence[Any] | None:
        if isinstance(row, pd.Series):
            row = row.to_dict()
        if isinstance(row, Mapping):
            return [row[name] for name in columns] if len(row) == len(columns) else None
        if isinstance(row, np.ndarray) and row.ndim == 1 and row.dtype != np.float32:
            row = row.tolist()
        return row if isinstance(row, (list, tuple)) and len(row) == len(columns) else None


def _numbers(values: Sequence[Any]) -> np.ndarray:
    plain = PLAIN.issuperset(map(type, values))
    return np.array(values if plain else [number_of(value) for value in values], dtype=np.float64)


def one_row(row: Any, columns: Sequence[Any] | None) -> Any:
    """One query, given as a sequence, a Series or a mapping of names, as a table of one row.

    ``columns`` are the names of the pool's columns; None where they have none.
    """
    if isinstance(row, pd.Series):
        row = row.to_dict() if columns is not None else row.to_numpy()
    if isinstance(row, Mapping):
        return _named(row, columns)
    if isinstance(row, pd.DataFrame) or getattr(row, "ndim", 1) == 2:
        if len(row) != 1:
            raise InvalidInput(f"submit takes one row, got {len(row)}; submit_many takes a table.")
        return row
    values = np.asarray(row) if not isinstance(row, (list, tuple)) else np.array(row, dtype=object)
    if values.ndim != 1:
        raise InvalidInput("A row is a sequence of values, a Series, or a mapping of names.")
    if columns is not None and len(values) == len(columns):
        return pd.DataFrame({name: [value] for name, value in zip(columns, values, strict=True)})
    return values[None, :]  # of the wrong length where there are names: the estimator says so


def _named(row: Mapping[Any, Any], columns: Sequence[Any] | None) -> pd.DataFrame:
    if columns is None:
        raise InvalidInput("The training table's columns have no names: give a sequence of values.")
    missing = [name for name in columns if name not in row]
    unknown = [name for name in row if name not in set(columns)]
    if missing or unknown:
        said = [f"has no value for {name!r}" for name in missing[:1]]
        said += [f"names {name!r}" for name in unknown[:1]]
        raise InvalidInput(f"The row {' and '.join(said)}; the columns are {list(columns)}.")
    return pd.DataFrame({name: [row[name]] for name in columns})


def stack(pieces: Sequence[Piece]) -> Rows:
    """Tables with the same columns below each other; values stay what they are."""
    runs = groupby(pieces, lambda piece: piece.encoder if isinstance(piece, Record) else None)
    tables = [table for encoder, run in runs for table in _tables(encoder, list(run))]
    if len(tables) == 1:
        return tables[0]
    if isinstance(tables[0], np.ndarray):
        return np.concatenate(tables)
    frames = cast("Sequence[pd.DataFrame]", tables)
    columns = {name: _joined([frame[name] for frame in frames]) for name in frames[0].columns}
    return pd.DataFrame(columns)


def _tables(encoder: TableEncoder | None, run: list[Any]) -> list[Rows]:
    """Records that follow each other make one frame; tables are tables already."""
    if encoder is None:
        return run
    columns = zip(*(record.values for record in run), strict=True)
    about = zip(encoder.columns_, encoder.kinds_, columns, strict=True)
    return [pd.DataFrame({name: _column(kind, values) for name, kind, values in about})]


def _column(kind: str, values: Sequence[Any]) -> pd.Series:
    if kind in ("number", "empty"):
        return pd.Series(np.array(values, dtype=np.float64))
    column = pd.Series(values, dtype=object)
    return column.astype("category") if kind == "category" else column


def _joined(columns: list[pd.Series]) -> pd.Series:
    """pandas makes objects of categoricals whose categories differ, as those of rows do."""
    if all(column.dtype == columns[0].dtype for column in columns):
        return pd.concat(columns, ignore_index=True)
    present = [column for column in columns if column.notna().any()]
    if len(set(map(_holds_numbers, present))) == 2:  # a column that was empty at the first fit
        parts = [pd.Series(texts(column, np.nan), dtype=object) for column in columns]
    else:
        parts = [column.astype(object) if _is_category(column) else column for column in columns]
    joined = pd.concat(parts, ignore_index=True)
    return joined.astype("category") if any(map(_is_category, columns)) else joined


def _is_category(column: pd.Series) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _holds_numbers(column: pd.Series) -> bool:
    values = column.cat.categories if _is_category(column) else column
    return pd.api.types.is_numeric_dtype(values.dtype)


def gather(places: Sequence[tuple[Piece, int]]) -> Rows:
    """The rows at these places, in this order; runs from one table are taken together."""
    pieces: list[tuple[Piece, list[int]]] = []
    for rows, index in places:
        if not pieces or pieces[-1][0] is not rows:
            pieces.append((rows, []))
        pieces[-1][1].append(index)
    return stack([_taken(rows, index) for rows, index in pieces])


def _taken(rows: Piece, index: list[int]) -> Piece:
    if isinstance(rows, Record) or index == list(range(len(rows))):
        return rows
    return take(rows, np.array(index))
