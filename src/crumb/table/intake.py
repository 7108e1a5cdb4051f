"""Any table in: numbers as an array, anything with columns of its own as a pandas frame."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable
from glob import glob, has_magic
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_array

from crumb.errors import InvalidInput
from crumb.table.cells import LARGEST_WHOLE, from_arrow, is_missing, is_number, kind_of, number_of
from crumb.table.encoder import Rows, stacked

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")


def in_files(X: Any) -> bool:
    """Whether a table is given by where it lies: a path, a glob or a pyarrow dataset."""
    return isinstance(X, (str, os.PathLike)) or type(X).__module__ == "pyarrow._dataset"


def files_at(path: str, suffixes: tuple[str, ...]) -> list[str]:
    """The file of a path, or those of a folder or a glob, in the order of their names."""
    if os.path.isdir(path):
        # Files that writers leave beside the data, as Spark's ``_temporary``, do not count.
        inside = (file.relative_to(path) for file in Path(path).rglob("*"))
        files = (file for file in inside if not any(name[0] in "._" for name in file.parts))
        kept = (file for file in files if file.name.lower().endswith(suffixes))
        return sorted(os.path.join(path, file) for file in kept)
    if has_magic(path) and not os.path.isfile(path):
        return sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
    return [path]


def csv_files(X: Any) -> list[str]:
    """The CSV files of a path, a folder or a glob; none where there are others too."""
    files = files_at(os.fspath(X), CSV + PARQUET) if isinstance(X, (str, os.PathLike)) else []
    return files if all(file.lower().endswith(CSV) for file in files) else []


def opened(X: Any) -> Any:
    """A table in CSV files as a frame: it is read whole. Others as they are."""
    return read_csv(X) if csv_files(X) else X


def read_csv(X: Any, texts: Iterable[str] = ()) -> pd.DataFrame:
    """The rows of all files. Columns in ``texts`` are text; folders ``key=value`` are columns."""
    files = csv_files(X)
    tables = [_read_csv(file, texts) for file in files]
    # A code such as 007 is text where another file has A12.
    names = dict.fromkeys(name for table in tables for name in table.columns)
    if unlike := [name for name in names if _is_unlike(tables, name)]:
        tables = [_read_csv(file, [*texts, *unlike]) for file in files]
    keys = [_keys(os.path.relpath(file, os.path.commonpath(files))) for file in files]
    tables = [table.assign(**here) for table, here in zip(tables, keys, strict=True)]
    return pd.concat(tables, ignore_index=True)


def _keys(path: str) -> dict[str, Any]:
    """The columns that the names of its folders tell: ``year=2020/part.csv`` is of 2020."""
    words = dict(name.split("=", 1) for name in Path(path).parts[:-1] if "=" in name)
    return {key: int(word) if word.isdecimal() else word for key, word in words.items()}


def _read_csv(path: str, texts: Iterable[str]) -> pd.DataFrame:
    try:
        return pd.read_csv(path, low_memory=False, dtype=dict.fromkeys(texts, "str"))
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:  # it is no table
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path} cannot be read as a .csv table: {reason}") from error


def _is_unlike(tables: list[pd.DataFrame], name: str) -> bool:
    """Whether a column is text in some tables, and read as something else in others."""
    columns = [table[name] for table in tables if name in table]
    if len({column.dtype for column in columns}) == 1:
        return False
    kinds = {pd.api.types.infer_dtype(column.dropna()) for column in columns} - {"empty"}
    return not (kinds <= {"integer", "floating"} or kinds == {"boolean"})


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
        frame = pd.DataFrame(array, dtype=object if array.dtype.kind in "OUS" else None)
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
