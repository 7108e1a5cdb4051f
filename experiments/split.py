"""Which rows are pool and which are queries. Queries are set aside first: no context has them."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from crumb import select_contexts
from crumb.errors import InvalidInput
from experiments.dataset import Dataset
from experiments.protocol import Run, TableSize

DRIFT_ROWS = 50_000  # of a table: the paper's pools below the median have about 25,000
BLOCK = 5  # neighbours along PC1, of which one is set aside


class Split(NamedTuple):
    pool: np.ndarray
    queries: np.ndarray


def split(run: Run, dataset: Dataset) -> Split:
    """The rows of a run, from its seed; the same for every method and model."""
    if run.N is None or run.T is None:
        raise InvalidInput(
            f"The size of the table {run.dataset} was not known when the runs were planned."
        )
    drift = run.tau is not None
    return drift_split(run, dataset.X) if drift else random_split(run, len(dataset.y))


def random_split(run: Run, rows: int) -> Split:
    """A fifth is set aside. Smaller pools and query sets of one seed are parts of larger ones."""
    size = TableSize(rows, rows)
    if size.pool() < (run.N or 0) or size.held_out < (run.T or 0):
        raise InvalidInput(
            f"The table {run.dataset} has changed: {rows} rows are too few for the planned run."
        )
    order = _rng(run, "split").permutation(rows)
    return Split(order[size.held_out :][: run.N], order[: size.held_out][: run.T])


def drift_sizes(size: TableSize) -> tuple[int, int]:
    """N and T under drift: known before the table is read, and the same for every τ."""
    half = _drift_rows(size) // 2
    queries = max(1, half // BLOCK - 2)  # an interval may cut a block at each end
    return half - half // BLOCK - 1, min(size.queries, queries)


def drift_split(run: Run, X: pd.DataFrame) -> Split:
    """The pool below the median of PC1; queries from [τ/2, 0.5 + τ/2] of the rows set aside.

    Of every five neighbours along PC1 one, drawn at random, is set aside. So the pool is fixed for
    a seed, every τ has as many rows to draw queries from, and at τ = 0, where pool and queries come
    from the same interval, they share no row.
    """
    assert run.tau is not None
    order, q, aside = set_aside(run, X)
    pool = order[(q < 0.5) & ~aside]
    asked = order[(q >= run.tau / 2) & (q <= 0.5 + run.tau / 2) & aside]
    if len(pool) < (run.N or 0) or len(asked) < (run.T or 0):
        raise InvalidInput(f"The table {run.dataset} has too few rows to be cut along PC1.")
    rng = _rng(run, "drift")
    return Split(rng.permutation(pool)[: run.N], rng.permutation(asked)[: run.T])


def set_aside(run: Run, X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in the order of PC1, their quantiles, and which of them no pool may have."""
    rng = _rng(run, "split")
    cut = int(run.drawn.removeprefix("max_rows=")) if run.drawn else None
    rows = _drift_rows(TableSize(len(X), 0, cut))
    drawn = np.sort(rng.permutation(len(X))[:rows])
    order = drawn[np.argsort(first_component(X.iloc[drawn]), kind="stable")]
    position = np.arange(len(order))
    one_of_block = rng.integers(BLOCK, size=len(order) // BLOCK + 1)
    aside = position % BLOCK == one_of_block[position // BLOCK]
    return order, position / max(1, len(order) - 1), aside


def first_component(X: pd.DataFrame) -> np.ndarray:
    """PC1 of the standardised features, categories as indicators: the library's selection space."""
    X = X.reset_index(drop=True)
    plan = select_contexts(X, X.iloc[:1], strategy="uniform", context_size=1, bandwidth=1.0)
    pca = PCA(n_components=1, svd_solver="covariance_eigh")
    return pca.fit_transform(plan.pool_points)[:, 0]


def _drift_rows(size: TableSize) -> int:
    """Rows of the table, so that the pool (four fifths of one half) keeps to the user's limit."""
    most = DRIFT_ROWS if size.max_rows is None else min(DRIFT_ROWS, int(size.max_rows * 2.5))
    return min(size.rows, most)


def _rng(run: Run, purpose: str) -> np.random.Generator:
    """One generator for each table, seed and purpose; methods and models share it."""
    names = (purpose, run.dataset)
    return np.random.default_rng([run.seed, *(zlib.crc32(name.encode()) for name in names)])
