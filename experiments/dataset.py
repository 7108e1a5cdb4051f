"""A table with its target, and what every source of tables offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from crumb.errors import CrumbError, InvalidInput

TASKS = {
    "binary": "classification",
    "multiclass": "classification",
    "classification": "classification",
    "regression": "regression",
}


class DatasetMissing(CrumbError, FileNotFoundError):
    """A table that is not on this machine and could not be fetched."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows that have a target. ``y`` holds the codes 0 … C−1 of the classes, or numbers."""

    name: str
    task: str  # "classification" or "regression"
    X: pd.DataFrame
    y: np.ndarray
    origin: str

    @property
    def n_classes(self) -> int | None:
        return int(self.y.max()) + 1 if self.task == "classification" else None


class Source(Protocol):
    """A table that can be loaded. Its facts are known without loading; workers get it by pickle."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def rows(self) -> int | None: ...  # with a target; None where the table cannot be read

    @property
    def columns(self) -> int | None: ...  # without the target
    @property
    def origin(self) -> str: ...
    @property
    def problem(self) -> str | None: ...  # why it cannot be loaded now; None if it can

    def load(self) -> Dataset: ...
    def fetch(self) -> None: ...  # bring it onto this machine, if it comes from elsewhere


def with_target(name: str, task: str, table: pd.DataFrame, target: str, origin: str) -> Dataset:
    """Split a table into features and target; rows without a target are left out."""
    if target not in table.columns:
        raise no_target(name, target)
    y = table[target]
    known = y.notna().to_numpy()
    if task == "regression":
        numbers = pd.to_numeric(y, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        known = known & np.isfinite(numbers)
    if not known.any():
        raise InvalidInput(f"The table {name} has no row with a target.")
    X = table.drop(columns=target)[known].reset_index(drop=True)
    if not len(X.columns):
        raise InvalidInput(f"The table {name} has no column besides its target.")
    return Dataset(name, task, X, _coded(y[known], task), origin)


def no_target(name: str, target: str) -> InvalidInput:
    return InvalidInput(f"The table {name} has no column {target!r}, which should be its target.")


def _coded(y: pd.Series, task: str) -> np.ndarray:
    if task == "regression":
        return y.to_numpy(dtype=np.float64)
    return np.unique(y.astype(str).to_numpy(dtype=object), return_inverse=True)[1]


def known_task(task: Any, where: str) -> str:
    """``binary`` and ``multiclass`` are both classification."""
    if task not in TASKS:
        raise InvalidInput(f"{where}: the task must be one of {', '.join(TASKS)}, got {task!r}.")
    return TASKS[task]
