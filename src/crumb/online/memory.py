"""What a stream remembers: its latest queries, and the labelled rows of its pool.

The next plan is made for the latest queries. Labelled rows join the pool, and old ones leave it,
at the next refresh.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from crumb.errors import InvalidInput
from crumb.learning import check_labels as check_target
from crumb.learning import target_numbers
from crumb.table.cells import LARGEST, kind_of
from crumb.table.encoder import Rows, take
from crumb.table.row import Piece, Record, stack

FAN = 32  # parts of learned rows that are put together at once: joining few costs as much


class Recent:
    """The latest ``size`` queries, in the pieces in which they came."""

    def __init__(self, size: int):
        self.size = size
        self.fresh = 0  # queries since the current plan was made, counted up to ``size``
        self._pieces: deque[Piece] = deque()
        self._held = 0

    def add(self, rows: Piece) -> None:
        if len(rows) > self.size and not isinstance(rows, Record):
            # A slice would keep the whole table in memory.
            rows = take(rows, np.arange(len(rows) - self.size, len(rows)))
        self._pieces.append(rows)
        self._held += len(rows)
        self.fresh = min(self.size, self.fresh + len(rows))
        while self._held - len(self._pieces[0]) >= self.size:
            self._held -= len(self._pieces.popleft())

    def __len__(self) -> int:
        return min(self.size, self._held)

    def pieces(self) -> list[Piece]:
        """Quick, so that it can be called under a lock; ``latest`` puts them together."""
        return list(self._pieces)


def latest(pieces: list[Piece], count: int) -> Rows:
    rows = stack(pieces)
    return take(rows, np.arange(max(0, len(rows) - count), len(rows)))


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Encoded rows, labels as the user gave them, and when each row came (seconds since 1970)."""

    pieces: list[Piece]
    y: np.ndarray
    came: np.ndarray

    @cached_property
    def rows(self) -> Rows:
        """The pieces as one table, which takes milliseconds even where there are few rows."""
        return stack(self.pieces)


def join(parts: list[LabelledRows]) -> LabelledRows:
    """One table of all."""
    pieces = [piece for part in parts for piece in part.pieces]
    y = np.concatenate([part.y for part in parts])
    return LabelledRows([stack(pieces)], y, np.concatenate([part.came for part in parts]))


class NextPool(NamedTuple):
    """A pool that a refresh is built with; the first ``joined`` of the new rows are in it."""

    pool: LabelledRows
    joined: int


@dataclass
class PoolMemory:
    """The pool of the current version, and what was learned since.

    The stream's lock guards changes. ``max_rows``, and ``max_age`` in seconds: None for any.
    """

    pool: LabelledRows
    max_rows: int | None = None
    max_age: float | None = None
    new: list[LabelledRows] = field(default_factory=list)  # what the pool does not have yet

    def add(self, new: LabelledRows) -> None:
        """Few parts stay few: a thousand calls would else make a refresh join a thousand."""
        self.new.append(replace(new, y=same_sort(new.y, self.pool.y)))
        last = self.new[-FAN:]
        while len(last) == FAN and len(last[0].y) < FAN * len(last[-1].y):
            self.new[-FAN:] = [join(last)]
            last = self.new[-FAN:]

    def labels(self, y: Any, rows: int, regression: bool) -> np.ndarray:
        """Labels for as many rows that may join the pool; whatever is wrong is said here."""
        return same_sort(check_labels(y, rows, regression), self.pool.y)

    def waiting(self) -> int:
        """Rows that the pool does not have yet."""
        return sum(len(part.y) for part in self.new)

    def upcoming(self, date: float) -> NextPool | None:
        """The pool as it should be now; None where the current one is it."""
        new = list(self.new)
        pool = join([self.pool, *new])
        kept = self._kept(pool.came, date)
        if not new and len(kept) == len(pool.y):
            return None
        return NextPool(_part(pool, kept), len(pool.y) - len(self.pool.y))

    def commit(self, upcoming: NextPool) -> None:
        """The pool that a refresh was built with has become the current one."""
        self.pool, left = upcoming.pool, self.waiting() - upcoming.joined
        while self.waiting() > left:
            first = self.new.pop(0)
            if (over := left - self.waiting()) > 0:  # joined with rows that came later
                self.new.insert(0, _part(first, np.arange(len(first.y) - over, len(first.y))))

    def _kept(self, came: np.ndarray, date: float) -> np.ndarray:
        """The youngest rows, in the order in which they stand in the pool."""
        kept = np.arange(len(came))
        if self.max_age is not None:
            kept = kept[date - came <= self.max_age]
        if self.max_rows is not None and len(kept) > self.max_rows:
            # Of rows that came at the same time the later ones in the pool are the younger ones.
            youngest = np.lexsort((-kept, -came[kept]))[: self.max_rows]
            kept = np.sort(kept[youngest])
        return kept


def _part(labelled: LabelledRows, index: np.ndarray) -> LabelledRows:
    return LabelledRows([take(labelled.rows, index)], labelled.y[index], labelled.came[index])


def first_pool(estimator: Any, date: float) -> LabelledRows:
    """The pool of a fitted estimator, all of it as old as the stream."""
    pool = estimator.pool_
    y = pool.y if pool.n_classes is None else estimator.classes_[pool.y]
    return LabelledRows([pool.rows], y, np.full(len(y), date))


def refitted(estimator: Any, pool: LabelledRows) -> Any:
    """A new estimator with the same options and another pool; the old one is left as it is."""
    if len(pool.y) < 2:
        raise InvalidInput("Fewer than two rows are young enough: the plan stays as it was.")
    fresh = clone(estimator).set_params(random_state=estimator.options_.seed)
    rows = pool.rows
    if isinstance(rows, pd.DataFrame):  # words stay words when all but dates have left the pool
        names = rows.columns[estimator.pool_.encoder.categorical_indices]
        rows = rows.astype({name: "category" for name in names if kind_of(rows[name]) == "number"})
    return fresh.fit(rows, pool.y)


def check_labels(y: Any, rows: int, regression: bool) -> np.ndarray:
    """Labels for as many rows; numbers for regression."""
    labels = check_target(y)
    if len(labels) != rows:
        raise InvalidInput(f"X has {rows} rows, y has {len(labels)} labels.")
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
        raise InvalidInput("Labels are numbers, truth values or text, all of one sort.")
    labels = target_numbers(labels) if regression else labels
    if labels.dtype.kind == "f" and not (np.abs(labels) <= LARGEST).all():
        raise InvalidInput("Labels must be finite numbers, in single precision too.")
    if labels.dtype.kind == "f" and not regression and (labels != np.round(labels)).any():
        raise InvalidInput("Numbers that name classes must be whole.")
    return labels


def same_sort(y: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Labels that may stand beside those of the pool: 1.0 is the class 1 of a pool of integers."""
    if _sort_of(y) != _sort_of(known):
        said = f"Labels are of type {y.dtype}, those of the pool of type {known.dtype}."
        raise InvalidInput(said)
    return y.astype(known.dtype) if known.dtype.kind in "iu" and y.dtype.kind == "f" else y


def _sort_of(y: np.ndarray) -> str:
    """Text, truth values or numbers: labels that may stand in one column."""
    return {"U": "text", "O": "text", "S": "text", "b": "bool"}.get(y.dtype.kind, "number")
