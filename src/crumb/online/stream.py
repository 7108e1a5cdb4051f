"""``CrumbOnline``: queries come one at a time, answers go out in passes shared by those that wait for the same context.

Any thread may submit. One worker thread owns the passes; a second one makes new plans. A query is encoded and routed by
the thread that submits it, under the version that is current then, and answered by that version whatever comes after.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crumb.devices import out_of_memory
from crumb.errors import DeadlineExceeded, InvalidInput, StreamClosed
from crumb.estimator import check_labels
from crumb.online.buffer import Buffers, Key
from crumb.online.clock import Clock
from crumb.online.drift import Drift
from crumb.online.learning import PoolMemory, first_pool, refitted
from crumb.online.observer import Observer, tell
from crumb.online.refresh import Refresher, RefreshPolicy
from crumb.online.settings import check_settings
from crumb.online.stats import COUNTERS, Stats
from crumb.online.version import (
    Answer,
    PlanVersion,
    check_estimator,
    make_version,
    pool_sample,
    resolve_output,
)
from crumb.online.window import Window, latest
from crumb.plan import Plan
from crumb.table.pieces import Piece, Record, gather

log = logging.getLogger("crumb.online")


@dataclass(eq=False)
class Pending:
    """A query that was accepted and is not answered yet: a row of an encoded table, routed by one version."""

    version: PlanVersion
    key: Key
    rows: Piece
    index: int
    came: float  # by the stream's clock
    future: Future[Answer] = field(default_factory=Future)

    def let_go(self) -> None:
        """Whoever keeps the future keeps this, and is not to keep tables and pools with it."""
        del self.version, self.rows


class CrumbOnline:
    """Answers for a stream of queries with the contexts of a frozen plan.

    Answers are those of ``estimator.predict_proba(X, plan=stream.plan)`` (or ``predict``), whatever the order and the
    batches in which the rows come.

    Parameters
    ----------
    estimator : fitted CrumbClassifier or CrumbRegressor
    X : table or None, default=None
        Queries that the first plan is made for. None: a sample of the pool.
    plan : Plan or None, default=None
        A plan that was made for ``X``, in the place of a new one.
    output : {"proba", "label", "mean", "median", "quantiles"} or None, default=None
        What an answer holds. None: probabilities, labels where the model has none, means for regression.
    quantiles : list of float or None, default=None
    b_min : int, default=32
        Queries of one cluster that make a pass worth its while.
    timeout : float, default=0.1
        Seconds after which a query's cluster gets its pass however few are in it.
    max_pending : int, default=10_000
        Queries that may wait for an answer; more are refused with ``StreamFull``.
    refresh : {"never", "periodic", "drift"}, default="never"
        When the latest queries get a plan of their own: every ``refresh_every`` queries, or when a look after so
        many finds that they are no longer those that the plan was made for.
    refresh_every : int or None, default=None
        None: as many as the window holds, and a quarter of that between two looks for drift.
    window : int, default=512
        The latest queries, for which the next plan is made. Contexts are matched to these and answer others: with few
        queries a cluster they fit the others less.
    significance : float, default=0.01
        Probability that a look finds drift where there is none.
    plan_ahead : bool, default=True
        Plan for what may come next too: neighbours of the queries in the pool, and a sample of it. False: for the
        queries alone, as the paper has it.
    max_rows, max_age : int, float or None, default=None
        Rows of the pool, and seconds since they came, beyond which the oldest leave it at the next refresh.
    observer : Observer or None, default=None
        Hears of answers, passes, failures and refreshes, for those who measure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier
    >>> from crumb.online import CrumbOnline
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CrumbClassifier(context_size=60, n_clusters=3).fit(X[::2], y[::2])
    >>> with CrumbOnline(clf, X[1::2], timeout=0.01) as stream:
    ...     answer = stream.submit(X[1]).result()
    >>> answer.value.shape, answer.version
    ((3,), 1)
    """

    def __init__(
        self,
        estimator: Any,
        X: Any = None,
        *,
        plan: Plan | None = None,
        output: str | None = None,
        quantiles: Sequence[float] | None = None,
        b_min: int = 32,
        timeout: float = 0.1,
        max_pending: int = 10_000,
        refresh: str = "never",
        refresh_every: int | None = None,
        window: int = 512,
        significance: float = 0.01,
        plan_ahead: bool = True,
        max_rows: int | None = None,
        max_age: float | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ):
        self._settings = {
            "output": output,
            "quantiles": None if quantiles is None else [float(level) for level in quantiles],
            "b_min": b_min,
            "timeout": timeout,
            "max_pending": max_pending,
            "refresh": refresh,
            "refresh_every": refresh_every,
            "window": window,
            "significance": significance,
            "plan_ahead": plan_ahead,
            "max_rows": max_rows,
            "max_age": max_age,
        }
        check_settings(self._settings)
        estimator, clock = check_estimator(estimator), clock or Clock()
        rows, points = pool_sample(estimator, window) if X is None else estimator.encode(X)
        version = make_version(
            estimator, points, 1, 1, clock.date(), plan, plan_ahead and X is not None
        )
        memory = PoolMemory(first_pool(estimator, clock.date()), max_rows, max_age)
        self._start(version, memory, clock, observer, Stats())
        self._window.add(rows, fresh=False)

    def _start(
        self,
        version: PlanVersion,
        memory: PoolMemory,
        clock: Clock,
        observer: Observer | None,
        stats: Stats,
    ) -> None:
        """Everything that a new stream and one that was loaded have in common."""
        settings = check_settings(self._settings)
        self._output = resolve_output(version.estimator, settings["output"], settings["quantiles"])
        self._version, self._memory, self._clock = version, memory, clock
        self._counts = Counter({name: getattr(stats, name) for name in COUNTERS})
        self._drift: Drift | None = None
        self._observer = observer or Observer()
        self._buffers: Buffers[Pending] = Buffers(
            settings["b_min"], settings["timeout"], settings["max_pending"]
        )
        self._window = Window(settings["window"])
        self._significance = settings["significance"]
        self._in_pass: list[Pending] = []
        self._retired: dict[int, PlanVersion] = {}  # replaced, and somebody may still wait for them
        self._wakes = (
            -math.inf
        )  # when the worker will look at the buffers by itself; while it is awake, it will anyway
        self._closed = False
        self._changed = threading.Condition()  # guards everything above
        self._building = threading.Lock()  # one new plan at a time
        version.prepare()
        policy = RefreshPolicy(settings["refresh"], settings["refresh_every"])
        self._refresher = Refresher(policy, self._drifted, self._renew, self._refresh_failed)
        self._worker = threading.Thread(target=self._work, name="crumb-passes", daemon=True)
        self._worker.start()

    # Queries in

    def submit(self, row: Any, deadline: float | None = None) -> Future[Answer]:
        """Ask for one row (a sequence, a Series, a mapping of column names, or a table of one row).

        A query that is not in a pass ``deadline`` seconds from now fails with ``DeadlineExceeded``.
        """
        return self._submit(lambda version: version.encode_row(row), deadline)[0]

    def submit_many(self, X: Any, deadline: float | None = None) -> list[Future[Answer]]:
        """Ask for each row of a table: all of them are accepted, or none is."""
        return self._submit(lambda version: version.encode(X), deadline)

    async def ask(self, row: Any, deadline: float | None = None) -> Answer:
        """``submit`` for asyncio. Who stops waiting gives the place free."""
        return await asyncio.wrap_future(self.submit(row, deadline))

    def _submit(
        self, encode: Callable[[PlanVersion], tuple[Piece, np.ndarray]], deadline: float | None
    ) -> list[Future[Answer]]:
        if deadline is not None and not deadline > 0:
            raise InvalidInput(f"deadline must be a positive number of seconds, got {deadline!r}.")
        while True:
            version = self._version
            self._check_open()
            rows, points = encode(version)
            if not isinstance(rows, Record):
                rows = rows.copy()  # the caller may write to the row again before it is answered
            clusters, now = version.plan.route(points).tolist(), self._clock.now()
            items = [
                Pending(version, (version.number, c), rows, i, now) for i, c in enumerate(clusters)
            ]
            with self._changed:
                if (
                    version is self._version
                ):  # else a new plan came meanwhile, and reads rows in its own way
                    self._accept(items, rows, now, deadline)
                    break
        for item in items:
            item.future.add_done_callback(partial(self._forget, item))
        self._refresher.saw(len(items))
        return [item.future for item in items]

    def _accept(
        self, items: list[Pending], rows: Piece, now: float, deadline: float | None
    ) -> None:
        self._check_open()
        try:
            due = self._buffers.add([(item.key, item) for item in items], now, deadline)
        except Exception:
            self._counts["refused"] += len(items)
            raise
        self._window.add(rows)
        self._counts["accepted"] += len(items)
        if due < self._wakes:
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed("This stream is closed: it takes no more queries.")

    def _forget(self, item: Pending, future: Future[Answer]) -> None:
        """Runs when a future is done: one that was cancelled gives its place free."""
        item.let_go()
        if future.cancelled():
            with self._changed:
                waited = self._buffers.discard(item.key, item)
                self._counts["cancelled"] += waited
            if waited:
                future.set_running_or_notify_cancel()  # or a flush would wait for it for ever
            self._free_retired()

    # Answers out: the worker thread

    def _work(self) -> None:
        while (turn := self._next_turn()) is not None:
            late, batch = turn
            if late:
                self._fail(
                    late,
                    DeadlineExceeded(
                        "The deadline of this query came before its pass: too many wait."
                    ),
                )
            if batch:
                self._answer(batch)
            with self._changed:
                self._in_pass = []  # only now: until their futures are done, a flush has to wait for them
            self._free_retired()

    def _next_turn(self) -> tuple[list[Pending], list[Pending]] | None:
        """Wait for queries past their deadline or a buffer that is due; None when the stream is closed and empty."""
        with self._changed:
            while True:
                now = self._clock.now()
                late, key = self._buffers.expired(now), self._buffers.due(now)
                if late or key is not None:
                    break
                self._wakes = self._buffers.next_due()
                if self._closed and self._wakes == math.inf:
                    return None
                self._clock.wait(
                    self._changed, None if self._wakes == math.inf else self._wakes - now
                )
            self._wakes = -math.inf
            batch = [] if key is None else self._buffers.take(key)
            self._in_pass = late + batch
            return late, batch

    def _answer(self, batch: list[Pending]) -> None:
        asked = [item for item in batch if item.future.set_running_or_notify_cancel()]
        results = self._results(asked) if asked else []
        errors = {id(result): result for result in results if isinstance(result, BaseException)}
        answered = sum(isinstance(result, Answer) for result in results)
        with self._changed:
            self._buffers.done(len(batch))
            self._counts["answered"] += answered
            self._counts["failed"] += len(asked) - answered
            self._counts["cancelled"] += len(batch) - len(asked)
        now = self._clock.now()
        for error in errors.values():
            tell(self._observer.failed, sum(result is error for result in results), error)
        if answered:
            waits = [
                now - item.came
                for item, result in zip(asked, results, strict=True)
                if isinstance(result, Answer)
            ]
            tell(self._observer.answered, waits)
        for item, result in zip(asked, results, strict=True):
            _resolve(item.future, result)

    def _results(self, asked: list[Pending]) -> list[Answer | BaseException]:
        """An answer or an error for each. Where memory runs out: once more without what is kept, in two halves."""
        results = self._pass(asked)
        if not (isinstance(results[0], BaseException) and out_of_memory(results[0])):
            return results
        results.clear()  # the error holds on to what filled the memory
        asked[0].version.free_memory()
        middle = (len(asked) + 1) // 2
        return [
            result
            for half in (asked[:middle], asked[middle:])
            if half
            for result in self._pass(half, keep=False)
        ]

    def _pass(self, items: list[Pending], keep: bool = True) -> list[Answer | BaseException]:
        started = self._clock.now()
        with self._changed:
            self._counts["passes"] += 1
        try:
            rows = gather([(item.rows, item.index) for item in items])
            answers = items[0].version.answer(items[0].key[1], rows, self._output, keep)
        except (
            BaseException
        ) as error:  # those who wait must hear of it, and the worker must live on
            return [error] * len(items)
        tell(self._observer.passed, items[0].key[1], len(items), self._clock.now() - started)
        return list(answers)

    def _fail(self, items: list[Pending], error: Exception) -> None:
        """No pass for these any more."""
        asked = [item for item in items if item.future.set_running_or_notify_cancel()]
        with self._changed:
            self._buffers.done(len(items))
            self._counts["failed"] += len(asked)
            self._counts["cancelled"] += len(items) - len(asked)
        if asked:
            tell(self._observer.failed, len(asked), error)
        for item in asked:
            _resolve(item.future, error)

    def flush(self, wait_for_answers: bool = True) -> None:
        """Answer now what waits now, however few there are."""
        with self._changed:
            futures = [item.future for item in (*self._buffers.waiting(), *self._in_pass)]
            self._buffers.hurry()
            self._changed.notify_all()
        if (
            wait_for_answers and threading.current_thread() is not self._worker
        ):  # it cannot wait for itself
            wait(futures)

    # New plans

    @property
    def plan(self) -> Plan:
        """The plan that a query would be answered with now."""
        return self._version.plan

    @property
    def estimator(self) -> Any:
        """The estimator that belongs to ``plan``: after rows were learned, one with another pool."""
        return self._version.estimator

    @property
    def version(self) -> int:
        return self._version.number

    def refresh(self) -> int:
        """Make a plan for the latest queries, with the pool as it is now; the number of the new version.

        Queries go on being answered by the old version until the new one is complete. It takes the place of the old one
        at once; what waits then is answered by the old one without delay.
        """
        try:
            return self._renew()
        except Exception as error:
            self._refresh_failed(error)
            raise

    def _renew(self) -> int:
        started = self._clock.now()
        with self._building:
            with self._changed:
                old, pieces, count = self._version, self._window.pieces(), len(self._window)
            upcoming = self._memory.upcoming(self._clock.date())
            estimator = (
                old.estimator if upcoming is None else refitted(old.estimator, upcoming.pool)
            )
            points = estimator.encode(latest(pieces, count))[1]
            number, pool_number = old.number + 1, old.pool_number + int(upcoming is not None)
            ahead = bool(self._settings["plan_ahead"])
            new = make_version(
                estimator, points, number, pool_number, self._clock.date(), ahead=ahead
            )
            new.prepare()
            with self._changed:
                if upcoming is not None:
                    self._memory.commit(upcoming)
                self._version, self._window.fresh = new, 0
                self._retired[old.number] = old
                self._buffers.hurry()
                self._counts["refreshes"] += 1
                self._changed.notify_all()
        self._free_retired()
        tell(self._observer.refreshed, number, self._clock.now() - started)
        return number

    def _free_retired(self) -> None:
        """Nothing is kept of versions that were replaced and for which nobody waits any more."""
        with self._changed:
            if not self._retired:
                return
            busy = self._buffers.versions() | {item.key[0] for item in self._in_pass}
            gone = [
                self._retired.pop(number) for number in list(self._retired) if number not in busy
            ]
            used = frozenset().union(
                *(version.keys for version in (self._version, *self._retired.values()))
            )
        for version in gone:
            version.forget(version.keys - used)

    def _refresh_failed(self, error: BaseException) -> None:
        with self._changed:
            self._counts["refresh_failures"] += 1
        tell(self._observer.refresh_failed, error)

    def drift(self) -> Drift:
        """Hold the queries since the plan was made (the whole window if there are none) against those behind it."""
        with self._changed:
            version, pieces = self._version, self._window.pieces()
            count = self._window.fresh or len(self._window)
        points = version.encode(latest(pieces, count))[1]
        found = version.baseline.compare(points, self._significance, version.number)
        with self._changed:
            self._drift = found
        tell(self._observer.looked, found)
        return found

    def _drifted(self) -> bool:
        """Whether the policy's refresh is needed; drift is looked for once half of the window is new."""
        if self._refresher.policy.kind == "periodic":
            return True
        return 2 * self._window.fresh >= self._window.size and self.drift().found

    def learn(self, X: Any, y: Any) -> None:
        """Labelled rows for the pool; the next refresh sees them."""
        labels = check_labels(y)
        rows = self._version.encode(X)[0].copy()  # the caller may write to X again
        if len(rows) != len(labels):
            raise InvalidInput(f"X has {len(rows)} rows, y has {len(labels)} labels.")
        if self._version.classes is None:
            labels = _finite(labels)
        self._memory.add(rows, labels, self._clock.date())

    # The stream as a whole

    def stats(self) -> Stats:
        with self._changed:
            version = self._version
            return Stats(
                **{name: self._counts[name] for name in COUNTERS},
                pending=self._buffers.pending,
                version=version.number,
                pool_version=version.pool_number,
                plan_age=self._clock.date() - version.made,
                drift=self._drift,
                fill=self._buffers.fill(version.number),
            )

    def save(self, path: str | Path) -> None:
        """Write plan, pool, window and counters to one file without pickle; queries that wait are not in it."""
        from crumb.online.state import save

        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        observer: Observer | None = None,
        clock: Clock | None = None,
        **changes: Any,
    ) -> CrumbOnline:
        """A stream that goes on where a saved one stood. ``changes`` replace parameters of the estimator."""
        from crumb.online.state import load

        return load(cls, path, clock or Clock(), observer, changes)

    def close(self, drain: bool = True) -> None:
        """Take no more queries; answer those that wait, or with ``drain=False`` tell them that they will not be."""
        with self._changed:
            self._closed = True
            abandoned = [] if drain else self._buffers.take_all()
            self._buffers.hurry()
            self._changed.notify_all()
        if abandoned:
            self._fail(
                abandoned, StreamClosed("The stream was closed before this query was answered.")
            )
        self._refresher.close()
        self._free_retired()  # the last to wait for a version may have been told that it waits in vain
        if (
            threading.current_thread() is not self._worker
        ):  # a callback of an answer may close the stream
            self._worker.join()

    def __enter__(self) -> CrumbOnline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _resolve(future: Future[Answer], result: Answer | BaseException) -> None:
    """Hand out an answer or an error; what a callback of whoever waits does is not to end the worker."""
    try:
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
    except BaseException as error:  # Exceptions end in the future itself
        log.warning("a callback of an answer failed: %s", type(error).__name__)


def _finite(labels: np.ndarray) -> np.ndarray:
    try:
        numbers = labels.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput("Regression needs numbers as labels.") from error
    if not np.isfinite(numbers).all():
        raise InvalidInput("Labels must be finite numbers.")
    return numbers
