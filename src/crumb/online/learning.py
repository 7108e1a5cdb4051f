"""The pool of a stream: labelled rows join it and old ones leave it at the next refresh."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from crumb.errors import InvalidInput
from crumb.estimator import check_labels as check_target
from crumb.table.encoder import Rows
from crumb.table.pieces import stack, take


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Encoded rows, labels as the user gave them, and when each row came (seconds since 1970)."""

    rows: Rows
    y: np.ndarray
    came: np.ndarray

    def take(self, index: np.ndarray) -> LabelledRows:
        return LabelledRows(take(self.rows, index), self.y[index], self.came[index])


def join(parts: list[LabelledRows]) -> LabelledRows:
    return LabelledRows(
        stack([part.rows for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.came for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class NextPool:
    """A pool that a refresh is built with; the first ``joined`` of the new pieces are in it."""

    pool: LabelledRows
    joined: int


class PoolMemory:
    """The pool of the current version, and what was learned since.

    ``max_rows``, and ``max_age`` in seconds: None for any.
    """

    def __init__(
        self, pool: LabelledRows, max_rows: int | None = None, max_age: float | None = None
    ):
        self.max_rows, self.max_age = max_rows, max_age
        self.pool = pool
        self._new: list[LabelledRows] = []
        self._lock = threading.Lock()

    def add(self, rows: Rows, y: np.ndarray, date: float) -> None:
        if _sort_of(y) != _sort_of(self.pool.y):
            raise InvalidInput(
                f"Labels are of type {y.dtype}, those of the pool of type {self.pool.y.dtype}."
            )
        self.restore([LabelledRows(rows, y, np.full(len(y), date))])

    def restore(self, new: Iterable[LabelledRows]) -> None:
        """Rows that were checked before."""
        with self._lock:
            self._new.extend(new)

    def new(self) -> list[LabelledRows]:
        """What the current pool does not have yet."""
        with self._lock:
            return list(self._new)

    def upcoming(self, date: float) -> NextPool | None:
        """The pool as it should be now; None where the current one is it."""
        new = self.new()
        parts = [self.pool, *new]
        came = np.concatenate([part.came for part in parts])
        kept = self._kept(came, date)
        if not new and len(kept) == len(came):
            return None
        return NextPool(join(parts).take(kept), len(new))

    def commit(self, upcoming: NextPool) -> None:
        """The pool that a refresh was built with has become the current one."""
        with self._lock:
            self.pool = upcoming.pool
            del self._new[: upcoming.joined]

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


def first_pool(estimator: Any, date: float) -> LabelledRows:
    """The pool of a fitted estimator, all of it as old as the stream."""
    pool = estimator.pool_
    y = pool.y if pool.n_classes is None else estimator.classes_[pool.y]
    return LabelledRows(pool.rows, y, np.full(len(y), date))


def refitted(estimator: Any, pool: LabelledRows) -> Any:
    """A new estimator with the same options and another pool; the old one is left as it is."""
    if len(pool.y) < 2:
        raise InvalidInput(
            "Fewer than two rows are young enough for the pool: the plan stays as it was."
        )
    fresh = clone(estimator).set_params(random_state=estimator.options_.seed)
    fresh.fit(pool.rows, pool.y)
    fresh.backend_.share(estimator.backend_)
    return fresh


def check_labels(y: Any, rows: int, regression: bool) -> np.ndarray:
    """Labels for as many rows; numbers for regression."""
    labels = check_target(y)
    if len(labels) != rows:
        raise InvalidInput(f"X has {rows} rows, y has {len(labels)} labels.")
    if not regression:
        return labels
    try:
        numbers = labels.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput("Regression needs numbers as labels.") from error
    if not np.isfinite(numbers).all():
        raise InvalidInput("Labels must be finite numbers.")
    return numbers


def _sort_of(y: np.ndarray) -> str:
    """Text, truth values or numbers: labels that may stand in one column."""
    return {"U": "text", "O": "text", "S": "text", "b": "bool"}.get(y.dtype.kind, "number")
