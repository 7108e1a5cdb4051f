"""Any table in; what each column of the pool is, and later rows in the same form.

Numbers are an array, anything with columns of its own is a pandas frame (``to_rows``). Arrays stay
as they are. Frames become frames of numbers, text and categories, cell by cell as ``cells.py``
says. Types that the PFN packages would drop or refuse (bool, datetime, infinite values) become
numbers; everything else reaches the network as the user gave it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.utils import check_array

from crumb.errors import InvalidInput
from crumb.table.cells import (
    LARGEST,
    LARGEST_WHOLE,
    Words,
    distinct,
    each,
    from_arrow,
    is_missing,
    is_number,
    kind_of,
    number_of,
    numbers,
    word_of,
)

Rows: TypeAlias = "np.ndarray | pd.DataFrame"
BLOCK_CELLS = 1 << 20  # cells that are looked at together
ALL_WORDS = 50_000  # with more, a table in files does not remember the rare ones


def in_files(X: Any) -> bool:
    """Whether a table is given by where it lies: a path, a glob or a pyarrow dataset."""
    return isinstance(X, (str, os.PathLike)) or type(X).__module__ == "pyarrow._dataset"


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


def fingerprint(rows: Rows, *about: Any) -> str:
    """A checksum of a table's content and of ``about``, the same on any machine, for any index."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((rows.shape, *about)).encode())
    if isinstance(rows, pd.DataFrame):
        categories = [isinstance(dtype, pd.CategoricalDtype) for dtype in rows.dtypes]
        digest.update(repr([list(map(str, rows.columns)), categories]).encode())
    step = max(1, BLOCK_CELLS // rows.shape[1])
    for start in range(0, len(rows), step):  # the whole at once would be a copy of the table
        digest.update(_checksums(rows[start : start + step]).data)
    return digest.hexdigest()


def _checksums(rows: Rows) -> np.ndarray:
    """Of the rows of a frame; an array is taken as it is."""
    if not isinstance(rows, pd.DataFrame):
        return np.ascontiguousarray(rows, dtype=np.float64)
    rows = rows.copy(deep=False)
    for name, dtype in rows.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            # 3 and 3.0 are one category, before and after a trip through a file.
            rows[name] = texts(rows[name], None)
    hashed = pd.util.hash_pandas_object(rows, index=False)
    return np.ascontiguousarray(hashed, dtype=np.uint64)


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
    words_: list[Words | None] = field(default_factory=list, init=False)  # None: not of words
    in_array_: bool = field(default=False, init=False)  # whether rows are an array of numbers

    def fit_transform(self, rows: Rows) -> Rows:
        self.in_array_ = isinstance(rows, np.ndarray)
        if isinstance(rows, np.ndarray):
            self.columns_ = list(range(rows.shape[1]))
            declared = self.declared()
            self.kinds_ = ["category" if j in declared else "number" for j in self.columns_]
            self.bounds_ = np.array([finite_range(values) for values in rows.T])
            rows = bounded(rows, self.bounds_)
            words = {j: Words(distinct(column(rows, j))[1]) for j in self.categorical_indices}
            self.words_ = [words.get(j) for j in self.columns_]
            return rows
        self.columns_, self.kinds_, self.words_ = list(rows.columns), [], []
        declared = self.declared()
        self.bounds_ = np.full((len(self.columns_), 2), np.nan)
        columns = {name: self._learn(rows[name], name in declared) for name in self.columns_}
        return pd.DataFrame(columns)

    def _learn(self, column: pd.Series, declared: bool) -> Any:
        """The next column of the pool: its kind, its bounds or words, and its cells."""
        column = _plain(column)
        kind = kind_of(column)
        kind = "category" if declared and kind != "empty" else kind
        j = len(self.kinds_)
        self.kinds_.append(kind)
        self.words_.append(None)
        if kind in ("number", "empty"):
            found = numbers(column) if kind == "number" else np.full(len(column), np.nan)
            self.bounds_[j] = finite_range(found)
            return bounded(found, self.bounds_[j])
        codes, values = distinct(column)
        self.words_[j] = words = Words(values, numbers=kind == "category")
        return _worded(column, codes, values, words, kind)

    def transform(self, rows: Rows, joining: bool = False) -> Rows:
        """Rows whose number and names of columns are known to be those of the pool.

        ``joining``: they are to become rows of a pool. What they hold in columns that are empty in
        this one is kept then; to queries it means nothing.
        """
        if not isinstance(rows, pd.DataFrame):
            return bounded(rows, self.bounds_)
        if self.in_array_:
            return bounded(stacked(rows), self.bounds_)
        if list(rows.columns) != self.columns_:
            raise InvalidInput(
                f"The columns must be those of the training table, in its order: {self.columns_}."
            )
        places = enumerate(self.columns_)
        return pd.DataFrame({n: self._cells(j, _plain(rows[n]), joining) for j, n in places})

    def _cells(self, j: int, column: pd.Series, joining: bool) -> Any:
        kind, words = self.kinds_[j], self.words_[j]
        if kind == "empty":
            return _first_cells(column) if joining else np.full(len(column), np.nan)
        if words is None:
            return bounded(numbers(column), self.bounds_[j])
        return _worded(column, *distinct(column), words, kind)

    def unseen(self, rows: Rows) -> list[Any]:
        """Columns in which encoded rows have words, but none that the pool has."""
        words = ((j, one.cells) for j, one in enumerate(self.words_) if one is not None)
        words = (pair for pair in words if len(pair[1]) < ALL_WORDS)
        found = ((j, cells, set(distinct(column(rows, j))[1])) for j, cells in words)
        return [self.columns_[j] for j, cells, new in found if new and new.isdisjoint(cells)]

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


def _plain(column: pd.Series) -> pd.Series:
    """Without types of Arrow."""
    if not isinstance(column.dtype, pd.ArrowDtype):
        return column
    import pyarrow as pa

    return from_arrow(pa.array(column.array)).rename(column.name)


def _first_cells(column: pd.Series) -> Any:
    """The first values of a column; the pool that they join decides what is infinite."""
    if kind_of(column) == "number":
        return numbers(column)
    return TableEncoder().fit_transform(column.to_frame(0))[0]


def _worded(
    column: pd.Series, codes: np.ndarray, values: list[Any], words: Words, kind: str
) -> Any:
    """Cells of a column that holds words: text as objects, categories as such."""
    cells = pd.Series([*each(column, codes, values, words.cell), np.nan], dtype=object)
    if kind == "text":
        return cells.take(codes).reset_index(drop=True)  # missing ones have code −1, the last
    places, categories = pd.factorize(cells)  # values that mean the same are one category
    categories = categories.astype(np.float64 if words.numbers else object)
    return pd.Categorical.from_codes(places[codes], categories=categories)


def stacked(frame: pd.DataFrame) -> np.ndarray:
    """All columns as numbers, in one array."""
    columns = [numbers(_plain(frame.iloc[:, j])) for j in range(frame.shape[1])]
    return np.stack(columns, axis=1).astype(np.float64, copy=False)


def texts(column: pd.Series, missing: Any) -> np.ndarray:
    """Values as text, the same for 3, 3.0 and a category of either; ``missing`` for holes."""
    codes, values = distinct(column)
    words = np.array([*map(word_of, values), missing], dtype=object)
    return words[codes]  # holes have code −1


def _range(values: np.ndarray) -> tuple[Any, Any]:
    """Least and largest, whatever is missing."""
    if not values.size:
        return np.nan, np.nan
    return np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)


def finite_range(values: np.ndarray) -> tuple[float, float]:
    low, high = _range(values)
    if not (low >= -LARGEST and high <= LARGEST):  # NaN compares false
        finite = values[np.abs(values) <= LARGEST]
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    return float(low), float(high)


def bounded(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Infinite values become the most extreme finite ones of the pool; the rest stays.

    ``values``: rows and columns, or one column with bounds of its own.
    """
    least, most = _range(values)
    if not (least < -LARGEST or most > LARGEST):  # NaN compares false
        return values
    lowest, highest = bounds.T.astype(values.dtype)
    low, high = values < -LARGEST, values > LARGEST
    return np.where(low, lowest, np.where(high, highest, values))


def take(rows: Rows, index: np.ndarray) -> Rows:
    """Some rows of an array or a frame."""
    if isinstance(rows, np.ndarray):
        return rows[index]
    return rows.iloc[index].reset_index(drop=True)


def beside(rows: Rows, columns: np.ndarray, name: str = "guide") -> Rows:
    """Rows with more columns after their own, under numbered names that none of these has."""
    if isinstance(rows, np.ndarray):
        return np.hstack([rows, columns.astype(rows.dtype)])
    texts = all(isinstance(name, str) for name in rows.columns)
    free = (f"{name} {i}" if texts else i for i in count())
    names = list(islice((name for name in free if name not in rows.columns), columns.shape[1]))
    return pd.concat([rows, pd.DataFrame(columns, columns=names, index=rows.index)], axis=1)


def first_columns(rows: Rows, count: int) -> Rows:
    """Without those that only the network sees, which stand behind the table's own."""
    return rows[:, :count] if isinstance(rows, np.ndarray) else rows.iloc[:, :count]


def column(rows: Rows, j: int, index: Any = slice(None)) -> pd.Series:
    """Some rows of one column, all by default."""
    return rows.iloc[index, j] if isinstance(rows, pd.DataFrame) else pd.Series(rows[index, j])


def number_column(rows: Rows, j: int) -> np.ndarray:
    return column(rows, j).to_numpy().astype(np.float64)
