"""The worker of a stream: one thread that owns the passes.

    submit ──▶ buffers, one a cluster ──▶ worker: takes the buffer that is due ──▶ one pass
                                                  ──▶ futures get their answers

A buffer is due when it is full enough, when its oldest query has waited long enough, or when it is
hurried. Everything here that several threads share is guarded by ``changed``.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial

from crumb.devices import out_of_memory
from crumb.errors import DeadlineExceeded, StreamClosed
from crumb.online.buffer import Buffers, Key
from crumb.online.clock import Clock
from crumb.online.observer import Observer, tell
from crumb.online.options import StreamOptions
from crumb.online.version import Answer, PlanVersion
from crumb.pfn import Output
from crumb.table.pieces import Piece, gather

log = logging.getLogger("crumb.online")


@dataclass(eq=False)
class Pending:
    """A query that was accepted and has no answer yet: one row of an encoded piece."""

    version: PlanVersion
    key: Key
    rows: Piece
    index: int
    came: float  # by the stream's clock
    future: Future[Answer] = field(default_factory=Future)

    def let_go(self) -> None:
        """The client may keep the future, and with it this; tables and pools must not stay."""
        del self.version, self.rows


class Worker:
    """Answers the queries in its buffers.

    ``idle`` is called, without the lock, whenever queries have left the buffers.
    """

    def __init__(
        self,
        options: StreamOptions,
        output: Output,
        clock: Clock,
        observers: Sequence[Observer],
        counts: Counter[str],
        idle: Callable[[], None],
    ):
        self.buffers: Buffers[Pending] = Buffers(
            options.b_min, options.timeout, options.max_pending
        )
        self.counts, self.changed = counts, threading.Condition()
        self._output, self._clock, self._observers, self._idle = output, clock, observers, idle
        self._in_pass: list[Pending] = []
        self._wakes = -math.inf  # when the thread looks at the buffers next; -inf: it is awake
        self.closed = False
        self._thread = threading.Thread(target=self._run, name="crumb-passes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # Called with the lock held

    def check_open(self) -> None:
        if self.closed:
            raise StreamClosed("This stream is closed: it takes no more queries.")

    def accept(self, items: list[Pending], now: float, deadline: float | None) -> None:
        """Take all of these queries, or none of them."""
        self.check_open()
        try:
            due = self.buffers.add([(item.key, item) for item in items], now, deadline)
        except Exception:
            self.counts["refused"] += len(items)
            raise
        self.counts["accepted"] += len(items)
        if due < self._wakes:
            self.changed.notify_all()

    def hurry(self) -> None:
        """Everything that waits now is due now."""
        self.buffers.hurry()
        self.changed.notify_all()

    def versions(self) -> set[int]:
        """The numbers of the plans that queries still wait for."""
        return self.buffers.versions() | {item.key[0] for item in self._in_pass}

    # Called without the lock

    def watch(self, items: list[Pending]) -> None:
        """Free the places of queries that are cancelled."""
        for item in items:
            item.future.add_done_callback(partial(self._forget, item))

    def flush(self, wait_for_answers: bool = True) -> None:
        with self.changed:
            futures = [item.future for item in (*self.buffers.waiting(), *self._in_pass)]
            self.hurry()
        if wait_for_answers and threading.current_thread() is not self._thread:
            wait(futures)  # the worker itself cannot wait for itself

    def close(self, drain: bool) -> None:
        """Take no more queries; without ``drain`` those that wait get an exception."""
        with self.changed:
            self.closed = True
            abandoned = [] if drain else self.buffers.take_all()
            self.hurry()
        if abandoned:
            said = "The stream was closed before this query was answered."
            self._fail(abandoned, StreamClosed(said))

    def join(self) -> None:
        if threading.current_thread() is not self._thread:  # an answer's callback may close
            self._thread.join()

    # The thread

    def _run(self) -> None:
        while (turn := self._next_turn()) is not None:
            late, batch = turn
            if late:
                said = "The deadline of this query came before its pass: too many wait."
                self._fail(late, DeadlineExceeded(said))
            if batch:
                self._answer(batch)
            with self.changed:
                self._in_pass = []  # only now: a flush waits until their futures are done
            self._idle()

    def _next_turn(self) -> tuple[list[Pending], list[Pending]] | None:
        """Queries past their deadline, and the buffer that is due; None: closed and empty."""
        with self.changed:
            while True:
                now = self._clock.now()
                late, key = self.buffers.expired(now), self.buffers.due(now)
                if late or key is not None:
                    break
                self._wakes = self.buffers.next_due()
                never = self._wakes == math.inf
                if self.closed and never:
                    return None
                self._clock.wait(self.changed, None if never else self._wakes - now)
            self._wakes = -math.inf
            batch = [] if key is None else self.buffers.take(key)
            self._in_pass = late + batch
            return late, batch

    def _answer(self, batch: list[Pending]) -> None:
        asked = [item for item in batch if item.future.set_running_or_notify_cancel()]
        results = self._results(asked) if asked else []
        done = list(zip(asked, results, strict=True))
        now = self._clock.now()
        waits = [now - item.came for item, result in done if isinstance(result, Answer)]
        self._count(batch, asked, len(waits))
        errors = {id(result): result for result in results if isinstance(result, BaseException)}
        for error in errors.values():
            self._tell("failed", sum(result is error for result in results), error)
        if waits:
            self._tell("answered", waits)
        for item, result in done:
            _resolve(item.future, result)

    def _fail(self, items: list[Pending], error: Exception) -> None:
        """No pass for these any more."""
        asked = [item for item in items if item.future.set_running_or_notify_cancel()]
        self._count(items, asked, 0)
        if asked:
            self._tell("failed", len(asked), error)
        for item in asked:
            _resolve(item.future, error)

    def _count(self, items: list[Pending], asked: list[Pending], answered: int) -> None:
        """``items`` have left; ``asked`` are those that were not cancelled."""
        with self.changed:
            self.buffers.done(len(items))
            self.counts["answered"] += answered
            self.counts["failed"] += len(asked) - answered
            self.counts["cancelled"] += len(items) - len(asked)

    def _results(self, asked: list[Pending]) -> list[Answer | BaseException]:
        """An answer or an error for each query.

        Where memory runs out, one more try: in two halves, with nothing kept.
        """
        results = self._pass(asked)
        if not (isinstance(results[0], BaseException) and out_of_memory(results[0])):
            return results
        results.clear()  # the error holds on to what filled the memory
        asked[0].version.free_memory()
        middle = (len(asked) + 1) // 2
        halves = [half for half in (asked[:middle], asked[middle:]) if half]
        return [result for half in halves for result in self._pass(half, keep=False)]

    def _pass(self, items: list[Pending], keep: bool = True) -> list[Answer | BaseException]:
        started, cluster = self._clock.now(), items[0].key[1]
        with self.changed:
            self.counts["passes"] += 1
        try:
            rows = gather([(item.rows, item.index) for item in items])
            answers = items[0].version.answer(cluster, rows, self._output, keep)
        except BaseException as error:  # the clients get it, and the worker lives on
            return [error] * len(items)
        self._tell("passed", cluster, len(items), self._clock.now() - started)
        return list(answers)

    def _forget(self, item: Pending, future: Future[Answer]) -> None:
        """Runs when a future is done: a cancelled one frees its place."""
        item.let_go()
        if future.cancelled():
            with self.changed:
                waited = self.buffers.discard(item.key, item)
                self.counts["cancelled"] += waited
            if waited:
                future.set_running_or_notify_cancel()  # or a flush would wait for it for ever
            self._idle()

    def _tell(self, what: str, *about: object) -> None:
        tell(self._observers, what, *about)


def _resolve(future: Future[Answer], result: Answer | BaseException) -> None:
    """Hand out an answer or an error; what a client's callback raises must not end the worker."""
    try:
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
    except BaseException as error:  # an Exception stays in the future itself
        log.warning("a callback of an answer failed: %s", type(error).__name__)
