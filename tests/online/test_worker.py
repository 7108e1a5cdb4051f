"""online/worker.py: real time, and when a new plan is made. Passes are tested by the stream."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
from streams import Gate, cheap, queries, reset_gate

from crumb.errors import InvalidInput
from crumb.online import CrumbOnline
from crumb.online.state import StreamOptions
from crumb.online.worker import Clock, Refresher


def test_it_waits_as_long_as_it_is_told_and_no_longer() -> None:
    clock, condition = Clock(), threading.Condition()
    before = clock.now()
    with condition:
        clock.wait(condition, 0.02)
    assert 0.01 < clock.now() - before < 5
    assert abs(clock.date() - time.time()) < 5


def test_when_a_refresh_is_due() -> None:
    assert not StreamOptions(refresh_every=1).refresh_due(10**9)
    periodic = StreamOptions(refresh="periodic", refresh_every=10)
    assert not periodic.refresh_due(9)
    assert periodic.refresh_due(10)
    with pytest.raises(InvalidInput, match="refresh must be one of"):
        StreamOptions(refresh="sometimes")


def test_the_thread_refreshes_only_for_cause() -> None:
    answers, done = iter([False, True, False]), []
    options = StreamOptions(refresh="drift", refresh_every=5)
    refresher = Refresher(options, lambda: next(answers), lambda: done.append(1), done.append)
    for _ in range(3):
        refresher.saw(5)
        refresher.settle()
    refresher.close()
    assert done == [1]
    refresher.saw(5)  # after the end nothing happens
    refresher.settle()


def test_a_failure_is_counted_and_survived(caplog) -> None:
    def fail() -> None:
        raise MemoryError("row 3 of the queries is 17.5")

    heard: list[BaseException] = []
    options = StreamOptions(refresh="periodic", refresh_every=1)
    refresher = Refresher(options, lambda: True, fail, heard.append)
    with caplog.at_level(logging.WARNING, "crumb.online"):
        for seen, failures in (
            (1, 1),
            (1, 1),
            (1, 2),
            (3, 2),
            (1, 3),
        ):  # not at once: after twice as many queries
            refresher.saw(seen)
            refresher.settle()
            assert len(heard) == failures
    refresher.close()
    assert isinstance(heard[0], MemoryError)
    assert "17.5" not in caplog.text  # no values in logs


def test_periodic() -> None:
    X = queries(100)
    with CrumbOnline(
        cheap(), X, refresh="periodic", refresh_every=40, recent=50, timeout=0, plan_ahead=False
    ) as stream:
        for start in range(0, 120, 20):
            for future in stream.submit_many(np.roll(X, start, axis=0)[:20]):
                future.result(10)
            stream.settle()
        assert stream.stats().refreshes == 3
        assert stream.version == 4
        assert len(stream.plan.labels) == 50  # made for the window


def test_drift_brings_a_plan_for_the_new_queries_and_calm_does_not() -> None:
    settings = {
        "refresh": "drift",
        "recent": 100,
        "timeout": 0,
        "significance": 0.001,
        "plan_ahead": False,
    }
    with CrumbOnline(cheap(), queries(200), **settings) as stream:
        for seed in range(8):
            stream.submit_many(queries(25, seed=10 + seed))
            stream.settle()
        assert stream.version == 1
        calm = stream.stats().drift
        assert calm is not None
        assert calm.score <= 1
        for seed in range(8):
            stream.submit_many(queries(25, seed=30 + seed, shift=2.0))
            stream.settle()
        stats = stream.stats()
        assert stats.version >= 2
        assert stats.plan_age >= 0
        assert stream.plan.centroids.mean() > 1


def test_never_is_never() -> None:
    with CrumbOnline(cheap(), queries(50), recent=20, timeout=0) as stream:
        stream.submit_many(queries(100, shift=5.0))
        assert not any(thread.name == "crumb-refresh" for thread in threading.enumerate())
        stream.flush()
        assert stream.version == 1
        assert stream.drift().found  # who asks is told


def test_queries_are_answered_while_a_plan_is_made(monkeypatch) -> None:
    reset_gate(opened=True)
    clf, making, go_on = cheap(Gate()), threading.Event(), threading.Event()
    with CrumbOnline(clf, queries(), timeout=0) as stream:
        plan = type(clf).plan_points

        def slow(self, *given, **named):
            making.set()
            assert go_on.wait(20)
            return plan(self, *given, **named)

        monkeypatch.setattr(type(clf), "plan_points", slow)
        refresh = threading.Thread(target=stream.refresh)
        refresh.start()
        assert making.wait(10)
        assert stream.submit(queries()[0]).result(10).version == 1
        go_on.set()
        refresh.join()
        assert stream.submit(queries()[0]).result(10).version == 2


def test_a_plan_that_fails_leaves_the_old_one(monkeypatch) -> None:
    clf = cheap()
    with CrumbOnline(clf, queries(), refresh="periodic", refresh_every=10, timeout=0) as stream:
        monkeypatch.setattr(type(clf), "plan_points", lambda *given, **named: 1 / 0)
        stream.submit_many(queries(10))
        stream.settle()
        assert stream.stats().refresh_failures == 1
        assert stream.submit(queries()[0]).result(10).version == 1
        monkeypatch.undo()
        stream.submit_many(queries(9))
        stream.settle()
        assert stream.version == 1  # the next try comes after twice as many
        stream.submit_many(queries(10))
        stream.settle()
        assert stream.version == 2
