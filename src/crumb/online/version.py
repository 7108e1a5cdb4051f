"""One version of what a stream answers with: a fitted estimator and the plan that belongs to it."""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from crumb.errors import InvalidInput
from crumb.estimator import CrumbClassifier, CrumbRegressor, quantile_levels
from crumb.infer import answer, context_key, keep_contexts
from crumb.machine import collect_garbage, out_of_memory
from crumb.online.drift import Baseline
from crumb.online.memory import LabelledRows, refitted
from crumb.pfn import Call, Output
from crumb.plan import Plan
from crumb.rng import generator
from crumb.selection.base import nearest_rows
from crumb.table.encoder import Rows
from crumb.table.row import Piece

NEIGHBOURS = 4  # of each query
MOST_DISTANCES = 500_000_000  # between queries and the pool: some seconds
log = logging.getLogger("crumb.online")


@dataclass(frozen=True, eq=False)
class Answer:
    """What a query gets: the answer, and what it was answered with.

    Parameters
    ----------
    value : array or number
        What ``predict_proba`` or ``predict`` gives for this row.
    version : int
        The number of the plan.
    cluster : int
        The cluster whose context answered.
    classes : array or None
        In the order of the probabilities. None: regression.

    Examples
    --------
    >>> answer = Answer(np.array([0.1, 0.9]), 1, 3, classes=np.array(["cat", "dog"]))
    >>> print(answer.classes[answer.value.argmax()])
    dog
    """

    value: Any
    version: int
    cluster: int
    classes: np.ndarray | None


@dataclass(frozen=True, eq=False)
class PlanVersion:
    number: int  # goes up with every refresh
    pool_number: int  # goes up with every refresh that changed the pool
    estimator: Any
    plan: Plan
    baseline: Baseline
    made: float  # seconds since 1970

    @property
    def classes(self) -> np.ndarray | None:
        return getattr(self.estimator, "classes_", None)

    @cached_property
    def keys(self) -> frozenset[bytes]:
        """The names under which the back-end keeps the contexts of this version."""
        pool = self.estimator.pool_
        return frozenset(context_key(pool, context) for context in self.plan.contexts)

    def read(
        self, rows: Sequence[Any], joining: bool = False
    ) -> tuple[list[Piece], np.ndarray] | None:
        """Plain rows, a piece and a point each, in microseconds; None where a table is needed."""
        read = []
        for row in rows:
            one = self.estimator.pool_.encode_row(row, joining)
            if one is None:
                return None
            read.append(one)
        return [piece for piece, _ in read], np.concatenate([point for _, point in read])

    def prepare(self, stop: Callable[[], bool] = lambda: False, call: Call | None = None) -> None:
        """Have ready what the first queries need: as many contexts as fit, the most used first.

        What the back-end keeps for another version stays: both share the cache. Ends early when
        ``stop`` says so. ``call``: calls a function in another process, where no pass waits.
        """
        _ = self.keys
        use = np.bincount(self.plan.labels, minlength=self.plan.n_clusters)
        order = takewhile(lambda _: not stop(), np.argsort(-use, kind="stable"))
        contexts = (self.plan.contexts[cluster] for cluster in order)
        try:
            held = self.estimator.pool_.hold(self.plan.contexts)
            keep_contexts(self.estimator.backend_, held, contexts, call)
        except Exception as error:
            if not out_of_memory(error):
                raise
            log.warning("memory ran out while contexts were prepared: the rest follow when asked")

    def free_memory(self) -> None:
        """A pass ran out of memory: nothing is kept, of any version."""
        self.estimator.backend_.forget()
        collect_garbage(self.estimator.options_.device)

    def answer(self, cluster: int, rows: Rows, output: Output, keep: bool = True) -> list[Answer]:
        """One pass: what the frozen plan says about encoded rows of one cluster."""
        estimator, labels = self.estimator, np.full(len(rows), cluster)
        # Labels are the most probable classes where there are probabilities, as in ``predict``.
        from_proba = output.kind == "label" and "proba" in estimator.backend_.outputs
        asked = Output("proba") if from_proba else output
        values = answer(
            *(estimator.backend_, estimator.pool_, self.plan.contexts, labels, rows, asked),
            again=True,
            keep=keep,
        )
        if from_proba:
            values = values.argmax(axis=1)
        if output.kind == "label":
            values = estimator.classes_[values]
        return [Answer(value, self.number, cluster, self.classes) for value in values]


def check_estimator(estimator: Any) -> Any:
    """A copy of a fitted estimator: fitting the original again must not change the stream."""
    if not isinstance(estimator, (CrumbClassifier, CrumbRegressor)):
        raise InvalidInput(
            f"A stream needs a fitted CrumbClassifier or CrumbRegressor, got {estimator!r}."
        )
    check_is_fitted(estimator)
    if estimator.pool_.on_disk:
        raise InvalidInput("A stream needs a pool in memory: fit a table, or smaller files.")
    return copy.copy(estimator)


def resolve_output(estimator: Any, output: str | None, quantiles: Any = None) -> Output:
    """By default probabilities, labels where the model has none, and means for regression."""
    backend = estimator.backend_
    if output is None:
        output = next(kind for kind in ("proba", "label", "mean") if kind in backend.outputs)
    asked = Output(output, quantile_levels(quantiles) if output == "quantiles" else ())
    if output != "label" or "proba" not in backend.outputs:  # probabilities always give labels
        backend.check_output(asked)
    return asked


def plan_for(
    estimator: Any, points: np.ndarray, plan: Plan | None = None, ahead: bool = True
) -> tuple[Plan, Baseline]:
    """A plan for these queries, and with ``ahead`` for what may come next; what they look like.

    ``plan``: one that was made for them. In a stream one context answers a query: contexts are
    kept ready there, so that each one more would cost as much as the first.
    """
    pool, options = estimator.pool_, estimator.options_
    if plan is None:
        planned = expected_queries(points, pool.points, options.seed) if ahead else points
        plan = estimator.plan_points(planned, evidence=False)
    plan.check_pool(pool.fingerprint)
    plan = replace(plan, settings={**plan.settings, "contexts_per_query": 1})
    return plan, Baseline.of(points, plan.n_clusters, options.bandwidth, options.seed)


class Built(NamedTuple):
    """What a refresh computes. ``estimator``: one with another pool; None: the old one goes on."""

    estimator: Any | None
    plan: Plan
    baseline: Baseline


def build(estimator: Any, pool: LabelledRows | None, recent: Rows, ahead: bool) -> Built:
    """A plan for the recent queries, with another pool where there is one.

    Everything that goes in and comes out can be pickled: it may run in a process of its own.
    """
    fresh = None if pool is None else refitted(estimator, pool)
    used = estimator if fresh is None else fresh
    return Built(fresh, *plan_for(used, used.encode(recent)[1], ahead=ahead))


def expected_queries(points: np.ndarray, pool: np.ndarray, seed: int) -> np.ndarray:
    """The queries, their neighbours in the pool, and as many random rows of the pool.

    A frozen plan answers other queries than those it was made for, and a drifting stream soon asks
    where none of them was. So that some context is near whatever comes, the plan is made for these
    too. How much that helps: docs/online.md.
    """
    rng = generator(seed, "expected queries")
    some = points
    if len(points) * len(pool) > MOST_DISTANCES:
        some = points[rng.permutation(len(points))[: max(1, MOST_DISTANCES // len(pool))]]
    near = np.unique(nearest_rows(pool, some, NEIGHBOURS))
    drawn = rng.permutation(len(pool))[: len(points)]
    return np.concatenate([points, pool[near], pool[drawn]])
