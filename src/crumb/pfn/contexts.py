"""Contexts: slices of a table that is numbers, and how they go through a network together.

tabicl encodes every context by itself: the categories that occur in it by their rank, holes in its
numbers by their mean. Here a category's number is its rank among the pool's values, once and for
all. The rank among those that occur in a context is then the package's code, which
``preprocess.py`` finds for many contexts at once. Contexts go in groups, in pieces, or once more:
what a network has made of one is kept for the next queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from crumb.table.encoder import Rows, column, take

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
A = TypeVar("A")
MOST_KEYS = 100_000  # for which the time of the last request is remembered
# A larger table is not copied to a device: its rows are gathered on the CPU.
MOST_BYTES = 1 << 30


class Column(NamedTuple):
    cells: np.ndarray  # (N,): numbers, or codes of categories
    ranks: np.ndarray | None = None  # the number that a code stands for

    def take(self, ids: np.ndarray) -> np.ndarray:
        some = self.cells[ids]
        return some if self.ranks is None else self.ranks[some]


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
    def columns(self) -> list[Column]:
        """As they lie in ``rows``: numbers are not copied, and a category is a code."""
        if not isinstance(self.rows, pd.DataFrame):
            return [Column(cells) for cells in self.rows.T]
        categories, numbers = self.pool.places
        cells = [one for _, one in self.rows.items()]
        known = zip(categories, self.pool.categories, strict=True)
        coded = [_coded(cells[j], values) for j, values in known]
        return coded + [Column(_number_cells(cells[j])) for j in numbers]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Rows (…, d) for ids (…): in float64, or those of an array in its own precision."""
        if not isinstance(self.rows, pd.DataFrame):
            return self.rows[ids]
        found = np.empty((*ids.shape, len(self.columns)))
        for i, one in enumerate(self.columns):
            found[..., i] = one.take(ids)
        return found

    @cached_property
    def precision(self) -> np.dtype:
        """In which scikit-learn's imputer computes its means."""
        if not isinstance(self.rows, pd.DataFrame):
            kept = self.rows.dtype in (np.float32, np.float64)
            return self.rows.dtype if kept else np.dtype(np.float64)
        dtypes = [self.rows.dtypes.iloc[j] for j in self.places[1]]
        if not dtypes or not all(isinstance(dtype, np.dtype) for dtype in dtypes):
            return np.dtype(np.float64)
        common = np.result_type(*dtypes)
        return common if common.kind == "f" else np.dtype(np.float64)

    @cached_property
    def finite(self) -> bool:
        """Whether no cell is infinite: the package refuses those."""
        return not any(np.isinf(one.cells).any() for one in self.columns if one.ranks is None)

    def differ(self, ids: np.ndarray, missing_is_a_value: bool) -> bool:
        """Whether some rows are not all alike."""
        for one in self.columns:
            cells = one.take(ids)
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
        some = self.take(ids)[:, self.shape[1] :]
        some = some.astype(self.precision, order="F" if by_column else "C")
        missing = np.isnan(some)
        some[missing] = 0
        count = len(some) - missing.sum(axis=0)
        return (some.sum(axis=0) / np.maximum(count, 1)).astype(self.precision)

    def gather(self, ids: np.ndarray, device: torch.device) -> torch.Tensor:
        """The numbers of rows (B, n), (B, n, d) in float64 on a device, where all of them stay."""
        import torch

        row = self.take(ids[:1, :1])
        if device.type == "cpu" or row.nbytes * len(self.rows) > MOST_BYTES:
            return torch.from_numpy(self.take(ids)).to(device).double()
        if str(device) not in self._on:
            whole = self.take(np.arange(len(self.rows)))
            self._on[str(device)] = torch.tensor(whole, device=device)
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
        return take(self.table.rows, self.ids)


def _is_category(dtype: Any) -> bool:
    """As tabicl thinks."""
    kinds = (pd.CategoricalDtype, pd.StringDtype, pd.BooleanDtype)
    return isinstance(dtype, kinds) or pd.api.types.is_object_dtype(dtype)


def _coded(cells: pd.Series, known: pd.Index) -> Column:
    """With ranks among values that are known: −1 for others, NaN where a cell is missing."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        codes, values = cells.array.codes, cells.array.categories
    else:
        codes, values = pd.factorize(cells)
        codes = codes.astype(np.min_scalar_type(-len(values) - 1))
    ranks = known.get_indexer(pd.Index(np.asarray(values)))
    return Column(codes, np.append(ranks, np.nan))  # holes have code −1


def _number_cells(cells: pd.Series) -> np.ndarray:
    if isinstance(cells.dtype, np.dtype):
        return cells.to_numpy()
    return cells.to_numpy(dtype=np.float64, na_value=np.nan)


def in_groups(
    tasks: Iterable[T],
    key: Callable[[T], Hashable],
    run: Callable[[list[T]], Sequence[A]],
    size: Callable[[T], int],
    most: int,
) -> Iterator[A]:
    """Answers in the order of the tasks, where ``run`` answers tasks of one key together.

    The tasks that are held at a time have at most the size ``most`` in all, unless one is larger.
    """
    for held in bounded(tasks, size, most):
        groups: dict[Hashable, list[int]] = {}
        for i, task in enumerate(held):
            groups.setdefault(key(task), []).append(i)
        answers: dict[int, A] = {}
        for members in groups.values():
            answers.update(zip(members, run([held[i] for i in members]), strict=True))
        yield from (answers.pop(i) for i in range(len(held)))


def bounded(tasks: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Tasks in lists of at most the size ``most``, or of one task. None is made too early."""
    held: list[T] = []
    room = most
    for task in tasks:
        if held and size(task) > room:
            yield held
            held, room = [], most
        held.append(task)
        room -= size(task)
    if held:
        yield held


def halved(
    tasks: list[T], run: Callable[[list[T]], Sequence[A]], alone: Callable[[T], A]
) -> list[A]:
    """Answers to a group, which is split in two when memory runs out, down to single tasks."""
    import torch

    if len(tasks) == 1:
        return [alone(tasks[0])]
    try:
        return list(run(tasks))
    except torch.OutOfMemoryError:
        pass  # leave the handler first: the error holds on to what filled the memory
    torch.cuda.empty_cache()
    middle = len(tasks) // 2
    return halved(tasks[:middle], run, alone) + halved(tasks[middle:], run, alone)


def pieces(rows: Rows, size: int, multiple: int = 1) -> list[Rows]:
    """Rows in pieces of ``size``; where a piece is no ``multiple``, its last row is repeated.

    Queries do not see each other, so neither changes an answer.
    """
    found = []
    for start in range(0, len(rows), size):
        count = min(size, len(rows) - start)
        index = np.arange(start, start + count + -count % multiple)
        found.append(take(rows, np.minimum(index, len(rows) - 1)))
    return found


class ContextCache(Generic[T]):
    """What a network has made of contexts, for the next queries that share them, up to a budget.

    A new context takes the place only of contexts that nobody has asked for since the new one was
    last asked for. So a plan that does not quite fit keeps most of its contexts. To drop the least
    recently used one instead would drop each one just before it is needed.
    """

    def __init__(self, budget: int):
        self.budget, self.used = budget, 0
        self._kept: dict[bytes, tuple[T, int]] = {}
        self._asked: dict[bytes, int] = {}  # when each key, kept or not, was last asked for
        self._clock = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ContextCache[T]], tuple[int]]:
        return type(self), (self.budget,)  # a copy or a pickle begins empty

    def get_or(self, key: bytes, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """What is kept under a key, or what ``make`` makes."""
        with self._lock:
            self._clock += 1
            before = self._asked.get(key, 0)  # the first time, nothing gives way
            self._asked[key] = self._clock
            if key in self._kept:
                return self._kept[key][0]
        thing = make()
        with self._lock:
            self._put(key, thing, size_of(thing), before)
        return thing

    def _put(self, key: bytes, thing: T, size: int, before: int) -> None:
        idle = [other for other in self._kept if self._asked[other] < before]
        free = self.budget - self.used
        if key in self._kept or size > free + sum(self._kept[other][1] for other in idle):
            return
        for other in sorted(idle, key=self._asked.__getitem__):
            if size <= self.budget - self.used:
                break
            self.used -= self._kept.pop(other)[1]
        self._kept[key] = thing, size
        self.used += size
        self._asked.setdefault(key, self._clock)  # it may have been dropped while it was made
        if len(self._asked) > MOST_KEYS:
            self._asked = {other: self._asked[other] for other in self._kept}

    def drop(self, keys: Iterable[bytes] | None = None) -> None:
        """Forget what will not be asked for again: these keys, or all."""
        with self._lock:
            for key in list(self._kept) if keys is None else keys:
                self.used -= self._kept.pop(key, (None, 0))[1]
                self._asked.pop(key, None)

    def keys(self) -> set[bytes]:
        with self._lock:
            return set(self._kept)

    def has_room(self, key: bytes, size: int) -> bool:
        """Whether something is kept, or could be without taking the place of anything else."""
        return key in self._kept or size <= self.budget - self.used

    def __len__(self) -> int:
        return len(self._kept)


def tensor_bytes(thing: Any) -> int:
    """Bytes of all tensors in nested dictionaries and dataclasses."""
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if isinstance(thing, dict):
        return sum(map(tensor_bytes, thing.values()))
    if is_dataclass(thing):
        return sum(tensor_bytes(getattr(thing, field.name)) for field in fields(thing))
    return 0
