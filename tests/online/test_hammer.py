"""Many threads ask, cancel, teach, refresh and flush at once: nothing is lost or mixed up."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress

import numpy as np
import pytest
from streams import cheap, queries, table

from crumb.errors import StreamClosed, StreamFull
from crumb.online import CrumbOnline, Observer
from crumb.online.version import PlanVersion

X = queries(120, seed=4)


class Tally(Observer):
    def __init__(self) -> None:
        self.answers = self.failures = (
            0  # told by one thread at a time: the worker, or the one that closes
        )

    def answered(self, waits) -> None:
        assert min(waits) >= 0
        self.answers += len(waits)

    def failed(self, rows, error) -> None:
        self.failures += rows


class Crowd:
    """Threads that do as they like with one stream until it is closed."""

    def __init__(self, stream: CrumbOnline):
        self.stream, self.asked, self.trouble = stream, [], []
        self.versions = {1: (stream.estimator, stream.plan)}
        self._threads: list[threading.Thread] = []

    def start(self, do, count: int = 1) -> None:
        for seed in range(count):
            thread = threading.Thread(
                target=self._until_closed, args=(do, np.random.default_rng(seed))
            )
            thread.start()
            self._threads.append(thread)

    def _until_closed(self, do, rng) -> None:
        try:
            while True:
                with suppress(StreamFull):
                    do(rng)
        except StreamClosed:
            pass
        except BaseException as error:
            self.trouble.append(error)

    def wait_for(self, version: int) -> None:
        """Until this version, or those after it, have answered several queries."""
        end = time.monotonic() + 30
        while True:
            done = [future for _, future in self.asked[-2_000:] if future.done()]
            answers = [f.result(0) for f in done if not f.cancelled() and not f.exception(0)]
            if sum(answer.version >= version for answer in answers) > 20:
                return
            assert time.monotonic() < end
            time.sleep(0.01)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def one(self, rng) -> None:
        i = int(rng.integers(len(X)))
        future = self.stream.submit(X[i] if rng.random() < 0.5 else X[i].tolist())
        self.asked.append((i, future))
        if rng.random() < 0.5:
            wait([future], 10)

    def many(self, rng) -> None:
        index = rng.integers(0, len(X), rng.integers(1, 20))
        self.asked.extend(zip(index.tolist(), self.stream.submit_many(X[index]), strict=True))
        time.sleep(0.002)

    def hasty(self, rng) -> None:
        i = int(rng.integers(len(X)))
        future = self.stream.submit(X[i])
        self.asked.append((i, future))
        wait([future], float(rng.uniform(0, 0.005)))
        future.cancel()
        time.sleep(0.001)

    def in_a_loop(self, rng) -> None:
        async def ask() -> None:
            waiting = [
                asyncio.ensure_future(self.stream.ask(X[int(i)]))
                for i in rng.integers(0, len(X), 5)
            ]
            await asyncio.sleep(0.002)
            waiting[0].cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            for error in results:
                if isinstance(error, (StreamClosed, StreamFull)):
                    raise error

        asyncio.run(ask())

    def refresh(self, rng) -> None:
        if self.stream.closed:
            raise StreamClosed
        if rng.random() < 0.5:
            T, y = table(5, seed=int(rng.integers(100)))
            self.stream.learn(T, y)
        number = self.stream.refresh()
        self.versions[number] = self.stream.estimator, self.stream.plan  # nobody else refreshes
        self.stream.drift()

    def flush(self, rng) -> None:
        if self.stream.closed:
            raise StreamClosed
        self.stream.flush()
        self.stream.stats()
        time.sleep(0.01)


def check(asked: list[tuple[int, Future]], versions: dict) -> dict[str, int]:
    """Every answer is that of the frozen plan of its version; how many ended in which way."""
    expected = {number: clf.predict_proba(X, plan=plan) for number, (clf, plan) in versions.items()}
    ends = {"answered": 0, "cancelled": 0, "failed": 0}
    for i, future in asked:
        assert future.done()
        try:
            answer = future.result(0)
        except CancelledError:
            ends["cancelled"] += 1
        except StreamClosed:
            ends["failed"] += 1
        else:
            ends["answered"] += 1
            np.testing.assert_array_equal(answer.value, expected[answer.version][i])
    return ends


@pytest.mark.parametrize("drain", [True, False])
def test_a_crowd(drain: bool) -> None:
    before, tally = set(threading.enumerate()), Tally()
    clf = cheap()
    stream = CrumbOnline(
        clf, X, b_min=8, timeout=0.003, max_pending=200, recent=80, max_rows=230, observer=tally
    )
    crowd = Crowd(stream)
    for do, count in (
        (crowd.one, 3),
        (crowd.many, 1),
        (crowd.hasty, 2),
        (crowd.in_a_loop, 1),
        (crowd.refresh, 1),
    ):
        crowd.start(do, count)
    crowd.start(crowd.flush)
    crowd.wait_for(5)
    stream.close(drain=drain)
    crowd.join()
    assert crowd.trouble == []
    ends, stats = check(crowd.asked, crowd.versions), stream.stats()
    assert len(crowd.versions) > 3
    assert ends["answered"] > 100
    assert ends["answered"] <= stats.answered  # those of asyncio are not in the list
    assert stats.accepted == stats.answered + stats.failed + stats.cancelled
    assert (stats.pending, tally.answers, tally.failures) == (0, stats.answered, stats.failed)
    assert set(threading.enumerate()) - before == set()
    last = stream.current
    del crowd
    gc.collect()
    alive = [
        thing
        for thing in gc.get_objects()
        if type(thing) is PlanVersion and thing.estimator.backend_ is not None
    ]
    ours = [
        version
        for version in alive
        if version.plan.settings == last.plan.settings and version.number > 1
    ]
    assert ours == [last]
    assert stream._retired == {}


def test_kept_contexts_under_swaps() -> None:
    """The same with the embedded network and its caches: fewer rounds, answers to 1e-5."""
    clf, plain = (
        cheap("embedded", cache_size=1),
        cheap("embedded"),
    )  # a megabyte: not all contexts fit
    stream = CrumbOnline(clf, X, b_min=8, timeout=0.003, recent=80)
    crowd = Crowd(stream)
    crowd.start(crowd.one, 3)
    for _ in range(4):
        crowd.wait_for(stream.version)
        stream.submit_many(queries(40, seed=len(crowd.versions), shift=0.3))
        number = stream.refresh()
        crowd.versions[number] = stream.estimator, stream.plan
        assert stream.estimator.backend_.contexts.used <= 1e6
    crowd.wait_for(stream.version)
    stream.close()
    crowd.join()
    assert crowd.trouble == []
    expected = {
        number: plain.predict_proba(X, plan=plan) for number, (_, plan) in crowd.versions.items()
    }
    assert {future.result(0).version for _, future in crowd.asked} >= {1, 5}
    for i, future in crowd.asked:
        np.testing.assert_allclose(
            future.result(0).value, expected[future.result(0).version][i], atol=1e-5
        )
    assert stream._retired == {}
    assert stream.estimator.backend_.contexts.keys() <= stream.current.keys
