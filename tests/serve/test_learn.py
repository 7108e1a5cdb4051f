"""``/learn``: what it acknowledges is on disk, what it refuses is nowhere, labels are usable."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import threading
import time

import httpx
import numpy as np
import pandas as pd
import pytest
import serving
import streams
from serving import Server, records
from sklearn.linear_model import LinearRegression, LogisticRegression

from crumb import CrumbClassifier, CrumbOnline, CrumbRegressor
from crumb.cli import main
from crumb.errors import InvalidInput, PlanMismatch
from crumb.online.memory import FAN
from crumb.serve.app import make_app
from crumb.serve.page import History
from crumb.serve.schema import Schema
from crumb.serve.service import Service
from crumb.serve.state import LOG, ROOM, Entry, Journal, Lesson, Teacher
from crumb.serve.watch import Metrics
from crumb.table.row import Record

WORDS = ("--learn", "--timeout", "0.02", *serving.SMALL)


def lesson(rows: int = 1, seed: int = 1) -> dict:
    return {"records": records(rows, seed), "labels": ["cat"] * rows}


def teach(server: Server, rows: int = 1, seed: int = 1) -> httpx.Response:
    return server.http.post("/learn", json=lesson(rows, seed))


def taught(server: Server) -> int:
    return server.http.get("/live").json()["taught"]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_kill_a_full_disk_and_two_processes(tmp_path):
    """16 clients teach; the disk is full for a while; the process is killed; nothing is off."""
    state = tmp_path / "state"
    kept = ["--state", state, *WORDS]
    acknowledged, refused = [], []
    with Server(*serving.train_words(tmp_path), *kept) as server:

        def client(number: int) -> None:
            http, i = httpx.Client(base_url=server.url, timeout=60), 0
            while True:
                rows = 1 + (number + (i := i + 1)) % 3
                try:
                    answer = http.post("/learn", json=lesson(rows, seed=number))
                except httpx.TransportError:
                    return  # killed; whether this one was kept, nobody knows
                (acknowledged if answer.status_code == 200 else refused).append(rows)
                assert answer.status_code in (200, 503), answer.text

        clients = [threading.Thread(target=client, args=(i,)) for i in range(16)]
        for thread in clients:
            thread.start()
        serving.eventually(lambda: len(acknowledged) > 100)
        whole = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1_000, whole[1]))
        serving.eventually(lambda: len(refused) > 20)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, whole)
        before = len(acknowledged)
        serving.eventually(lambda: len(acknowledged) > before + 100)

        # Two processes on one folder would lose rows: the second one does not start.
        assert main(["serve", "--port", "0", "--state", str(state)]) == 1

        server.process.kill()
        for thread in clients:
            thread.join()
    with Server(*kept) as again:
        found = taught(again)
        # At most the 16 requests under way are there without an answer.
        assert sum(acknowledged) <= found <= sum(acknowledged) + 16 * 3
        assert teach(again, rows=2).status_code == 200
        assert taught(again) == found + 2
        assert again.stop() == 0
    with CrumbOnline.load(state / "stream.crumb") as stream:  # compacted into the snapshot
        assert stream.stats().taught == stream.stats().learned == found + 2
    assert sqlite3.connect(state / LOG).execute("SELECT count(*) FROM learned").fetchone() == (0,)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit (Linux)")
def test_what_a_full_disk_refused_is_nowhere(tmp_path):
    state = tmp_path / "state"
    with Server(*serving.train_words(tmp_path), "--state", state, *WORDS) as server:
        assert teach(server, rows=2).status_code == 200
        whole = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1_000, whole[1]))
        for _ in range(6):
            answer = teach(server)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
        assert taught(server) == 2
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, whole)
        assert teach(server).json() == {"waiting": 3}
        server.process.kill()
        server.wait()
    (state / ".stream.crumb.0123.part").write_bytes(b"half")  # as kill −9 leaves it
    with Server("--state", state, *WORDS) as again:
        assert taught(again) == 3
        assert not list(state.glob("*.part"))


WRONG = [{"a": 1}, [1], None, "\ud800", 1e39, float("1e400"), 10**400, True, 1.5, "text", 7, ""]
TARGETS = {
    "text": (np.array(["a", "b"]), {"text", ""}),
    "int": (np.array([0, 7]), {7}),
    "bool": (np.array([False, True]), {True}),
    "float": (np.array([0.0, 7.0]), {7}),
    "number": (None, {7, 1.5}),
}


@pytest.mark.parametrize("target", list(TARGETS))
def test_labels_are_as_strict_as_features(target):
    """Whatever is acknowledged, the next refresh can use."""
    classes, usable = TARGETS[target]
    X, _ = streams.table()
    settings = {"n_clusters": 2, "context_size": 30}
    if classes is None:
        model = CrumbRegressor(model=LinearRegression(), **settings).fit(X, X[:, 0])
    else:
        labels = classes[(X[:, 0] > 0).astype(int)]
        model = CrumbClassifier(model=LogisticRegression(), **settings).fit(X, labels)
    record = {str(i): 0.5 for i in range(4)}
    with CrumbOnline(model, timeout=0) as stream:
        app = make_app(Service(stream, Schema.of(X)), Metrics(), History(), learn=True)

        async def post(label) -> int:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
            ) as http:
                content = json.dumps({"records": [record], "labels": [label]})
                return (
                    await http.post("/learn", content=content, headers=serving.JSON)
                ).status_code

        for label in WRONG:
            fits = any(type(one) is type(label) and one == label for one in usable)
            status = asyncio.run(post(label))
            assert (status == 200) == fits, (label, status)
            assert status in (200, 400, 422)
        stream.refresh()
        assert stream.stats().pool_version == 2


def test_labels_of_a_request_are_not_those_of_another():
    """Requests share a turn: too many labels here and too few there do not even out."""
    X, _ = streams.table()
    with CrumbOnline(streams.cheap(), timeout=0) as stream:
        app = make_app(Service(stream, Schema.of(X)), Metrics(), History(), learn=True)
        record = {str(i): 0.5 for i in range(4)}

        async def go() -> list[int]:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
            ) as http:
                bodies = [{"records": [record], "labels": [1] * n} for n in (0, 1, 2)]
                answers = (http.post("/learn", json=body) for body in bodies)
                return [answer.status_code for answer in await asyncio.gather(*answers)]

        assert asyncio.run(go()) == [422, 200, 422]
        assert stream.stats().taught == 1


def test_lessons_are_made_a_table_many_at_a_time():
    """A table of one row takes milliseconds, and every other thread waits."""
    record, count = {str(i): 0.5 for i in range(4)}, FAN + 2
    X, y = streams.table()
    named = pd.DataFrame(X, columns=list(record))
    clf = CrumbClassifier(model=LogisticRegression(), **streams.SETTINGS).fit(named, y)
    with CrumbOnline(clf, timeout=0) as stream:

        async def go() -> None:
            teacher = Teacher(stream, Schema.of(clf.pool_.rows), None)
            for i in range(count):
                await teacher.learn(Lesson([{**record, "0": float(i)}], [1], b""))
            teacher.learn.close()

        asyncio.run(go())
        assert [len(part.y) for part in stream.snapshot().new] == [FAN, 1, 1]
        assert all(isinstance(part.pieces[0], Record) for part in stream.snapshot().new[1:])
        stream.refresh()
        assert stream.estimator.pool_.rows.iloc[-count:, 0].tolist() == list(range(count))


def with_empty_column(rows: int, later: float | None = None) -> pd.DataFrame:
    """As a table whose column ``later`` came into use after the first fit."""
    return serving.table(rows).assign(later=later)


def test_values_of_a_column_that_was_empty_are_kept(tmp_path):
    """They are in the log, in the next pool and in later queries, across kill −9 and a restart."""
    state, train = tmp_path / "state", tmp_path / "train.csv"
    with_empty_column(240).to_csv(train, index=False)
    # Contexts of all rows: others are chosen for queries that do not have the column.
    kept = ["--state", state, *WORDS, "--context-size", 400]
    due = ["--refresh", "periodic", "--refresh-every", 40, "--recent", 40]
    lessons = [
        {**record, "later": later}
        for later in (-3.0, 3.0)
        for record in records(100, seed=int(later) + 5)
    ]
    labels = ["cat"] * 100 + ["dog"] * 100
    with Server("--train", train, "--target", "animal", *kept, *due) as server:
        body = {"records": lessons, "labels": labels}
        assert server.http.post("/learn", json=body).status_code == 200
        server.process.kill()
        server.wait()
    with Server(*kept) as again:
        asked = records(40)
        nothing = [{**record, "later": None} for record in asked]
        assert again.predict(nothing).json()["plan_version"] == 1
        serving.eventually(lambda: again.predict(nothing).json()["plan_version"] > 1)
        for later, label in ((-3.0, "cat"), (3.0, "dog")):
            answer = again.predict([{**record, "later": later} for record in asked])
            found = [one["label"] for one in answer.json()["predictions"]]
            assert found.count(label) > 35
        answer = again.predict([{**asked[0], "later": "text"}])
        assert (answer.status_code, "later" in answer.text) == (422, True)
        assert again.stop() == 0
    with Server(*kept) as third:  # the file of the columns fits the pool that has learned more
        assert third.predict(nothing[:1]).status_code == 200
        assert third.stop() == 0
    with CrumbOnline.load(state / "stream.crumb") as stream:
        pool = stream.estimator.pool_
        assert pool.rows["later"].tolist()[-200:] == [-3.0] * 100 + [3.0] * 100


@pytest.mark.parametrize(
    ("values", "pool"),
    [
        ([1.5, 2, None, True], [1.5, 2.0, None, 1.0]),
        (["a", None, "b"], ["a", None, "b"]),
        ([1.5, "a", True], ["1.5", "a", "1"]),
        ([10**400, 2.0], [2.0, 2.0]),
    ],
)
def test_an_empty_column_takes_any_plain_value(values, pool):
    """Whether the rows come in one request or one by one."""
    X = with_empty_column(240).drop(columns="animal")
    y = serving.table()["animal"]
    for portions in ([values], [[value] for value in values]):
        settings = {"context_size": 40, "n_clusters": 3}
        model = CrumbClassifier(model=LogisticRegression(), **settings).fit(X, y)
        with CrumbOnline(model, timeout=0) as stream:
            app = make_app(Service(stream, Schema.of(X)), Metrics(), History(), learn=True)

            async def post(portion, app=app) -> httpx.Response:
                async with httpx.AsyncClient(
                    transport=httpx.ASGITransport(app), base_url="http://127.0.0.1"
                ) as http:
                    rows = [
                        {**record, "later": value}
                        for record, value in zip(records(len(portion)), portion, strict=True)
                    ]
                    content = json.dumps({"records": rows, "labels": ["cat"] * len(rows)})
                    return await http.post("/learn", content=content, headers=serving.JSON)

            for portion in portions:
                assert asyncio.run(post(portion)).status_code == 200
            for wrong in ([1], {"a": 1}, "x" * 10_001):
                answer = asyncio.run(post([wrong]))
                assert (answer.status_code, "later" in answer.text) == (422, True)
                assert len(answer.text) < 1_000
            stream.refresh()
            learned = stream.estimator.pool_.rows["later"].tolist()[-len(values) :]
            assert [None if value != value else value for value in learned] == pool


def test_a_pool_that_has_lost_a_column_starts_again_and_learns_it(tmp_path):
    """Rows with dates leave the pool; a description that knows of dates fits what is left."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=40), "day": pd.Timestamp("2024-05-31")})
    y = np.arange(40) % 2
    schema = Schema.of(X, allow_missing=True)
    settings = {"context_size": 20, "n_clusters": 2}
    model = CrumbClassifier(model=LogisticRegression(), **settings).fit(X, y)
    with CrumbOnline(model, timeout=0, max_rows=20) as stream:
        stream.learn(X.assign(day=pd.NaT), y)
        stream.refresh()
        assert stream.estimator.pool_.encoder.kinds_ == ["number", "empty"]
        schema.check(stream.estimator)
        lesson = schema.read([{"x": 0.5, "day": "2024-05-31T00:00:00Z"}])

        async def teach() -> int:
            return await Teacher(stream, schema, None).learn(Lesson(lesson, [1], b""))

        assert asyncio.run(teach()) == 1
        stream.refresh()
        assert stream.estimator.pool_.rows["day"].tolist()[-1] == lesson[0]["day"]


def entry(first: int, rows: int = 1) -> Entry:
    body = {"records": [{str(i): 0.5 for i in range(4)}] * rows, "labels": [1] * rows}
    return Entry(first, rows, 5.0, json.dumps(body).encode())


def test_the_log(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(InvalidInput, match="Another service uses"):
        Journal(tmp_path)
    journal.append([entry(0), entry(1, rows=3), entry(4)])
    with pytest.raises(sqlite3.IntegrityError):
        journal.append([entry(5), entry(4)])  # all or none
    journal.close()
    journal = Journal(tmp_path)
    assert [each.first for portion in journal.entries(1) for each in portion] == [1, 4]
    with CrumbOnline(streams.cheap(), timeout=0) as stream:
        Teacher(stream, Schema.of(streams.table()[0]), journal).replay()
        state = stream.snapshot()
        assert state.counters["taught"] == 5
        assert [piece.came.tolist() for piece in state.new] == [[5.0] * 5]
    journal.forget(before=4)
    assert [each.first for portion in journal.entries(4) for each in portion] == [4]
    with pytest.raises(PlanMismatch, match="goes on after 4 rows, the snapshot after 2"):
        list(journal.entries(2))
    with CrumbOnline(streams.cheap(), timeout=0) as stream:
        stream.learn(*(part[:4] for part in streams.table()))
        other = pd.DataFrame({"other": [1.0, 2.0]})
        with pytest.raises(PlanMismatch, match="does not fit"):
            Teacher(stream, Schema.of(other), journal).replay()
    journal.close()


def test_the_files_of_the_log_do_not_grow(tmp_path):
    """A sync of a file that grows waits for what others write to the disk."""

    def sizes() -> dict[str, int]:
        return {path.name: path.stat().st_size for path in tmp_path.glob(f"{LOG}*")}

    for start in (0, 600):  # the second time there is something in it
        journal = Journal(tmp_path)
        before = sizes()
        assert min(before.values()) >= ROOM
        for first in range(start, start + 600, 50):
            journal.append([Entry(first + i, 1, 5.0, bytes(1_000)) for i in range(50)])
        assert sizes() == before
        assert sum(map(len, journal.entries(0))) == start + 600
        journal.close()


def test_a_damaged_log(tmp_path):
    (tmp_path / LOG).write_bytes(b"no database" * 500)
    with pytest.raises(PlanMismatch, match="cannot be used"):
        Journal(tmp_path)


def test_many_lessons_share_a_commit(tmp_path):
    commits = []

    class Slow(Journal):
        def append(self, entries):
            commits.append(len(entries))
            time.sleep(0.05)
            super().append(entries)

    journal = Slow(tmp_path)
    record = {str(i): 0.5 for i in range(4)}
    with CrumbOnline(streams.cheap(), timeout=0) as stream:

        async def go() -> list[int]:
            teacher = Teacher(stream, Schema.of(streams.table()[0]), journal)
            lessons = (teacher.learn(Lesson([record], [1], b"{}")) for _ in range(50))
            counts = await asyncio.gather(*lessons)
            teacher.learn.close()
            return counts

        assert max(asyncio.run(go())) == stream.stats().taught == 50
    assert commits[0] + sum(commits[1:]) == 50
    assert len(commits) <= 3
    journal.close()
