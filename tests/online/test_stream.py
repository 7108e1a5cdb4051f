"""online/stream.py: answers are those of the frozen plan, in any order, batch and thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError, wait

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from streams import Gate, ManualClock, cheap, queries, reset_gate, table

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput, StreamClosed, StreamFull
from crumb.online import CrumbOnline


def values(futures) -> np.ndarray:
    return np.array([future.result(20).value for future in futures])


def in_pieces(stream: CrumbOnline, X, order, cuts) -> np.ndarray:
    """Ask for the rows of X in some order and in some pieces; the answers in the order of X."""
    futures = {}
    for piece in np.split(np.asarray(order), sorted(set(cuts))):
        if len(piece) == 1:
            futures[piece[0]] = stream.submit(take(X, piece[0]))
        elif len(piece):
            futures.update(zip(piece.tolist(), stream.submit_many(take(X, piece)), strict=True))
    stream.flush()
    return values(futures[i] for i in range(len(order)))


def take(X, index):
    return X.iloc[index] if isinstance(X, pd.DataFrame) else X[index]


CLF, X = cheap(), queries()
PLAN = CLF.plan(X)
EXPECTED = CLF.predict_proba(X, plan=PLAN)


@settings(max_examples=40, deadline=None)
@given(
    order=st.permutations(range(len(X))),
    cuts=st.lists(st.integers(1, len(X) - 1), max_size=59),
    b_min=st.integers(1, 80),
)
def test_answers_do_not_depend_on_order_and_batches(order, cuts, b_min) -> None:
    with CrumbOnline(CLF, X, plan=PLAN, b_min=b_min, timeout=60) as stream:
        np.testing.assert_array_equal(in_pieces(stream, X, order, cuts), EXPECTED)


@pytest.mark.parametrize("cache_size", [0, 500])
def test_answers_of_the_embedded_network(cache_size: float) -> None:
    clf = cheap("embedded", cache_size=cache_size)
    expected, rng = clf.predict_proba(X, plan=PLAN), np.random.default_rng(0)
    with CrumbOnline(clf, X, plan=PLAN, timeout=60) as stream:
        for b_min in (1, 4, 100):
            stream._worker.buffers.b_min = b_min
            cuts = rng.choice(np.arange(1, len(X)), 20)
            got = in_pieces(stream, X, rng.permutation(len(X)), cuts)
            if cache_size:
                np.testing.assert_allclose(got, expected, atol=1e-5, rtol=0)
                assert (
                    len(clf.backend_.contexts) == PLAN.n_clusters
                )  # a flush costs the queries, not the context
            else:
                np.testing.assert_array_equal(got, expected)


def test_rows_of_a_frame_may_come_as_mappings_series_and_sequences() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=150),
            "text": rng.choice(["a", "b", None], 150),
            "category": pd.Categorical(rng.choice([3, 10, 2], 150)),
            "flag": rng.random(150) < 0.5,
        }
    )
    clf = CrumbClassifier(n_clusters=2, context_size=40, cache_size=0).fit(
        frame[:120], rng.integers(0, 2, 120)
    )
    late = frame[120:].reset_index(drop=True)
    with CrumbOnline(clf, late, timeout=60) as stream:
        expected = clf.predict_proba(late, plan=stream.plan)
        asked = [stream.submit(dict(reversed(row.items()))) for row in late.to_dict("records")]
        asked += [stream.submit(late.iloc[i]) for i in range(len(late))]
        asked += [stream.submit(late.iloc[i].tolist()) for i in range(len(late))]
        stream.flush()
        np.testing.assert_array_equal(values(asked), np.tile(expected, (3, 1)))


def test_labels_means_and_what_the_model_cannot() -> None:
    Q = queries(20)
    with CrumbOnline(CLF, Q, output="label", timeout=0) as stream:
        assert (values(stream.submit_many(Q)) == CLF.predict(Q, plan=stream.plan)).all()
    ridge = cheap(RidgeClassifier())
    with CrumbOnline(ridge, Q, timeout=0) as stream:
        assert (values(stream.submit_many(Q)) == ridge.predict(Q, plan=stream.plan)).all()
    T, _ = table()
    reg = CrumbRegressor(model=LinearRegression(), n_clusters=2, context_size=50).fit(
        T, T @ [1, 2, 3, 4] + 1
    )
    with CrumbOnline(reg, Q, timeout=0) as stream:
        answers = [future.result(20) for future in stream.submit_many(Q)]
        np.testing.assert_array_equal([a.value for a in answers], reg.predict(Q, plan=stream.plan))
        assert answers[0].classes is None
    with pytest.raises(InvalidInput, match="cannot answer with 'quantiles'"):
        CrumbOnline(reg, Q, output="quantiles")


def test_without_queries_the_first_plan_is_for_a_sample_of_the_pool() -> None:
    with CrumbOnline(CLF, timeout=0, recent=50) as stream:
        assert len(stream.plan.labels) == 50
        np.testing.assert_array_equal(
            values(stream.submit_many(X)), CLF.predict_proba(X, plan=stream.plan)
        )


def test_a_row_may_be_overwritten_once_it_is_submitted() -> None:
    with CrumbOnline(CLF, X, plan=PLAN, timeout=60) as stream:
        row, futures = np.empty(4), []
        for query in X:
            row[:] = query
            futures.append(stream.submit(row))
        stream.flush()
        np.testing.assert_array_equal(values(futures), EXPECTED)


def test_fitting_the_estimator_again_does_not_reach_the_stream() -> None:
    clf = cheap()
    with CrumbOnline(clf, X, timeout=0) as stream:
        expected = clf.predict_proba(X, plan=stream.plan)
        clf.fit(*table(seed=9))
        np.testing.assert_array_equal(values(stream.submit_many(X)), expected)


def test_a_timeout_answers_a_buffer_that_is_not_full() -> None:
    clock = ManualClock()
    with CrumbOnline(CLF, X, b_min=50, timeout=5.0, clock=clock) as stream:
        first = stream.submit(X[0])
        clock.move(4.9)
        second = stream.submit(X[0])  # the same cluster: goes with the first
        time.sleep(0.05)
        assert not first.done()
        assert stream.stats().pending == 2
        clock.move(0.1)
        assert first.result(10).cluster == second.result(10).cluster
        assert stream.stats().passes == 1


def test_a_full_buffer_needs_no_timeout() -> None:
    with CrumbOnline(CLF, X, b_min=3, timeout=1e6, clock=ManualClock()) as stream:
        futures = [stream.submit(X[0]) for _ in range(3)]
        wait(futures, 10)
        assert stream.stats().answered == 3
        assert stream.stats().passes == 1


def test_more_than_max_pending_are_refused_and_nobody_else_notices() -> None:
    with CrumbOnline(CLF, X, plan=PLAN, b_min=100, timeout=60, max_pending=5) as stream:
        futures = stream.submit_many(X[:4])
        with pytest.raises(StreamFull, match="max_pending=5"):
            stream.submit_many(X[4:6])
        futures.append(stream.submit(X[4]))
        with pytest.raises(StreamFull):
            stream.submit(X[5])
        stream.flush()
        np.testing.assert_array_equal(values(futures), EXPECTED[:5])
        stats = stream.stats()
        assert (stats.accepted, stats.refused, stats.answered, stats.pending) == (5, 3, 5, 0)
        stream.submit(X[5]).cancel()


def test_wrong_rows_are_refused_at_once() -> None:
    with CrumbOnline(CLF, X) as stream:
        with pytest.raises(ValueError, match="3 features"):
            stream.submit([1, 2, 3])
        assert stream.stats().pending == 0


def test_who_cancels_frees_his_place() -> None:
    with CrumbOnline(CLF, X, b_min=100, timeout=60, max_pending=1) as stream:
        future = stream.submit(X[0])
        assert future.cancel()
        again = stream.submit(X[0])
        stream.flush()
        assert again.result(10).value.shape == (3,)
        with pytest.raises(CancelledError):
            future.result()
        assert stream.stats().cancelled == 1


def test_a_flush_does_not_wait_for_those_who_gave_up() -> None:
    reset_gate(opened=False)
    with CrumbOnline(cheap(Gate()), X, b_min=1, timeout=0) as stream:
        running = stream.submit(X[0])
        assert Gate.entered.wait(10)
        waiting = stream.submit(X[1])
        flush = threading.Thread(target=stream.flush)
        flush.start()
        time.sleep(0.05)
        assert waiting.cancel()
        Gate.opened.set()
        running.result(10)
        flush.join(10)
        assert not flush.is_alive()


def test_who_keeps_an_answer_keeps_neither_tables_nor_pools() -> None:
    with CrumbOnline(cheap(), X, timeout=0, recent=20) as stream:
        version = weakref.ref(stream.current)
        kept = [*stream.submit_many(X), *(stream.submit(row) for row in X)]
        wait(kept, 10)
        stream.learn(*table(10))
        stream.refresh()
        stream.submit_many(X)
        stream.flush()
        gc.collect()
        assert version() is None
        assert {future.result(0).version for future in kept} == {1}


def test_a_callback_that_raises_does_not_end_the_stream() -> None:
    def fail(_) -> None:
        raise SystemExit

    with CrumbOnline(CLF, X, plan=PLAN, timeout=60) as stream:
        futures = stream.submit_many(X)
        for future in futures:
            future.add_done_callback(fail)
        stream.flush()
        np.testing.assert_array_equal(values(futures), EXPECTED)


@pytest.mark.parametrize("timeout", [1e12, np.inf])
def test_a_timeout_may_be_as_long_as_one_likes(timeout) -> None:
    with CrumbOnline(CLF, X, plan=PLAN, timeout=timeout) as stream:
        futures = stream.submit_many(X)
        stream.flush()
        np.testing.assert_array_equal(values(futures), EXPECTED)


def test_close_answers_what_waits_and_takes_no_more() -> None:
    stream = CrumbOnline(CLF, X, plan=PLAN, b_min=100, timeout=60)
    futures = stream.submit_many(X)
    stream.close()
    stream.close()
    np.testing.assert_array_equal([f.result(0).value for f in futures], EXPECTED)
    with pytest.raises(StreamClosed):
        stream.submit(X[0])


def test_close_without_draining_says_so_to_those_who_wait() -> None:
    stream = CrumbOnline(CLF, X, b_min=100, timeout=60)
    futures = stream.submit_many(X[:5])
    stream.close(drain=False)
    for future in futures:
        with pytest.raises(StreamClosed, match="before this query"):
            future.result(0)
    assert stream.stats().pending == 0


def test_close_without_draining_keeps_nothing_of_replaced_plans(monkeypatch) -> None:
    """Queries that wait for a plan that was replaced may be the last thing that held it."""
    stream = CrumbOnline(CLF, X, b_min=100, timeout=60)
    stream.submit_many(X[:5])
    monkeypatch.setattr(
        stream._worker.buffers, "hurry", lambda: None
    )  # as if the worker had not come to it yet
    stream.refresh()
    assert len(stream._retired) == 1
    stream.close(drain=False)
    assert stream._retired == {}


def test_a_pass_that_fails_reaches_its_queries_and_no_others() -> None:
    reset_gate(opened=True)
    with CrumbOnline(cheap(Gate()), X, b_min=1, timeout=0) as stream:
        Gate.broken = True
        with pytest.raises(MemoryError, match="no room"):
            stream.submit(X[0]).result(10)
        Gate.broken = False
        assert stream.submit(X[0]).result(10).value.shape == (3,)
        stats = stream.stats()
        assert (stats.failed, stats.answered, stats.pending) == (1, 1, 0)


def test_queries_buffer_while_a_pass_runs_and_flush_waits_for_both() -> None:
    reset_gate(opened=False)
    with CrumbOnline(cheap(Gate()), X, b_min=1, timeout=0) as stream:
        first = stream.submit(X[0])
        assert Gate.entered.wait(10)
        second = stream.submit(X[1])
        assert not first.cancel()  # its pass is running
        assert stream.stats().pending == 2
        threading.Timer(0.05, Gate.opened.set).start()
        stream.flush()
        assert first.done()
        assert second.done()


def test_an_answer_may_flush_and_close_the_stream() -> None:
    stream = CrumbOnline(CLF, X, b_min=100, timeout=60)
    future = stream.submit(X[0])
    closed = threading.Event()

    def last(_) -> None:
        stream.flush()
        stream.close()
        closed.set()

    future.add_done_callback(last)
    stream.flush()
    assert closed.wait(10)
    stream.close()


def test_many_threads_may_ask() -> None:
    got: dict[int, np.ndarray] = {}

    def client(i: int, stream: CrumbOnline) -> None:
        for j in range(i, len(X), 6):
            got[j] = stream.submit(X[j]).result(20).value

    with CrumbOnline(CLF, X, plan=PLAN, b_min=3, timeout=0.005) as stream:
        threads = [threading.Thread(target=client, args=(i, stream)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    np.testing.assert_array_equal([got[j] for j in range(len(X))], EXPECTED)


def test_asyncio() -> None:
    async def main(stream: CrumbOnline) -> list:
        return await asyncio.gather(*(stream.ask(row) for row in X))

    async def impatient(stream: CrumbOnline) -> None:
        await asyncio.wait_for(stream.ask(X[0]), 0.02)

    with CrumbOnline(CLF, X, plan=PLAN, b_min=8, timeout=0.01) as stream:
        np.testing.assert_array_equal([a.value for a in asyncio.run(main(stream))], EXPECTED)
    with CrumbOnline(CLF, X, b_min=8, timeout=60) as stream:
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(impatient(stream))
        assert stream.stats().pending == 0  # who stopped waiting left the buffer


def answered_by(version: int, answers: list) -> None:
    """Wait until a version has answered."""
    end = time.monotonic() + 20
    while not any(answer.version == version for _, answer in list(answers)):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_refresh_swaps_at_once_and_nobody_gets_a_mixture() -> None:
    with CrumbOnline(CLF, X, b_min=4, timeout=0.002, recent=60) as stream:
        plans, stop, answers = {1: stream.plan}, threading.Event(), []

        def client(seed: int) -> None:
            rng = np.random.default_rng(seed)
            while not stop.is_set():
                i = int(rng.integers(len(X)))
                answers.append((i, stream.submit(X[i]).result(20)))

        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(6):
            answered_by(stream.version, answers)
            number = stream.refresh()
            plans[number] = stream.plan
        answered_by(7, answers)
        stop.set()
        for thread in threads:
            thread.join()
    assert {answer.version for _, answer in answers} == set(range(1, 8))
    expected = {number: CLF.predict_proba(X, plan=plan) for number, plan in plans.items()}
    for i, answer in answers:
        np.testing.assert_array_equal(answer.value, expected[answer.version][i])
        assert answer.cluster == plans[answer.version].route(CLF.encode(X[i : i + 1])[1])[0]


def test_who_waits_at_a_swap_is_answered_by_the_old_plan_without_delay() -> None:
    with CrumbOnline(CLF, X, plan=PLAN, b_min=100, timeout=1e6, clock=ManualClock()) as stream:
        old = stream.submit_many(X[:7])
        stream.submit_many(queries(50, seed=3, shift=2.0))
        assert stream.refresh() == 2
        new = stream.submit(X[0])
        np.testing.assert_array_equal(values(old), EXPECTED[:7])
        assert {future.result(0).version for future in old} == {1}
        assert not new.done()
        stream.flush()
        assert new.result(10).version == 2
        np.testing.assert_array_equal(
            new.result().value, CLF.predict_proba(X[:1], plan=stream.plan)[0]
        )


def test_settings_are_checked() -> None:
    for wrong, said in (
        ({"b_min": 0}, "b_min"),
        ({"timeout": -1}, "timeout"),
        ({"max_pending": 0}, "max_pending"),
        ({"refresh": "often"}, "'never', 'periodic', 'drift'"),
        ({"significance": 2}, "significance"),
        ({"max_rows": 1}, "max_rows"),
        ({"max_age": 0}, "max_age"),
        ({"recent": 0}, "recent"),
        ({"window": 0}, "recent"),  # its name in version 0.1
        ({"output": "median"}, "cannot answer"),
    ):
        with pytest.raises(InvalidInput, match=said):
            CrumbOnline(CLF, X, **wrong)
    with pytest.raises(TypeError, match="'bmin'"):
        CrumbOnline(CLF, X, bmin=3)
    with pytest.raises(InvalidInput, match="fitted CrumbClassifier"):
        CrumbOnline(LogisticRegression())
