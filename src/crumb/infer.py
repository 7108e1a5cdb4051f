"""Stage 3: one pass of the PFN for each context, answers back in the order of the queries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.machine import progress_bar
from crumb.mixing import averaged, pooled
from crumb.pfn.base import Backend, Call, ContextTask, Output, TargetScale
from crumb.pfn.contexts import Numbers, Slice
from crumb.pool import Labelled, Pool
from crumb.table.encoder import Rows

if TYPE_CHECKING:
    from crumb.budget import Clock

MIXED = 10_000  # queries whose answers are mixed at a time
ABSENT = -1.0  # the probability of a class that a context does not have
BREATH = 0.001  # seconds between contexts that are made ready, so that waiting passes get a turn


@dataclass(frozen=True)
class Pass:
    """One distinct context and what it is asked."""

    context: np.ndarray  # rising
    asked: np.ndarray  # places among the labels: those of queries, or of their turns
    wanted: np.ndarray  # the context, most wanted rows first


def answer(
    backend: Backend,
    pool: Pool,
    contexts: list[np.ndarray],
    labels: np.ndarray,
    queries: Rows,
    output: Output,
    **how: Any,
) -> np.ndarray:
    """``infer`` with the guide of the pool and its mean targets, if it has any."""

    def network(rows: Rows) -> np.ndarray:
        rows = rows if pool.means is None else pool.means.queries(rows)
        return infer(backend, pool.hold(contexts), contexts, labels, rows, output, **how)

    return network(queries) if pool.guide is None else pool.guide.lead(queries, output, network)


def infer(
    backend: Backend,
    pool: Labelled,
    contexts: list[np.ndarray],
    labels: np.ndarray,
    queries: Rows,
    output: Output,
    verbose: int = 0,
    again: bool = False,
    keep: bool = True,
    clock: Clock | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Answers (T, …) for all queries.

    ``labels`` (T,): which context answers a query; or (T, m) with ``weights`` (T, m) where several
    do, and their answers are mixed. ``again``: the same contexts will be asked again; ``keep``:
    they may be kept for that. ``clock`` may cut contexts, whose first rows stay.
    """
    backend.check_output(output)
    labels = labels.reshape(len(labels), -1)
    if weights is None or output.kind == "label":  # the labels of classes cannot be mixed
        labels, weights = labels[:, :1], np.ones((len(labels), 1))
    who, turn = np.nonzero(weights)  # (P,) a query, and its first, second … context
    passes, result = distinct_passes(contexts, labels[who, turn]), None
    asked = [_teaches(backend, pool, one.context) for one in passes]
    teaching, rows = [i for i, ask in enumerate(asked) if ask], Numbers(queries, pool.numbers)
    in_time = teaching if clock is None else _cut(clock, backend, pool, passes, teaching)
    tasks = (
        _task(backend, pool, passes[i].context, Slice(rows, who[passes[i].asked]), again, keep)
        for i in in_time
    )
    answers = iter(backend.predict_contexts(tasks, output))
    with progress_bar(len(passes), "passes", verbose) as advance:
        for i, ask in enumerate(asked):
            raw = next(answers) if ask else None
            one = passes[i]  # as it was when it was asked
            y = pool.labels(one.context)
            if raw is not None:
                answer = _globally(raw, y, pool.n_classes, output, backend)
            else:  # a context that teaches nothing is answered without the model
                alone = _marginal(y, pool.n_classes, output)
                answer = np.broadcast_to(alone, (len(one.asked), *alone.shape))
            if result is None:
                result = np.empty((len(who), *answer.shape[1:]), dtype=answer.dtype)
            result[one.asked] = answer
            advance(1)
    assert result is not None
    return _mixed(result, who, weights[who, turn], output)


def _mixed(answers: np.ndarray, who: np.ndarray, weights: np.ndarray, output: Output) -> np.ndarray:
    """One answer for each query. Where there was one, it stays as it is to the last bit."""
    mix = pooled if output.kind == "proba" else averaged
    first = np.flatnonzero(np.diff(who, prepend=-1))  # of each query
    mixed, counts = answers[first], np.diff(np.append(first, len(who)))
    for start in range(0, len(first), MIXED):
        several = counts[start : start + MIXED] > 1
        if several.any():
            mine = first[start] + np.flatnonzero(np.repeat(several, counts[start : start + MIXED]))
            found = mix(answers[mine], who[mine], weights[mine])
            mixed[start : start + MIXED][several] = found
    if output.kind == "proba":
        mixed[mixed < 0] = 0.0
    return mixed


def _cut(
    clock: Clock, backend: Backend, pool: Labelled, passes: list[Pass], which: list[int]
) -> Iterator[int]:
    """Some passes one after the other, each cut to what there is time for when its turn comes."""
    clock.start((len(passes[i].context), len(passes[i].asked)) for i in which)
    for i in which:
        one = passes[i]
        size = clock.rows(len(one.context), len(one.asked))
        if size < len(one.context):
            passes[i] = _shortened(backend, pool, one, size)
        yield i


def _shortened(backend: Backend, pool: Labelled, one: Pass, size: int) -> Pass:
    """The most wanted rows, and one with another label; more of them where these are all alike."""
    y = pool.labels(one.wanted)
    other = int(np.argmax(y != y[0]))
    wanted = np.insert(np.delete(one.wanted, other), 1, one.wanted[other])
    while not _teaches(backend, pool, wanted[:size]):
        size *= 2
    return Pass(np.sort(wanted[:size]), one.asked, wanted[:size])


def keep_contexts(
    backend: Backend, pool: Labelled, contexts: Iterable[np.ndarray], call: Call | None = None
) -> None:
    """Make contexts ready before their queries come, the first ones first, as room allows.

    ``call``: calls a function in another process.
    """
    for context in contexts:
        rows, nobody = np.sort(context), Slice(pool.numbers, np.empty(0, dtype=np.int64))
        if _teaches(backend, pool, rows):
            backend.keep(_task(backend, pool, rows, nobody, again=True, keep=True), call)
            time.sleep(BREATH)


def context_key(pool: Labelled, context: np.ndarray) -> bytes:
    """What tells one context from another, whatever the order of its rows."""
    return hashlib.sha256(pool.token + np.sort(context).tobytes()).digest()


def distinct_passes(contexts: list[np.ndarray], labels: np.ndarray) -> list[Pass]:
    """Clusters with the same rows share a pass; clusters that nobody asks have none.

    To the PFN a context is a set. Its rows go in by row number, so equal sets are equal inputs.
    """
    shared: dict[bytes, tuple[np.ndarray, np.ndarray, list[np.ndarray]]] = {}
    order = np.argsort(labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        wanted = contexts[labels[members[0]]]
        context = np.sort(wanted)
        shared.setdefault(context.tobytes(), (context, wanted, []))[2].append(members)
    every = shared.values()
    return [Pass(rows, np.sort(np.concatenate(some)), wanted) for rows, wanted, some in every]


def _task(
    backend: Backend, pool: Labelled, context: np.ndarray, queries: Slice, again: bool, keep: bool
) -> ContextTask:
    y = pool.labels(context)
    if pool.n_classes is not None:
        y = np.unique(y, return_inverse=True)[1]  # 0 … C−1 of this context, none missing
    else:
        y = _scale(backend, y).scaled(y)
    key = context_key(pool, context) if again else None
    return ContextTask(pool.slice(context), y, queries, key, keep)


def _scale(backend: Backend, y: np.ndarray) -> TargetScale:
    return TargetScale.of(y) if backend.scales_targets else TargetScale()


def _teaches(backend: Backend, pool: Labelled, context: np.ndarray) -> bool:
    """Whether a context has two different labels, and two different rows to tell them by.

    Without them there is nothing to learn: TabPFN and many scikit-learn estimators refuse such a
    context, and TabICL answers with noise.
    """
    y = pool.labels(context)
    if not (y != y[0]).any():
        return False
    return pool.numbers.differ(pool.places(context), backend.missing_is_a_value)


def _marginal(y: np.ndarray, n_classes: int | None, output: Output) -> np.ndarray:
    """What the labels alone say: the answer of a context that teaches nothing else."""
    if n_classes is not None:
        counts = np.bincount(y, minlength=n_classes)
        shares = np.where(counts, counts / len(y), ABSENT)
        return shares if output.kind == "proba" else np.asarray(counts.argmax())
    unit = TargetScale.of(y).unit  # sums of large numbers would overflow
    y = y / unit
    if output.kind == "quantiles":
        return unit * np.quantile(y, output.quantiles)
    return np.asarray(unit * (np.median(y) if output.kind == "median" else y.mean()))


def _globally(
    answer: np.ndarray, y: np.ndarray, n_classes: int | None, output: Output, backend: Backend
) -> np.ndarray:
    """From the classes, or the scale, of this context to those of the table."""
    if n_classes is None:
        return _scale(backend, y).unscaled(answer)
    present = np.unique(y)
    if output.kind == "label":
        return present[np.asarray(answer, dtype=np.int64)]
    proba = np.full((len(answer), n_classes), ABSENT)
    proba[:, present] = answer / answer.sum(axis=1, keepdims=True, dtype=np.float64)  # sum to 1
    return proba
