"""A few generated tables, for tests and for a first try without any data.

In most of them the target depends on the group of a row, so that a context from the right region is
worth more than a random one. The same name and size give the same table on every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.dataset import Dataset

Rng = np.random.Generator
XY = tuple[pd.DataFrame, np.ndarray]


def _groups(rng: Rng, rows: int, groups: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clouds: the group of each row, and where the row lies in it."""
    centres = rng.normal(scale=4.0, size=(groups, columns))
    group = rng.integers(groups, size=rows)
    return group, centres[group] + rng.normal(size=(rows, columns))


def _frame(matrix: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(matrix, columns=[f"x{j}" for j in range(matrix.shape[1])])


def _local_rules(rng: Rng, rows: int) -> XY:
    """Two classes; each of 16 clouds is cut by a plane of its own."""
    group, X = _groups(rng, rows, 16, 5)
    planes = rng.normal(size=(16, 5))
    side = ((X - X.mean(axis=0)) * planes[group]).sum(axis=1)
    offset = pd.Series(side).groupby(group).median().reindex(range(16)).to_numpy()
    return _frame(X), (side + rng.normal(scale=0.5, size=rows) > offset[group]).astype(int)


def _board(rng: Rng, rows: int) -> XY:
    """Two classes on a board of 6 × 6 squares, beside two columns of noise."""
    X = rng.uniform(0, 6, size=(rows, 4))
    y = (np.floor(X[:, 0]) + np.floor(X[:, 1])).astype(int) % 2
    return _frame(X), np.where(rng.random(rows) < 0.05, 1 - y, y)


def _mixed(rng: Rng, rows: int) -> XY:
    """Four classes; a category says which of the numbers counts. Some values are missing."""
    kind = rng.integers(4, size=rows)
    X = rng.normal(size=(rows, 4))
    counted = X[np.arange(rows), kind]
    y = np.digitize(counted + rng.normal(scale=0.2, size=rows), [-0.7, 0.0, 0.7])
    frame = _frame(np.where(rng.random(X.shape) < 0.05, np.nan, X))
    frame["kind"] = pd.Categorical.from_codes(kind, categories=["north", "east", "south", "west"])
    frame["flag"] = rng.random(rows) < 0.3
    return frame, y


def _rings(rng: Rng, rows: int) -> XY:
    """Three classes, unequally frequent, on rings around eight centres."""
    group, _ = _groups(rng, rows, 8, 2)
    centres = rng.normal(scale=6.0, size=(8, 2))
    y = rng.choice(3, p=[0.6, 0.3, 0.1], size=rows)
    angle = rng.uniform(0, 2 * np.pi, rows)
    radius = 1.0 + y + rng.normal(scale=0.25, size=rows)
    X = centres[group] + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return _frame(np.column_stack([X, rng.normal(size=rows)])), y


def _slopes(rng: Rng, rows: int) -> XY:
    """A number; every cloud has a slope and a level of its own."""
    group, X = _groups(rng, rows, 12, 4)
    slopes, levels = rng.normal(size=(12, 4)), rng.normal(scale=5.0, size=12)
    y = (X * slopes[group]).sum(axis=1) + levels[group] + rng.normal(scale=0.3, size=rows)
    return _frame(X), y


def _waves(rng: Rng, rows: int) -> XY:
    """A number that oscillates ever faster along the first column, dense at its start."""
    X = rng.uniform(0, 1, size=(rows, 3))
    X[: rows // 2, 0] **= 4
    order = rng.permutation(rows)
    X = X[order]
    y = np.sin(12 * np.pi * X[:, 0] ** 2) + X[:, 1] + rng.normal(scale=0.1, size=rows)
    return _frame(X), y


MADE: dict[str, tuple[str, int, Callable[[Rng, int], XY]]] = {
    "local-rules": ("classification", 4_000, _local_rules),
    "board": ("classification", 3_000, _board),
    "mixed": ("classification", 2_500, _mixed),
    "rings": ("classification", 2_000, _rings),
    "slopes": ("regression", 3_000, _slopes),
    "waves": ("regression", 2_000, _waves),
}


@dataclass(frozen=True)
class SyntheticTable:
    """A table that is made when it is asked for."""

    name: str
    rows: int
    problem: None = None
    origin: str = "synthetic"

    @property
    def task(self) -> str:
        return MADE[self.name][0]

    @property
    def columns(self) -> int:
        return MADE[self.name][2](np.random.default_rng(0), 16)[0].shape[1]

    def load(self) -> Dataset:
        task, _, make = MADE[self.name]
        X, y = make(np.random.default_rng(zlib.crc32(self.name.encode())), self.rows)
        return Dataset(self.name, task, X, y, self.origin)

    def fetch(self) -> None:
        """Nothing to bring."""


def sources() -> list[SyntheticTable]:
    return [SyntheticTable(name, rows) for name, (_, rows, _) in MADE.items()]
