"""Small parts of the service: history, map, intake, timers, logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import streams
from serving import eventually
from sklearn.decomposition import PCA

from crumb import CrumbClassifier, CrumbOnline
from crumb.errors import StreamFull
from crumb.online import Drift
from crumb.picture import Plane
from crumb.serve import watch
from crumb.serve.page import LENGTH, History, Map
from crumb.serve.process import repeated
from crumb.serve.schema import Schema
from crumb.serve.service import FEW, Intake


def test_history_counts_by_the_second():
    now = 100.0
    history = History(clock=lambda: now)
    history.answered([0.1] * 3)
    for seconds in (0.1, 0.2, 0.3):
        history.request(seconds)
    assert history.view()["seconds"] == []  # not over yet
    now = 101.5
    history.answered([0.1])
    history.looked(Drift(1.5, 0.1, 1.0))
    now = 103.0
    view = history.view()
    assert view["seconds"][0] == {"time": 100, "rows": 3, "p50": 0.2, "p99": pytest.approx(0.298)}
    assert view["seconds"][1] == {"time": 101, "rows": 1, "p50": None, "p99": None}
    assert view["drift"] == [{"time": 101.5, "score": 1.5}]
    now = 103.0 + LENGTH
    assert history.view()["seconds"] == []


def test_axes_are_the_principal_components():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 4)) * [1, 5, 3, 1] + 7
    plane = Plane.of(points)
    axes = plane.directions
    np.testing.assert_allclose(plane.centre, points.mean(axis=0))
    assert (np.abs(axes).argmax(axis=0) == [1, 2]).all()
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-9)
    assert Plane.of(points[:, :1]).directions.shape == (1, 2)
    assert Plane.of(np.zeros((3, 2))).directions.shape == (2, 2)


def test_the_map_shows_queries_and_not_the_pool():
    with CrumbOnline(streams.cheap(), streams.queries(), timeout=0) as stream:
        empty = Map(stream).view()
        assert (empty["queries"], len(empty["centroids"])) == ([], 3)
        asked = streams.queries(30, seed=5)
        answers = [future.result() for future in stream.submit_many(asked)]
        view = Map(stream).view()
        assert view["clusters"] == [answer.cluster for answer in answers]
        plane = Plane.of(stream.estimator.pool_.points)
        places = plane(stream.estimator.encode(asked)[1])
        np.testing.assert_allclose(view["queries"], places, atol=1e-3)


def records(rows: np.ndarray) -> list[dict[str, float]]:
    return [{str(i): value for i, value in enumerate(row)} for row in rows.tolist()]


def rows(count: int) -> list[dict[str, float]]:
    return records(streams.queries(count))


def slow() -> CrumbClassifier:
    """A classifier whose rows are points only by way of a table."""
    return streams.cheap(features=PCA(2))


def test_requests_that_come_together_are_encoded_together():
    """And each gets its own answers."""
    with CrumbOnline(slow(), streams.queries(), timeout=0.01) as stream:
        turns, submit = [], stream.submit_many
        stream.submit_many = lambda X: turns.append(len(X)) or submit(X)
        pieces = [streams.queries(n, seed=n) for n in (2, 3, 1, 4)]

        async def go():
            intake = Intake(stream, Schema.of(streams.table()[0]))
            found = await asyncio.gather(*(intake.answers(records(piece)) for piece in pieces))
            intake.close()
            return found

        for piece, answers in zip(pieces, asyncio.run(go()), strict=True):
            wanted = stream.estimator.predict_proba(piece, plan=stream.plan)
            np.testing.assert_array_equal([answer.value for answer in answers], wanted)
        assert turns == [10]


def test_plain_rows_go_straight_in():
    with CrumbOnline(streams.cheap(), streams.queries(), timeout=0.01) as stream:
        stream.submit_many = None  # nobody asks for it
        piece = streams.queries(FEW)

        async def go():
            intake = Intake(stream, Schema.of(streams.table()[0]))
            answers = await intake.answers(records(piece))
            intake.close()
            return answers

        wanted = stream.estimator.predict_proba(piece, plan=stream.plan)
        np.testing.assert_array_equal([answer.value for answer in asyncio.run(go())], wanted)


def test_rows_with_dates_are_plain_too():
    """As quick as others, and with the same answers as by way of a table."""
    frame = pd.DataFrame(streams.table()[0], columns=list("abcd"))
    frame["when"] = pd.date_range("2024-01-01", periods=len(frame), freq="7h")
    frame["word"] = ["u", "v", None, "w"] * (len(frame) // 4)
    model = CrumbClassifier(model="embedded", n_clusters=3, context_size=60, cache_size=0)
    model.fit(frame, streams.table()[1])
    schema = Schema.of(frame)
    texts = frame[:20].assign(when=frame["when"].map(pd.Timestamp.isoformat)).astype(object)
    asked = texts.where(texts.notna(), None).to_dict("records")
    with CrumbOnline(model, timeout=0.01) as stream:
        wanted = stream.estimator.predict_proba(frame[:20], plan=stream.plan)
        stream.submit_many = None  # nobody asks for it

        async def go():
            intake = Intake(stream, schema)
            answers = await intake.answers(schema.read(asked))
            intake.close()
            return answers

        found = [answer.value for answer in asyncio.run(go())]
        np.testing.assert_array_equal(found, wanted)


def test_what_does_not_fit_is_refused_and_the_others_are_not():
    with CrumbOnline(slow(), streams.queries(), timeout=60, b_min=1000, max_pending=10) as stream:

        async def go():
            intake = Intake(stream, Schema.of(streams.table()[0]))
            asked = [asyncio.ensure_future(intake.answers(rows(4))) for _ in range(3)]
            with pytest.raises(StreamFull, match=r"12 more would exceed max_pending=10"):
                await asked[2]
            await asyncio.to_thread(lambda: eventually(lambda: stream.stats().pending == 8))
            with pytest.raises(StreamFull):
                await intake.answers(rows(3))
            asked[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked[0]
            assert stream.stats().pending == 4
            stream.flush(wait_for_answers=False)
            assert len(await asked[1]) == 4
            intake.close()

        asyncio.run(go())


def test_a_pass_that_fails_raises():
    streams.reset_gate(opened=True)
    streams.Gate.broken = True
    with CrumbOnline(streams.cheap(streams.Gate()), streams.queries(), timeout=0) as stream:

        async def go():
            intake = Intake(stream, Schema.of(streams.table()[0]))
            with pytest.raises(MemoryError):
                await intake.answers(rows(3))
            intake.close()

        asyncio.run(go())
    streams.reset_gate(opened=True)


def test_a_timer_goes_on_after_a_failure():
    calls, twice = [], threading.Event()

    def work() -> None:
        calls.append(1)
        if len(calls) >= 2:
            twice.set()
        raise OSError

    with repeated(0.01, work):
        assert twice.wait(10)
    count = len(calls)
    assert not twice.wait(0) or len(calls) == count
    with repeated(0, work):
        pass
    assert len(calls) == count


def test_logs_leave_messages_of_errors_out():
    out = io.StringIO()
    before = {
        name: (logging.getLogger(name).handlers[:], logging.getLogger(name).propagate)
        for name in LOGGERS
    }
    shows = warnings.showwarning
    try:
        watch.set_up_logs("info", out)
        try:
            raise ValueError("could not convert 'secret'")
        except ValueError as error:
            watch.event("it failed", logging.ERROR, **watch.where(error))
            logging.getLogger("uvicorn.error").error("trouble", exc_info=error)
        warnings.showwarning("Found unknown categories ['secret']", UserWarning, "file.py", 3)
    finally:
        warnings.showwarning = shows
        for name, (handlers, propagate) in before.items():
            logger = logging.getLogger(name)
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(logging.NOTSET)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["it failed", "trouble", "warning"]
    assert lines[0]["error"] == "ValueError"
    assert "secret" not in out.getvalue()


LOGGERS = ("crumb", "uvicorn")
