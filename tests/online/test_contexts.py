"""What a stream keeps of contexts: ready before the swap, within one cache, then freed."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from streams import ManualClock, cheap, queries, table

from crumb.infer import context_key
from crumb.online import CrumbOnline, Observer
from crumb.pfn.contexts import ContextCache
from crumb.pfn.tabicl import TabICLBackend

X = queries(60)


def cache(stream: CrumbOnline) -> ContextCache:
    return stream.estimator.backend_.contexts


def kept(stream: CrumbOnline) -> set[bytes]:
    return set(cache(stream)._kept)


def until(true) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def made(monkeypatch) -> list[int]:
    """Sizes of the contexts that were fitted for keeping, as they are."""
    sizes, fitted = [], TabICLBackend.estimator

    def note(self, **more):
        sizes.append(1) if more.get("kv_cache") else None
        return fitted(self, **more)

    monkeypatch.setattr(TabICLBackend, "estimator", note)
    return sizes


def test_a_plan_is_ready_before_it_is_swapped_in_and_the_old_one_leaves_with_its_last_query(
    made,
) -> None:
    clf = cheap("embedded", cache_size=500)
    at_swap: list[set[bytes]] = []
    heard = Observer()
    heard.refreshed = lambda *what: at_swap.append(kept(stream))
    with CrumbOnline(clf, X, b_min=100, timeout=1e6, clock=ManualClock(), observer=heard) as stream:
        first = stream.current.keys
        assert kept(stream) == first
        assert len(made) == len(first)
        stream.submit_many(X)
        stream.flush()
        assert len(made) == len(first)  # a flush costs the queries, not the context
        asked = stream.submit_many(queries(60, seed=2, shift=1.5))
        stream.refresh()
        second = stream.current.keys
        assert second <= at_swap[0]
        assert {future.result(20).version for future in asked} == {1}
        stream.flush()
        until(lambda: kept(stream) == second)  # freed by the worker, right after the answers
        count = len(made)
        stream.submit_many(X)
        stream.flush()
        assert len(made) == count


def test_contexts_of_another_pool_share_the_budget() -> None:
    clf = cheap("embedded", cache_size=500)
    T, y = table(50, seed=5)
    with CrumbOnline(clf, X, timeout=0) as stream:
        room, first = cache(stream), stream.current.keys
        stream.learn(T, y)
        stream.refresh()
        assert cache(stream) is room
        assert stream.current.keys.isdisjoint(first)  # row numbers mean other rows
        assert kept(stream) == stream.current.keys
        got = np.array([future.result(20).value for future in stream.submit_many(X)])
        np.testing.assert_allclose(
            got, stream.estimator.predict_proba(X, plan=stream.plan), atol=1e-5
        )


def test_two_versions_stay_within_the_budget_and_the_most_used_contexts_come_first(
    monkeypatch,
) -> None:
    one = cheap("embedded", cache_size=500)
    with CrumbOnline(one, X, timeout=0) as stream:
        size = cache(stream).used / len(kept(stream))
    clf = cheap(
        "embedded", cache_size=4.5 * 1.3 * size / 1e6
    )  # room for four or five contexts of three and three
    used = []
    put = ContextCache._put
    monkeypatch.setattr(
        ContextCache, "_put", lambda self, *what: (put(self, *what), used.append(self.used))[0]
    )
    with CrumbOnline(clf, X, b_min=100, timeout=1e6, clock=ManualClock()) as stream:
        assert len(kept(stream)) == 3
        stream.submit_many(queries(90, seed=3, shift=1.0))
        stream._recent.add(queries(60, seed=3, shift=1.0))
        before = kept(stream)
        stream._free_retired = lambda: None  # as if a query waited for ever
        stream.refresh()
        more = kept(stream) - before
        assert 0 < len(more) < 3
        sizes = np.bincount(stream.plan.labels)
        ready = [
            context_key(stream.estimator.pool_, context) in more for context in stream.plan.contexts
        ]
        assert sizes[ready].min() >= sizes[~np.array(ready)].max()
        del stream._free_retired
        stream.flush()
        assert max(used) <= cache(stream).budget


class Heard(Observer):
    def __init__(self) -> None:
        self.failures: list[tuple[int, BaseException]] = []

    def failed(self, rows, error) -> None:
        self.failures.append((rows, error))


def test_a_pass_that_runs_out_of_memory_is_tried_again_without_what_is_kept(monkeypatch) -> None:
    clf, run, tries = cheap("embedded", cache_size=500), TabICLBackend.run, []
    plain = cheap("embedded")

    def short(self, task, output):
        tries.append((task.keep, len(self.contexts)))
        if task.keep:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, task, output)

    with CrumbOnline(clf, X, b_min=100, timeout=60) as stream:
        expected = plain.predict_proba(X, plan=stream.plan)
        monkeypatch.setattr(TabICLBackend, "run", short)
        futures = stream.submit_many(X)
        stream.flush()
        np.testing.assert_array_equal([future.result(0).value for future in futures], expected)
        assert tries[:3] == [(True, 3), (False, 0), (False, 0)]  # all at once, then in two halves
        assert stream.stats().failed == 0


class Tight(LogisticRegression):
    """Has room for ``room`` queries at once, and none at all for some."""

    room = 0

    def predict_proba(self, X):
        if len(np.unique(X, axis=0)) > Tight.room or (X[:, 0] > 50).any():
            raise MemoryError(f"{len(X)} queries are too many")
        return super().predict_proba(X)


def test_two_halves_may_fit_where_the_whole_does_not_and_only_what_does_not_fit_fails() -> None:
    clf, heard = cheap(Tight()), Heard()
    with CrumbOnline(clf, X, b_min=100, timeout=60, observer=heard) as stream:
        Tight.room = 1_000
        expected = clf.predict_proba(X[:1], plan=stream.plan)
        Tight.room = 3
        same = [X[0] + i * 1e-9 for i in range(5)]
        futures = [stream.submit(row) for row in same]
        stream.flush()
        np.testing.assert_allclose(
            [future.result(0).value for future in futures],
            np.repeat(expected, 5, axis=0),
            atol=1e-6,
        )
        assert heard.failures == []
        passes = stream.stats().passes
        impossible = np.array([99.0, 0, 0, 0])  # one cluster: far out
        futures = [
            stream.submit(row)
            for row in (
                impossible,
                impossible + 1,
                impossible - [60, 0, 0, 0],
                impossible - [61, 0, 0, 0],
            )
        ]
        stream.flush()
        assert stream.stats().passes == passes + 3
        for future in futures[:2]:
            with pytest.raises(MemoryError):
                future.result(0)
        assert all(future.exception(0) is None for future in futures[2:])
        assert [rows for rows, _ in heard.failures] == [2]
        stats = stream.stats()
        assert (stats.failed, stats.answered, stats.pending) == (2, 7, 0)


def test_memory_that_is_short_while_a_plan_is_made_ready_is_no_reason_to_go_without_it(
    monkeypatch, caplog
) -> None:
    clf = cheap("embedded", cache_size=500)
    with CrumbOnline(clf, X, timeout=0) as stream:

        def short(self, task, call=None) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(TabICLBackend, "keep", short)
        stream.submit_many(queries(60, seed=2, shift=1.5))
        assert stream.refresh() == 2
        assert stream.submit(X[0]).result(20).version == 2
    assert "memory ran out" in caplog.text
