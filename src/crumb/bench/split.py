"""Which rows are pool and which are queries. Queries are set aside first: none can find itself in its context."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from crumb.bench.dataset import Dataset
from crumb.bench.protocol import Room, Run
from crumb.errors import InvalidInput
from crumb.table.encoder import TableEncoder, to_rows
from crumb.table.space import SelectionSpace

DRIFT_ROWS = 50_000  # of a table: the paper's pools below the median have about 25,000
BLOCK = 5  # neighbours along PC1, of which one is set aside


class Split(NamedTuple):
    pool: np.ndarray
    queries: np.ndarray


def split(run: Run, dataset: Dataset) -> Split:
    """The rows of a run, from its seed; the same for every method and model."""
    if run.N is None or run.T is None:
        raise InvalidInput(f"The size of the table {run.dataset} was not known when the runs were planned.")
    return drift_split(run, dataset.X) if run.tau is not None else random_split(run, len(dataset.y))


def random_split(run: Run, rows: int) -> Split:
    """A fifth is set aside. Smaller pools and fewer queries are parts of the larger ones of the same seed."""
    room = Room(rows, rows)
    if room.pool() < (run.N or 0) or room.held_out < (run.T or 0):
        raise InvalidInput(
            f"The table {run.dataset} has changed: {rows} rows are too few for the run that was planned."
        )
    order = _rng(run, "split").permutation(rows)
    return Split(order[room.held_out :][: run.N], order[: room.held_out][: run.T])


def drift_sizes(room: Room) -> tuple[int, int]:
    """N and T under drift: known before the table is read, and the same for every window."""
    half = _drift_rows(room) // 2
    return half - half // BLOCK - 1, min(
        room.queries, max(1, half // BLOCK - 2)
    )  # a window may cut a block at each end


def drift_split(run: Run, X: pd.DataFrame) -> Split:
    """The pool below the median of PC1, whatever τ is; queries from the window [τ/2, 0.5 + τ/2] of the rows set aside.

    Of every five neighbours along PC1 one, drawn at random, is set aside. So the pool is fixed for a seed, each window
    has as many rows to draw queries from, and at τ = 0, where the windows of pool and queries coincide, they share no
    row.
    """
    assert run.tau is not None
    order, q, aside = set_aside(run, X)
    pool = order[(q < 0.5) & ~aside]
    window = order[(q >= run.tau / 2) & (q <= 0.5 + run.tau / 2) & aside]
    if len(pool) < (run.N or 0) or len(window) < (run.T or 0):
        raise InvalidInput(f"The table {run.dataset} has too few rows for windows along its first component.")
    rng = _rng(run, "drift")
    return Split(rng.permutation(pool)[: run.N], rng.permutation(window)[: run.T])


def set_aside(run: Run, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of PC1, their quantiles, and which of them no pool may have."""
    rng = _rng(run, "split")
    drawn = np.sort(rng.permutation(len(X))[: _drawn_rows(run, len(X))])
    order = drawn[np.argsort(first_component(X.iloc[drawn]), kind="stable")]
    position = np.arange(len(order))
    one_of_block = rng.integers(BLOCK, size=len(order) // BLOCK + 1)
    return order, position / max(1, len(order) - 1), position % BLOCK == one_of_block[position // BLOCK]


def first_component(X: pd.DataFrame) -> np.ndarray:
    """PC1 of the standardised features, categories as indicators, as the selection space has them."""
    encoder = TableEncoder()
    rows = encoder.fit_transform(to_rows(X.reset_index(drop=True), min_rows=2))
    points = SelectionSpace().fit_transform(rows, encoder)
    return PCA(n_components=1, svd_solver="covariance_eigh").fit_transform(points)[:, 0]


def _drift_rows(room: Room) -> int:
    """Of the table, so that the pool keeps to what the user allows: it has four fifths of one half."""
    most = DRIFT_ROWS if room.max_rows is None else min(DRIFT_ROWS, int(room.max_rows * 2.5))
    return min(room.rows, most)


def _drawn_rows(run: Run, rows: int) -> int:
    cut = int(run.drawn.removeprefix("max_rows=")) if run.drawn else None
    return _drift_rows(Room(rows, 0, cut))


def _rng(run: Run, purpose: str) -> np.random.Generator:
    """One stream for each table, seed and purpose; methods and models share it."""
    return np.random.default_rng([run.seed, zlib.crc32(purpose.encode()), zlib.crc32(run.dataset.encode())])
