"""online/observer.py: observers are told everything, outside the locks, and do no harm."""

from __future__ import annotations

import pytest
from streams import Gate, ManualClock, cheap, queries, reset_gate

from crumb.errors import StreamClosed
from crumb.online import CrumbOnline, Observer

X = queries(40)


class Diary(Observer):
    """Writes down what it hears, and asks the stream meanwhile: that must not hang."""

    def __init__(self) -> None:
        self.heard: dict[str, list[tuple]] = {}
        self.stream: CrumbOnline | None = None

    def _write(self, name: str, *what) -> None:
        self.heard.setdefault(name, []).append(what)
        if self.stream is not None:
            assert (
                not self.stream._changed._is_owned()
            )  # the lock of a condition is this thread's or it is not
            assert not self.stream._building.locked()

    def answered(self, waits) -> None:
        self._write("answered", waits)

    def passed(self, cluster, rows, seconds) -> None:
        self._write("passed", cluster, rows, seconds)

    def failed(self, rows, error) -> None:
        self._write("failed", rows, error)

    def refreshed(self, version, seconds) -> None:
        self._write("refreshed", version, seconds)

    def refresh_failed(self, error) -> None:
        self._write("refresh_failed", error)

    def looked(self, drift) -> None:
        self._write("looked", drift)


def test_waits_and_passes() -> None:
    clock, diary = ManualClock(), Diary()
    with CrumbOnline(cheap(), X, b_min=100, timeout=5, clock=clock, observer=diary) as stream:
        diary.stream = stream
        first = stream.submit(X[0])
        clock.move(2)
        second = stream.submit(X[0])
        clock.move(3)
        cluster = first.result(10).cluster
        second.result(10)
    assert diary.heard == {"answered": [([5.0, 3.0],)], "passed": [(cluster, 2, 0.0)]}


def test_failures() -> None:
    reset_gate(opened=True)
    diary = Diary()
    stream = CrumbOnline(cheap(Gate()), X, b_min=100, timeout=60, observer=diary)
    Gate.broken = True
    futures = stream.submit_many(X[:1])
    stream.flush()
    assert diary.heard == {"failed": [(1, futures[0].exception(0))]}
    stream.submit_many(X[:3])
    stream.close(drain=False)
    rows, error = diary.heard["failed"][1]
    assert rows == 3
    assert isinstance(error, StreamClosed)


def test_refreshes_and_looks(monkeypatch) -> None:
    diary, clf = Diary(), cheap()
    with CrumbOnline(
        clf, X, timeout=0, refresh="drift", refresh_every=10, recent=20, observer=diary
    ) as stream:
        diary.stream = stream
        stream.submit_many(queries(20, shift=5.0))
        stream.settle()
        assert diary.heard["looked"][0][0].found
        assert [version for version, _ in diary.heard["refreshed"]] == [2]
        monkeypatch.setattr(type(clf), "plan_points", lambda *given, **named: 1 / 0)
        stream.submit_many(queries(20, shift=-5.0))
        stream.settle()
        with pytest.raises(ZeroDivisionError):
            stream.refresh()
        assert [type(error) for (error,) in diary.heard["refresh_failed"]] == [
            ZeroDivisionError
        ] * 2
        assert stream.stats().refresh_failures == 2


class Broken(Observer):
    def __getattribute__(self, name: str):
        if name.startswith("_"):
            return super().__getattribute__(name)

        def fail(*what) -> None:
            raise RuntimeError("an observer with a fault of its own")

        return fail


def test_an_observer_that_fails_changes_nothing() -> None:
    clf = cheap()
    with CrumbOnline(clf, X, timeout=0, b_min=1, observer=Broken()) as stream:
        expected = clf.predict_proba(X, plan=stream.plan)
        for _ in range(2):
            assert [f.result(10).value.tolist() for f in stream.submit_many(X)] == expected.tolist()
        assert stream.drift() is not None
        assert stream.refresh() == 2


def test_a_loaded_stream_has_its_own_observer(tmp_path) -> None:
    diary = Diary()
    with CrumbOnline(cheap("embedded"), X, timeout=0) as stream:
        stream.save(tmp_path / "stream.crumb")
    with CrumbOnline.load(tmp_path / "stream.crumb", observer=diary) as stream:
        stream.submit(X[0]).result(10)
        assert len(diary.heard["answered"]) == 1
