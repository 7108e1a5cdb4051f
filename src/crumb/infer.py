"""Stage 3: one pass of the PFN for each context, answers back in the order of the queries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from crumb.pfn.base import Backend, ContextTask, Output
from crumb.progress import progress_bar
from crumb.table import Rows


@dataclass(frozen=True)
class Pool:
    """The training rows as the PFN sees them, with labels: class codes 0 … C−1, or numbers."""

    rows: Rows
    y: np.ndarray
    n_classes: int | None  # None: regression


@dataclass(frozen=True)
class Pass:
    """One distinct context and the queries that it answers."""

    context: np.ndarray
    queries: np.ndarray


def infer(
    backend: Backend,
    pool: Pool,
    contexts: list[np.ndarray],
    labels: np.ndarray,
    queries: Rows,
    output: Output,
    verbose: int = 0,
) -> np.ndarray:
    """Answers (T, …) for all queries."""
    backend.check_output(output)
    passes = distinct_passes(contexts, labels)
    answers: np.ndarray | None = None
    with warnings.catch_warnings(), progress_bar(len(passes), "passes", verbose) as advance:
        # A package that warns about the table warns in every pass; once says it all. Users' own filters come first.
        warnings.filterwarnings("once", append=True)
        for one, answer in zip(passes, _answers(backend, pool, passes, queries, output), strict=True):
            if answers is None:
                answers = np.empty((len(labels), *answer.shape[1:]), dtype=answer.dtype)
            answers[one.queries] = answer
            advance(1)
    assert answers is not None
    return answers


def distinct_passes(contexts: list[np.ndarray], labels: np.ndarray) -> list[Pass]:
    """Clusters with the same rows share a pass; clusters without queries have none.

    A context is a set to the PFN, so its rows go in by row number: equal sets are then equal inputs.
    """
    shared: dict[bytes, tuple[np.ndarray, list[np.ndarray]]] = {}
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        context = np.sort(contexts[labels[members[0]]])
        shared.setdefault(context.tobytes(), (context, []))[1].append(members)
    return [Pass(context, np.sort(np.concatenate(members))) for context, members in shared.values()]


def _answers(
    backend: Backend, pool: Pool, passes: list[Pass], queries: Rows, output: Output
) -> Iterator[np.ndarray]:
    """One answer a pass, in order; contexts that need no network are answered on the spot."""
    asked = [one for one in passes if not _is_trivial(pool.y[one.context], pool.n_classes)]
    network = iter(backend.predict_contexts((_task(pool, one, queries) for one in asked), output))
    for one in passes:
        y = pool.y[one.context]
        if _is_trivial(y, pool.n_classes):
            yield _constant(y[0], len(one.queries), pool.n_classes, output)
        else:
            yield _globally(next(network), y, pool.n_classes, output)


def _task(pool: Pool, one: Pass, queries: Rows) -> ContextTask:
    y = pool.y[one.context]
    if pool.n_classes is not None:
        y = np.unique(y, return_inverse=True)[1]  # 0 … C−1 of this context, none missing
    return ContextTask(_take(pool.rows, one.context), y, _take(queries, one.queries))


def _is_trivial(y: np.ndarray, n_classes: int | None) -> bool:
    """A context of one class has one answer, and so has a regression context of one row."""
    return len(y) == 1 or (n_classes is not None and bool((y == y[0]).all()))


def _constant(value: float, size: int, n_classes: int | None, output: Output) -> np.ndarray:
    if output.kind == "quantiles":
        return np.full((size, len(output.quantiles)), value)
    if output.kind != "proba":
        return np.full(size, value)
    proba = np.zeros((size, n_classes or 0))
    proba[:, int(value)] = 1.0
    return proba


def _globally(answer: np.ndarray, y: np.ndarray, n_classes: int | None, output: Output) -> np.ndarray:
    """From the classes of this context to the classes of the table."""
    if n_classes is None:
        return np.asarray(answer, dtype=np.float64)
    present = np.unique(y)
    if output.kind == "label":
        return present[np.asarray(answer, dtype=np.int64)]
    proba = np.zeros((len(answer), n_classes))
    proba[:, present] = answer
    return proba


def _take(rows: Rows, index: np.ndarray) -> Rows:
    return rows.iloc[index].reset_index(drop=True) if isinstance(rows, pd.DataFrame) else rows[index]
