"""A table with its target, and the places that tables come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput

TASKS = {
    "binary": "classification",
    "multiclass": "classification",
    "classification": "classification",
    "regression": "regression",
}


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
    """A table that can be loaded. What is said of it is known without loading; it travels to worker processes."""

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def rows(self) -> int | None: ...  # rows with a target; None: not known, since the table cannot be read

    @property
    def columns(self) -> int | None: ...  # without the target
    @property
    def origin(self) -> str: ...
    @property
    def problem(self) -> str | None: ...  # why it cannot be loaded as things are; None: it can

    def load(self) -> Dataset: ...
    def fetch(self) -> None: ...  # bring it onto this machine, if it comes from elsewhere


def with_target(name: str, task: str, table: pd.DataFrame, target: str, origin: str) -> Dataset:
    """Split a table into features and target; rows without a target are left out."""
    if target not in table.columns:
        raise InvalidInput(f"The table {name} has no column {target!r}, which should be its target.")
    y = table[target]
    there = y.notna().to_numpy()
    if task == "regression":
        there = there & np.isfinite(pd.to_numeric(y, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
    if not there.any():
        raise InvalidInput(f"The table {name} has no row with a target.")
    X = table.drop(columns=target)[there].reset_index(drop=True)
    if not len(X.columns):
        raise InvalidInput(f"The table {name} has no column besides its target.")
    return Dataset(name, task, X, _coded(y[there], task), origin)


def _coded(y: pd.Series, task: str) -> np.ndarray:
    if task == "regression":
        return y.to_numpy(dtype=np.float64)
    return np.unique(y.astype(str).to_numpy(dtype=object), return_inverse=True)[1]


def known_task(task: Any, where: str) -> str:
    """``binary`` and ``multiclass`` are both classification."""
    if task not in TASKS:
        raise InvalidInput(f"{where}: the task must be one of {', '.join(TASKS)}, got {task!r}.")
    return TASKS[task]


def collection(where: str) -> list[Source]:
    """All tables of a place: ``"synthetic"``, ``"openml"`` (TabArena and Higgs), or a folder with an index.json."""
    from crumb.bench import folder, openml, synthetic

    if where == "synthetic":
        return list(synthetic.sources())
    if where == "openml":
        return list(openml.sources())
    return list(folder.sources(Path(where)))


def chosen(sources: list[Source], names: list[str] | None) -> list[Source]:
    """Those that were asked for by name, in the order asked; all without names."""
    if names is None:
        return sources
    by_name = {source.name: source for source in sources}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InvalidInput(f"There is no data set {', '.join(map(repr, unknown))}: `crumb bench datasets` lists them.")
    return [by_name[name] for name in dict.fromkeys(names)]
