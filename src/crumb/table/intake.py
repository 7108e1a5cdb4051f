"""Any table in: numbers as an array, anything with columns of its own as a pandas frame."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_array

from crumb.errors import InvalidInput
from crumb.table.cells import LARGEST_WHOLE, from_arrow, is_missing, is_number, kind_of, number_of
from crumb.table.encoder import Rows, stacked

CSV = (".csv", ".csv.gz")


def in_files(X: Any) -> bool:
    """Whether a table is given by where it lies: a path, a glob or a pyarrow dataset."""
    return isinstance(X, (str, os.PathLike)) or type(X).__module__ == "pyarrow._dataset"


def is_csv(X: Any) -> bool:
    return isinstance(X, (str, os.PathLike)) and os.fspath(X).lower().endswith(CSV)


def read_csv(path: Any) -> pd.DataFrame:
    try:
        return pd.read_csv(path, low_memory=False)
    except (ValueError, EOFError) as error:  # what pandas says of a file that is no table
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path} cannot be read as a .csv table: {reason}") from error


def split_target(X: Any, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """A table without the column that is to be predicted, and that column."""
    table = to_rows(X)
    if not isinstance(table, pd.DataFrame):
        raise InvalidInput(f"y={target!r} names a column, but X has no names: pass the labels.")
    if target not in table.columns:
        known = ", ".join(map(repr, table.columns[:20]))
        raise InvalidInput(f"The table has no column {target!r} to predict; it has {known}.")
    return table.drop(columns=target), table[target]


def to_rows(X: Any, *, min_rows: int = 1, learning: bool = False) -> Rows:
    """A 2-D float array, or a frame. Whole numbers that floats cannot tell apart make a frame.

    ``learning``: the table is a pool. In an array of text, columns of nothing but numbers then are
    numbers: they were before the array was made. Queries follow the pool.
    """
    if sparse.issparse(X):
        raise TypeError("Sparse matrices are not supported: pass X.toarray(), or a data frame.")
    if in_files(X):
        raise InvalidInput(f"A table is needed here, not files: read {X!r} first (pandas, polars).")
    if not isinstance(X, pd.DataFrame):
        X = _from_package(X)
    if isinstance(X, pd.DataFrame):
        return _check_frame(X, min_rows)
    array = _array(X)
    if array.ndim == 1:
        raise InvalidInput(
            "Expected a table with rows and columns (a 2D array), got 1D array instead. Reshape "
            "your data: X.reshape(-1, 1); or select columns with a list: frame[['a']]."
        )
    whole = array.dtype.kind in "iu" and _beyond_floats(array)
    if array.ndim == 2 and (array.dtype.kind in "OUSmM" or whole):
        frame = pd.DataFrame(array.astype(object) if array.dtype.kind in "US" else array)
        if array.dtype.kind in "US" and learning:
            frame = frame.apply(_unwritten)
        if not all(_fits_floats(column) for _, column in frame.items()):
            return _check_frame(frame, min_rows)
        array = stacked(frame)
    kept: Any = array.dtype if array.dtype in (np.float32, np.float64) else np.float64
    if array.dtype.kind == "c":
        kept = None  # check_array says that complex data are not supported
    return check_array(array, dtype=kept, ensure_all_finite=False, ensure_min_samples=min_rows)


def _from_package(X: Any) -> Any:
    """Tables of polars and pyarrow as frames."""
    if hasattr(X, "to_arrow"):
        X = X.to_arrow()
    if not hasattr(X, "column_names"):
        return X.to_pandas() if hasattr(X, "to_pandas") else X
    columns = {j: from_arrow(X.column(j)) for j in range(X.num_columns)}
    frame = pd.DataFrame(columns, index=pd.RangeIndex(X.num_rows))
    return frame.set_axis(X.column_names, axis=1)


def _array(X: Any) -> np.ndarray:
    """Lists of rows keep the types of their values where an array would make text of them."""
    if isinstance(X, np.ma.MaskedArray):
        array = X.data.astype(object)
        array[np.ma.getmaskarray(X)] = None
        return array
    if isinstance(X, np.ndarray):
        return X
    try:
        array = np.asarray(X)
    except TypeError:  # dates beside numbers
        return np.array(X, dtype=object)
    mixed = array.dtype.kind in "US" or (array.dtype.kind == "f" and _beyond_floats(array))
    if isinstance(X, (list, tuple)) and array.ndim == 2 and array.dtype.kind in "iuf":
        # Truth values beside numbers are no numbers.
        mixed |= any(type(value) is bool for row in X for value in row)
    return np.array(X, dtype=object) if mixed else array


def _beyond_floats(array: np.ndarray) -> bool:
    """Whether there are numbers so large that floats do not tell whole ones apart."""
    if not array.size:
        return False
    low, high = np.fmin.reduce(array, axis=None), np.fmax.reduce(array, axis=None)
    return bool(low < -LARGEST_WHOLE or high > LARGEST_WHOLE)


def _unwritten(column: pd.Series) -> pd.Series:
    try:
        return column.map(number_of)
    except ValueError:
        return column


def _fits_floats(column: pd.Series) -> bool:
    """Whether a column of an array can be floats without loss. Dates may be words to the pool."""
    if kind_of(column) not in ("number", "empty"):
        return False
    if column.dtype != object:
        kind = column.dtype.kind
        return kind in "fb" or (kind in "iu" and not _beyond_floats(column.to_numpy()))
    return all(_fits_float(value) for value in column)


def _fits_float(value: Any) -> bool:
    if isinstance(value, Integral):
        return abs(int(value)) <= LARGEST_WHOLE
    return is_number(value) or is_missing(value)


def _check_frame(frame: pd.DataFrame, min_rows: int) -> pd.DataFrame:
    shape = f"(shape={frame.shape}) while a minimum of"
    if frame.shape[1] == 0:
        raise InvalidInput(f"Found 0 feature(s) {shape} 1 is required.")
    if len(frame) < min_rows:
        raise InvalidInput(f"Found {len(frame)} sample(s) {shape} {min_rows} is required.")
    if not frame.columns.is_unique:
        twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
        raise InvalidInput(f"Column names must be unique; these occur twice: {', '.join(twice)}.")
    return frame
