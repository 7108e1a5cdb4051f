"""The two threads of a stream: one owns the passes and the buffers, one makes new plans.

    submit ──▶ buffers, one a cluster ──▶ worker: takes the buffer that is due ──▶ one pass
                                                  ──▶ futures get their answers

A buffer is due when it is full enough, when its oldest query has waited long enough, or when it is
hurried. Everything of the worker that several threads share is guarded by ``changed``.
"""

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from crumb.errors import StreamClosed, StreamFull
from crumb.machine import out_of_memory
from crumb.online.observer import Observer, tell
from crumb.online.state import StreamOptions
from crumb.online.version import Answer, PlanVersion
from crumb.pfn import Output
from crumb.table.row import Piece, gather

Item = TypeVar("Item", bound=Hashable)
Key = tuple[int, int]  # version of the plan, cluster: queries of two plans never share a pass
Result: TypeAlias = "Answer | BaseException"
NICENESS = 5  # of 19, for the second thread: what queries wait for comes first
log = logging.getLogger("crumb.online")


class Clock:
    """The only place where a stream meets real time: tests bring a clock of their own."""

    def now(self) -> float:
        """Seconds that never go back, for deadlines."""
        return time.monotonic()

    def date(self) -> float:
        """Seconds since 1970, for ages that must survive a restart."""
        return time.time()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Sleep until the condition is notified, or for this many seconds."""
        condition.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class Buffers(Generic[Item]):
    """At most ``max_pending`` items that were added and are not yet ``done``, in order.

    Knows neither threads nor models and is told the time: it can be tested without waiting.
    """

    def __init__(self, b_min: int, timeout: float, max_pending: int):
        self.b_min, self.timeout, self.max_pending = b_min, timeout, max_pending
        self.pending = 0  # items in a buffer, and items that were taken and are not done
        self._buffers: dict[Key, dict[Item, float]] = {}  # each item with the time it is due
        self._hurried: set[Key] = set()

    def add(self, items: Sequence[tuple[Key, Item]], now: float) -> float:
        """Take all of the items or none; returns the time at which the first buffer is due."""
        self.check_room(len(items))
        due = now + self.timeout
        for key, item in items:
            self._buffers.setdefault(key, {})[item] = due
        self.pending += len(items)
        return now if any(len(self._buffers[key]) >= self.b_min for key, _ in items) else due

    def check_room(self, count: int) -> None:
        if self.pending + count > self.max_pending:
            raise StreamFull(
                f"{self.pending} queries wait for an answer and {count} more would exceed "
                f"max_pending={self.max_pending}; try again when some are answered."
            )

    def due(self, now: float) -> Key | None:
        """The buffer to be answered now: of those that are due, the one with the oldest query."""
        due = [
            (first, key)
            for key, buffer in self._buffers.items()
            if (first := min(buffer.values())) <= now
            or len(buffer) >= self.b_min
            or key in self._hurried
        ]
        return min(due)[1] if due else None

    def next_due(self) -> float:
        """When there is something to do even if nothing more comes; infinity where none waits."""
        return min((min(buffer.values()) for buffer in self._buffers.values()), default=math.inf)

    def take(self, key: Key) -> list[Item]:
        """Empty a buffer; its items stay pending until they are ``done``."""
        self._hurried.discard(key)
        return list(self._buffers.pop(key))

    def done(self, count: int) -> None:
        self.pending -= count

    def discard(self, key: Key, item: Item) -> bool:
        """Forget an item that was cancelled; False where it was taken already."""
        if item not in self._buffers.get(key, {}):
            return False
        del self._buffers[key][item]
        if not self._buffers[key]:
            self.take(key)
        self.pending -= 1
        return True

    def hurry(self) -> None:
        """Everything that waits is due now; what comes later is not."""
        self._hurried.update(self._buffers)

    def take_all(self) -> list[Item]:
        return [item for key in list(self._buffers) for item in self.take(key)]

    def waiting(self) -> list[Item]:
        return [item for buffer in self._buffers.values() for item in buffer]

    def versions(self) -> set[int]:
        """Of the plans that items wait for."""
        return {number for number, _ in self._buffers}

    def fill(self, version: int) -> dict[int, int]:
        """How many queries wait in each cluster of one plan; empty clusters are left out."""
        mine = {key: buffer for key, buffer in self._buffers.items() if key[0] == version}
        return {cluster: len(buffer) for (_, cluster), buffer in mine.items()}


@dataclass(eq=False)
class Pending:
    """A query that was accepted and has no answer yet: one row of an encoded piece."""

    version: PlanVersion
    key: Key
    rows: Piece
    index: int
    came: float  # by the stream's clock
    future: Future[Answer] = field(default_factory=Future)


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
        self._thread.start()

    # Called with the lock held

    def check_open(self) -> None:
        if self.closed:
            raise StreamClosed("This stream is closed: it takes no more queries.")

    def accept(self, items: list[Pending], now: float) -> None:
        """Take all of these queries, or none; those that are cancelled free their places."""
        self.check_open()
        try:
            due = self.buffers.add([(item.key, item) for item in items], now)
        except Exception:
            self.counts["refused"] += len(items)
            raise
        for item in items:
            item.future.add_done_callback(partial(self._forget, item))
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
            error = StreamClosed("The stream was closed before this query was answered.")
            self._settle(abandoned, lambda asked: [error] * len(asked))

    def join(self) -> None:
        if threading.current_thread() is not self._thread:  # an answer's callback may close
            self._thread.join()

    # The thread

    def _run(self) -> None:
        while self._take_due():
            self._settle(self._in_pass, self._results)
            with self.changed:
                self._in_pass = []  # only now: a flush waits until their futures are done
            self._idle()

    def _take_due(self) -> bool:
        """Wait for a buffer that is due and take it; False: closed and empty."""
        with self.changed:
            while (key := self.buffers.due(now := self._clock.now())) is None:
                self._wakes = self.buffers.next_due()
                never = self._wakes == math.inf
                if self.closed and never:
                    return False
                self._clock.wait(self.changed, None if never else self._wakes - now)
            self._wakes, self._in_pass = -math.inf, self.buffers.take(key)
            return True

    def _settle(
        self, items: list[Pending], results_of: Callable[[list[Pending]], list[Result]]
    ) -> None:
        """These have left the buffers: each gets its result, unless it was cancelled."""
        asked = [item for item in items if item.future.set_running_or_notify_cancel()]
        results = results_of(asked) if asked else []
        done, now = list(zip(asked, results, strict=True)), self._clock.now()
        waits = [now - item.came for item, result in done if isinstance(result, Answer)]
        with self.changed:
            self.buffers.done(len(items))
            self.counts["answered"] += len(waits)
            self.counts["failed"] += len(asked) - len(waits)
            self.counts["cancelled"] += len(items) - len(asked)
        errors = {id(result): result for result in results if isinstance(result, BaseException)}
        for error in errors.values():
            tell(self._observers, "failed", sum(result is error for result in results), error)
        if waits:
            tell(self._observers, "answered", waits)
        for item, result in done:
            _resolve(item.future, result)

    def _results(self, asked: list[Pending]) -> list[Result]:
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

    def _pass(self, items: list[Pending], keep: bool = True) -> list[Result]:
        started, cluster = self._clock.now(), items[0].key[1]
        with self.changed:
            self.counts["passes"] += 1
        try:
            rows = gather([(item.rows, item.index) for item in items])
            answers = items[0].version.answer(cluster, rows, self._output, keep)
        except BaseException as error:  # the clients get it, and the worker lives on
            return [error] * len(items)
        tell(self._observers, "passed", cluster, len(items), self._clock.now() - started)
        return list(answers)

    def _forget(self, item: Pending, future: Future[Answer]) -> None:
        """Runs when a future is done: a cancelled one frees its place."""
        # The client may keep the future, and with it the item; tables and pools must not stay.
        del item.version, item.rows
        if future.cancelled():
            with self.changed:
                waited = self.buffers.discard(item.key, item)
                self.counts["cancelled"] += waited
            if waited:
                future.set_running_or_notify_cancel()  # or a flush would wait for it for ever
            self._idle()


def _resolve(future: Future[Answer], result: Result) -> None:
    """Hand out an answer or an error; what a client's callback raises must not end the worker."""
    try:
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
    except BaseException as error:  # an Exception stays in the future itself
        log.warning("a callback of an answer failed: %s", type(error).__name__)


class Refresher:
    """A thread that refreshes when enough queries have come.

    ``needed`` looks at the queries and ``refresh`` makes the new plan; where either fails,
    ``failed`` gets the error and the old plan stays. All three run in this thread, where no query
    waits for them.
    """

    def __init__(
        self,
        options: StreamOptions,
        needed: Callable[[], bool],
        refresh: Callable[[], object],
        failed: Callable[[BaseException], object],
    ):
        self._options, self._needed, self._refresh, self._failed = options, needed, refresh, failed
        self._seen, self._failures, self._busy, self._closed = 0, 0, False, False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        if options.refresh != "never":
            self._thread = threading.Thread(target=self._run, name="crumb-refresh", daemon=True)
            self._thread.start()

    def saw(self, queries: int) -> None:
        """Queries came."""
        if self._thread is None:
            return
        with self._changed:
            self._seen += queries
            if self._is_due():
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing is under way and nothing is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not (self._busy or self._is_due()))

    def stopped(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """No further refresh; one that is under way may look at ``stopped``."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """No further refresh; wait for the one that is under way."""
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _is_due(self) -> bool:
        return self._options.refresh_due(self._seen, self._failures)

    def _run(self) -> None:
        step_back()
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._is_due())
                if self._closed:
                    return
                self._seen, self._busy = 0, True
            self._once()

    def _once(self) -> None:
        try:
            if self._needed():
                self._refresh()
            self._failures = 0
        except Exception as error:  # whatever it was, the old plan goes on answering
            if self._closed:  # dropped
                return
            log.warning("a refresh failed, the plan stays as it was: %s", type(error).__name__)
            self._failures += 1
            self._failed(error)


def step_back(niceness: int = NICENESS) -> None:
    """This thread, and those that it starts, let others go first. Linux has nice threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
