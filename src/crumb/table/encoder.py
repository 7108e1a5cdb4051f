"""Any table in, rows that a PFN understands out.

numpy arrays stay numpy arrays. Data frames (pandas, polars, pyarrow) become pandas frames of
numbers and categories. Types that the PFN packages would drop or refuse (bool, datetime, infinite
values) become numbers; everything else reaches the network as the user gave it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_array

from crumb.errors import InvalidInput

Rows: TypeAlias = "np.ndarray | pd.DataFrame"

# PFNs work in float32, which ends at 3.4e38. What is about as large is infinite to them; -3.4e38
# also is what many programs write where there are no data.
LARGEST = 1e38


def in_files(X: Any) -> bool:
    """Whether a table is given by where it lies: a path, a glob or a pyarrow dataset."""
    return isinstance(X, (str, os.PathLike)) or type(X).__module__ == "pyarrow._dataset"


def to_rows(X: Any, *, min_rows: int = 1) -> Rows:
    """Numbers as a 2-D float array; anything with columns of its own as a pandas frame."""
    if sparse.issparse(X):
        raise TypeError("Sparse matrices are not supported: pass X.toarray(), or a data frame.")
    if not isinstance(X, pd.DataFrame) and hasattr(X, "to_pandas"):
        X = X.to_pandas()  # polars, pyarrow
    if isinstance(X, pd.DataFrame):
        return _check_frame(X, min_rows)
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    if array.ndim == 1:
        raise InvalidInput(
            "Expected a table with rows and columns (a 2D array), got 1D array instead. Reshape "
            "your data: X.reshape(-1, 1); or select columns with a list: frame[['a']]."
        )
    if array.dtype.kind in "OUS":
        numeric = _as_numbers(array)
        if numeric is None:
            return _check_frame(pd.DataFrame(array, copy=True).infer_objects(), min_rows)
        array = numeric
    kept = array.dtype if array.dtype in (np.float32, np.float64) else np.float64
    if array.dtype.kind == "c":
        kept = None  # check_array says that complex data are not supported
    return check_array(array, dtype=kept, ensure_all_finite=False, ensure_min_samples=min_rows)


def _as_numbers(array: np.ndarray) -> np.ndarray | None:
    """An object array of numbers (and None) as floats; None where it holds anything else."""
    if array.dtype.kind in "US" or any(isinstance(value, str) for value in array.flat):
        return None
    return array.astype(np.float64)  # TypeError for what is neither text nor number


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


def fingerprint(rows: Rows, *about: Any) -> str:
    """A checksum of a table's content and of ``about``, the same on any machine, for any index."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((rows.shape, *about)).encode())
    if isinstance(rows, pd.DataFrame):
        categories = [isinstance(dtype, pd.CategoricalDtype) for dtype in rows.dtypes]
        digest.update(repr([list(map(str, rows.columns)), categories]).encode())
        rows = rows.copy(deep=False)
        for name in rows.columns[categories]:
            # 3 and 3.0 are one category, before and after a trip through a file.
            rows[name] = texts(rows[name], None)
        hashed = pd.util.hash_pandas_object(rows, index=False)
        digest.update(np.ascontiguousarray(hashed.to_numpy(dtype=np.uint64)).tobytes())
    else:
        digest.update(np.ascontiguousarray(rows, dtype=np.float64).tobytes())
    return digest.hexdigest()


@dataclass(eq=False)
class TableEncoder:
    """Remembers what each column was in the pool and brings later rows into the same form.

    ``categorical_features`` names the columns that hold categories although they look like numbers:
    by name, by position, or with a mask.
    """

    categorical_features: Sequence[Any] | None = None
    columns_: list[Any] = field(default_factory=list, init=False)
    # "number", "text", "category" or "empty"
    kinds_: list[str] = field(default_factory=list, init=False)
    # finite min and max
    bounds_: np.ndarray = field(default_factory=lambda: np.empty((0, 2)), init=False)

    def fit_transform(self, rows: Rows) -> Rows:
        columns: Any
        if isinstance(rows, pd.DataFrame):
            self.columns_ = list(rows.columns)
            columns = [_encode(rows[name]) for name in self.columns_]
        else:
            self.columns_, columns = list(range(rows.shape[1])), rows.T
        declared = self.declared()
        self.kinds_ = [
            "category" if name in declared else _kind(column)
            for name, column in zip(self.columns_, columns, strict=True)
        ]
        self.bounds_ = np.array([_finite_range(column) for column in columns])
        return self.transform(rows)

    def transform(self, rows: Rows) -> Rows:
        """Rows whose number and names of columns are known to be those of the pool."""
        if not isinstance(rows, pd.DataFrame):
            return bounded(rows, self.bounds_)
        if list(rows.columns) != self.columns_:
            raise InvalidInput(
                f"The columns must be those of the training table, in its order: {self.columns_}."
            )
        columns = {}
        for name, kind, bounds in zip(self.columns_, self.kinds_, self.bounds_, strict=True):
            if kind == "empty":  # the pool says nothing about it: what queries hold means nothing
                columns[name] = pd.Series(np.nan, index=pd.RangeIndex(len(rows)))
            elif kind == "number":
                columns[name] = _bounded_column(_to_number(_encode(rows[name]), name), bounds)
            else:
                columns[name] = _to_text(rows[name]) if kind == "text" else _to_category(rows[name])
        return pd.DataFrame(columns, index=pd.RangeIndex(len(rows)))

    @classmethod
    def learned(
        cls, columns: Sequence[Any], kinds: Sequence[str], bounds: np.ndarray
    ) -> TableEncoder:
        """An encoder for columns that are known already, without a table to learn them from."""
        encoder = cls()
        encoder.columns_, encoder.kinds_, encoder.bounds_ = list(columns), list(kinds), bounds
        return encoder

    @property
    def numeric_indices(self) -> list[int]:
        """Positions of all other columns, empty ones among them."""
        return [j for j, kind in enumerate(self.kinds_) if kind not in ("text", "category")]

    @property
    def categorical_indices(self) -> list[int]:
        return [index for index, kind in enumerate(self.kinds_) if kind in ("text", "category")]

    def declared(self) -> set[Any]:
        """The names of the columns that ``categorical_features`` marks."""
        if self.categorical_features is None:
            return set()
        wanted = list(np.asarray(self.categorical_features, dtype=object).ravel())
        if wanted and all(isinstance(flag, (bool, np.bool_)) for flag in wanted):
            if len(wanted) != len(self.columns_):
                values = f"{len(wanted)} values for {len(self.columns_)} columns"
                raise InvalidInput(f"categorical_features is a mask of {values}.")
            return {name for name, flag in zip(self.columns_, wanted, strict=True) if flag}
        known = set(self.columns_)
        by_position = {i: name for i, name in enumerate(self.columns_) if i not in known}
        unknown = [name for name in wanted if name not in known and name not in by_position]
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise InvalidInput(f"categorical_features names columns that are not there: {names}.")
        return {name if name in known else by_position[name] for name in wanted}


def _encode(column: pd.Series) -> pd.Series:
    """A column as numbers or categories: bool → 0/1, times → days, text stays text."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column
    if isinstance(column.dtype, pd.ArrowDtype):
        column = column.astype(object).where(column.notna(), None)
    if column.dtype == object:
        column = _sharpen(column)
    if column.isna().all():
        return pd.Series(np.nan, index=column.index, dtype=np.float64)
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _days(column if column.dt.tz is None else column.dt.tz_convert(None))
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return column / pd.Timedelta(days=1)
    if pd.api.types.is_complex_dtype(column.dtype):
        raise InvalidInput(f"Column {column.name!r} is complex. Complex data not supported.")
    extension = pd.api.types.is_extension_array_dtype(column.dtype)
    if extension or pd.api.types.is_bool_dtype(column.dtype):
        if pd.api.types.is_numeric_dtype(column.dtype):  # bool counts as numeric in pandas
            return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), index=column.index)
        return column.astype(object).where(column.notna(), np.nan)
    return column


def _days(column: pd.Series) -> pd.Series:
    """Days since 1970. By microseconds: nanoseconds end in 2262, databases in 9999."""
    moments = column.to_numpy().astype("datetime64[us]")
    days = (moments - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return pd.Series(days, index=column.index)


def _sharpen(column: pd.Series) -> pd.Series:
    """An object column as the narrowest type that its values share; text where they share none."""
    values = column.dropna()
    kinds = {type(value) for value in values}
    if kinds <= {str}:
        return column
    if any(issubclass(kind, (dict, list, set, tuple, np.ndarray)) for kind in kinds):
        said = f"Column {column.name!r} holds nested values"
        raise TypeError(f"{said}; each argument must be a string or a number.")
    if all(issubclass(kind, (bool, int, float, Decimal, np.number, np.bool_)) for kind in kinds):
        return column.astype(np.float64)
    if not any(issubclass(kind, (str, bool, int, float)) for kind in kinds):
        with suppress(TypeError, ValueError):  # dates; in microseconds, which reach the year 9999
            moments = column.to_numpy().astype("datetime64[us]")
            return pd.Series(moments, index=column.index, name=column.name)
        with suppress(TypeError, ValueError):
            return pd.to_datetime(column)  # with time zones
    return column.map(str, na_action="ignore")


def _to_number(column: pd.Series, name: Any) -> pd.Series:
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    numbers = pd.to_numeric(column.astype(object), errors="coerce").astype(np.float64)
    lost = column.notna() & numbers.isna()
    if lost.any():
        raise InvalidInput(
            f"Column {name!r} was numeric in the training table, but row {int(np.argmax(lost))} of "
            f"the queries holds text; clean it, or train with it as a category."
        )
    return numbers


def _kind(column: np.ndarray | pd.Series) -> str:
    if isinstance(column, np.ndarray):
        return "number"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if column.isna().all():
        return "empty"
    return "number" if pd.api.types.is_numeric_dtype(column.dtype) else "text"


def texts(column: pd.Series, missing: Any) -> np.ndarray:
    """Values as text, the same for 3, 3.0 and a category of either; ``missing`` for holes."""
    codes, values = pd.factorize(column)
    words = np.array([*(text_of(value) for value in values), missing], dtype=object)
    return words[codes]  # holes have code −1


def text_of(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    return f"{value:.0f}" if isinstance(value, Real) and float(value).is_integer() else str(value)


def _to_text(column: pd.Series) -> pd.Series:
    """Text with NaN for missing: to tabicl and scikit-learn None is a category like any other.

    Codes that a file reader took for numbers in the queries become text again.
    """
    return pd.Series(texts(column, np.nan), dtype=object)


def _to_category(column: pd.Series) -> pd.Series:
    """Categories of text or numbers stay; other categories go by their text."""
    if not isinstance(column.dtype, pd.CategoricalDtype):
        bools = pd.api.types.is_bool_dtype(column.dtype)
        if pd.api.types.is_numeric_dtype(column.dtype) and not bools:  # 1 and 1.0 are one category
            column = pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan))
        column = column.astype("category")
    if column.cat.categories.inferred_type not in ("string", "integer", "floating", "empty"):
        column = _to_text(column).astype("category")
    return column.reset_index(drop=True)


def _finite_range(column: Any) -> tuple[float, float]:
    if isinstance(column, pd.Series) and not pd.api.types.is_numeric_dtype(column.dtype):
        return (np.nan, np.nan)
    values = np.asarray(column, dtype=np.float64)
    finite = values[np.abs(values) <= LARGEST]  # NaN compares false
    return (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)


def bounded(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Infinite values become the most extreme finite ones of the pool; the rest stays."""
    low, high = values < -LARGEST, values > LARGEST  # NaN compares false
    if not (low.any() or high.any()):
        return values
    bounds = bounds.astype(values.dtype)
    return np.where(low, bounds[:, 0], np.where(high, bounds[:, 1], values))


def _bounded_column(column: pd.Series, bounds: np.ndarray) -> pd.Series:
    column = column.reset_index(drop=True)
    if column.dtype.kind != "f":
        return column
    values = column.to_numpy()
    kept = bounded(values[:, None], bounds[None, :])[:, 0]
    return column if kept is values else pd.Series(kept)


def take(rows: Rows, index: np.ndarray) -> Rows:
    """Some rows of an array or a frame."""
    if isinstance(rows, np.ndarray):
        return rows[index]
    return rows.iloc[index].reset_index(drop=True)


def column(rows: Rows, j: int, index: Any = slice(None)) -> pd.Series:
    """Some rows of one column, all by default."""
    return rows.iloc[index, j] if isinstance(rows, pd.DataFrame) else pd.Series(rows[index, j])


def number_column(rows: Rows, j: int) -> np.ndarray:
    values: Any = rows.iloc[:, j].to_numpy() if isinstance(rows, pd.DataFrame) else rows[:, j]
    return values.astype(np.float64)
