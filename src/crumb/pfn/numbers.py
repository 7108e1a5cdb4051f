"""Tables as numbers: once for a whole pool, so that a context is a slice.

tabicl encodes every context by itself: the categories that occur in it by their rank, holes in its
numbers by their mean. Here a category's number is its rank among the pool's values, once and for
all. The rank among those that occur in a context is then the package's code, which
``preprocess.py`` finds for many contexts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from crumb.table.encoder import Rows, all_floats, column, take

if TYPE_CHECKING:
    import torch

# A larger matrix is not copied to a device: its rows are gathered on the CPU.
MOST_BYTES = 1 << 30


class Numbers:
    """A table and its numbers: categories first, as tabicl has them; NaN where a cell is missing.

    ``pool`` has the categories that count; without it the table has its own. The numbers are made
    when they are first asked for, and do not travel with a pickle.
    """

    def __init__(self, rows: Rows, pool: Numbers | None = None):
        self.rows, self.pool = rows, pool or self
        self._on: dict[str, torch.Tensor] = {}

    def __reduce__(self) -> tuple[type[Numbers], tuple[Any, ...]]:
        return Numbers, (self.rows, None if self.pool is self else self.pool)

    @cached_property
    def places(self) -> tuple[list[int], list[int]]:
        """The columns that hold categories, and those that hold numbers."""
        if not isinstance(self.rows, pd.DataFrame):
            return [], list(range(self.rows.shape[1]))
        dtypes = list(enumerate(self.rows.dtypes))
        return [j for j, dtype in dtypes if _is_category(dtype)], [
            j for j, dtype in dtypes if pd.api.types.is_any_real_numeric_dtype(dtype)
        ]

    @property
    def shape(self) -> tuple[int, int]:
        """Columns in all, and those of categories."""
        categories, numbers = self.pool.places
        return len(categories) + len(numbers), len(categories)

    @cached_property
    def categories(self) -> list[pd.Index]:
        """The sorted values of each column of categories."""
        found = (pd.factorize(column(self.rows, j))[1] for j in self.places[0])
        return [pd.Index(np.sort(np.asarray(values))) for values in found]

    @cached_property
    def matrix(self) -> np.ndarray:
        """(N, d) in float64; an array is its own matrix, in its own precision."""
        if not isinstance(self.rows, pd.DataFrame):
            kept = self.rows.dtype in (np.float32, np.float64)
            return self.rows if kept else self.rows.astype(np.float64)
        categories, numbers = self.pool.places
        if all_floats(self.rows):
            return np.ascontiguousarray(self.rows.to_numpy())  # most lie like that already
        matrix = np.empty((len(self.rows), len(categories) + len(numbers)))
        for i, (j, known) in enumerate(zip(categories, self.pool.categories, strict=True)):
            matrix[:, i] = _ranks(self.rows.iloc[:, j], known)
        for i, j in enumerate(numbers, len(categories)):
            matrix[:, i] = self.rows.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
        return matrix

    @cached_property
    def precision(self) -> np.dtype:
        """In which scikit-learn's imputer computes its means."""
        if not isinstance(self.rows, pd.DataFrame):
            return self.matrix.dtype
        dtypes = [self.rows.dtypes.iloc[j] for j in self.places[1]]
        if not dtypes or not all(isinstance(dtype, np.dtype) for dtype in dtypes):
            return np.dtype(np.float64)
        common = np.result_type(*dtypes)
        return common if common.kind == "f" else np.dtype(np.float64)

    @cached_property
    def finite(self) -> bool:
        """Whether no cell is infinite: the package refuses those."""
        return not np.isinf(self.matrix).any()

    def differ(self, ids: np.ndarray, missing_is_a_value: bool) -> bool:
        """Whether some rows are not all alike."""
        for j in range(self.matrix.shape[1]):
            cells = self.matrix[ids, j]
            there = cells[~np.isnan(cells)]
            if missing_is_a_value and 0 < len(there) < len(cells):
                return True
            if len(there) and (there != there[0]).any():
                return True
        return False

    def means(self, ids: np.ndarray) -> np.ndarray:
        """Of the columns of numbers in some rows, 0 for an empty one; as scikit-learn's imputer.

        In its precision and its order: the last bit decides whether a column that is constant but
        for its holes is still constant when they are filled, and so left out.
        """
        by_column = isinstance(self.rows, pd.DataFrame)
        some = self.matrix[ids][:, self.shape[1] :]
        some = some.astype(self.precision, order="F" if by_column else "C")
        missing = np.isnan(some)
        some[missing] = 0
        count = len(some) - missing.sum(axis=0)
        return (some.sum(axis=0) / np.maximum(count, 1)).astype(self.precision)

    def gather(self, ids: np.ndarray, device: torch.device) -> torch.Tensor:
        """The numbers of rows (B, n), (B, n, d) in float64 on a device, where the matrix stays."""
        import torch

        if device.type == "cpu" or self.matrix.nbytes > MOST_BYTES:
            return torch.from_numpy(self.matrix[ids]).to(device).double()
        if str(device) not in self._on:
            self._on[str(device)] = torch.tensor(self.matrix, device=device)
        return self._on[str(device)][torch.from_numpy(ids).to(device)].double()


@dataclass(frozen=True, eq=False)
class Slice:
    """Some rows of a table."""

    table: Numbers
    ids: np.ndarray

    @classmethod
    def whole(cls, table: Numbers) -> Slice:
        return cls(table, np.arange(len(table.rows)))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, some: slice) -> Slice:
        return Slice(self.table, self.ids[some])

    @property
    def cells(self) -> int:
        return len(self.ids) * self.table.rows.shape[1]

    def rows(self) -> Rows:
        rows = take(self.table.rows, self.ids)
        if not all_floats(rows):
            return rows
        # Column by column, as frames of users lie in memory: packages sum in that order.
        return pd.DataFrame(np.asfortranarray(rows), columns=list(rows), copy=False)


def _is_category(dtype: Any) -> bool:
    """As tabicl thinks."""
    kinds = (pd.CategoricalDtype, pd.StringDtype, pd.BooleanDtype)
    return isinstance(dtype, kinds) or pd.api.types.is_object_dtype(dtype)


def _ranks(cells: pd.Series, known: pd.Index) -> np.ndarray:
    """Of values among those that are known: −1 for others, NaN where a cell is missing."""
    codes, values = pd.factorize(cells)
    ranks = known.get_indexer(pd.Index(np.asarray(values)))
    return np.append(ranks, np.nan)[codes]  # holes have code −1
