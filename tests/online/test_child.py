"""online/child.py: a process that computes for a stream, and that can be killed."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings

import numpy as np
import pytest
from streams import cheap, queries, table

from crumb.errors import InvalidInput, StreamClosed
from crumb.online import CrumbOnline
from crumb.online.child import NICENESS, Child, ChildBuilder, ChildDied
from crumb.pfn.tabicl import TabICLBackend


def test_warnings_there_are_warnings_here(capfd: pytest.CaptureFixture[str]) -> None:
    """The service writes them to its log, one line of JSON each."""
    child = Child()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):  # of two plans with the same warning, one is enough
            child.call(warnings.warn, "look out")
    child.close()
    assert [(one.category, str(one.message)) for one in shown] == [(UserWarning, "look out")]
    assert capfd.readouterr().err == ""


def test_calls_and_what_they_raise() -> None:
    child = Child()
    assert child.call(math.hypot, 3.0, 4.0) == 5.0
    assert child.call(os.getpid) == child.call(os.getpid) != os.getpid()
    assert child.call(os.nice, 0) >= NICENESS
    with pytest.raises(ValueError, match="math domain error"):
        child.call(math.sqrt, -1.0)
    with pytest.raises(InvalidInput, match="no such thing"):
        child.call(_fail)
    with pytest.raises(ChildDied):
        child.call(os._exit, 3)
    assert child.call(math.sqrt, 4.0) == 2.0  # another one is started
    child.close()
    with pytest.raises(StreamClosed):
        child.call(math.sqrt, 4.0)


def test_contexts_of_a_new_plan_are_made_in_the_child(monkeypatch) -> None:
    def made(self, task):
        raise AssertionError("made here")

    clf, X = cheap("embedded", cache_size=500), queries()
    with CrumbOnline(clf, X, builder=ChildBuilder(), timeout=0) as stream:
        monkeypatch.setattr(TabICLBackend, "made", made)  # in this process alone
        stream.submit_many(queries(40, seed=9, shift=1.0))
        stream.flush()
        stream.refresh()
        assert stream.current.keys <= stream.estimator.backend_.contexts.keys()
        answers = [future.result(20).value for future in stream.submit_many(X)]
        expected = cheap("embedded").predict_proba(X, plan=stream.plan)
    np.testing.assert_array_equal(answers, expected)


def _fail() -> None:
    raise InvalidInput("no such thing")


def test_a_call_under_way_is_dropped() -> None:
    child, raised = Child(), []

    def wait() -> None:
        with pytest.raises(StreamClosed) as caught:
            child.call(time.sleep, 600)
        raised.append(caught)

    child.call(math.sqrt, 4.0)
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    started = time.monotonic()
    child.close()
    thread.join(10)
    assert len(raised) == 1
    assert time.monotonic() - started < 5


def test_plans_of_a_child_are_those_of_the_thread() -> None:
    X, y = table(30, seed=5)
    found = []
    for builder in (None, ChildBuilder()):
        with CrumbOnline(cheap(), queries(), builder=builder, timeout=0) as stream:
            stream.submit_many(queries(40, seed=9))
            stream.flush()
            stream.refresh()
            first = stream.plan
            stream.learn(X, y)
            stream.refresh()
            assert (stream.stats().version, stream.stats().pool_version) == (3, 2)
            answers = [future.result(20).value for future in stream.submit_many(queries())]
            found.append((first.contexts, stream.plan.contexts, answers))
    for mine, theirs in zip(*found, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_stream_that_closes_drops_the_refresh() -> None:
    """At once, without counting a failure, whatever the child is doing."""
    builder = Hanging()
    options = {"refresh": "periodic", "refresh_every": 10, "recent": 20}
    stream = CrumbOnline(cheap(), queries(), builder=builder, timeout=0, **options)
    for future in stream.submit_many(queries(20)):
        future.result(20)
    assert builder.began.wait(60)
    assert stream.stats().refreshing
    started = time.monotonic()
    stream.close()
    assert time.monotonic() - started < 5
    assert (stream.stats().refreshes, stream.stats().refresh_failures) == (0, 0)
    assert not stream.stats().refreshing


class Hanging(ChildBuilder):
    """Its child never ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.began = threading.Event()

    def call(self, function, *words):
        super().call(math.sqrt, 4.0)
        self.began.set()
        return super().call(time.sleep, 600)
