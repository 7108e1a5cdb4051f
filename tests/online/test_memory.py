"""online/memory.py: the latest queries; rows that join the pool, and rows that leave it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from streams import ManualClock, cheap, queries, table

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput
from crumb.online import CrumbOnline
from crumb.online.memory import LabelledRows, PoolMemory, Recent, latest, refitted


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 20))
def test_the_recent_holds_the_latest_rows(sizes: list[int], size: int) -> None:
    recent, rows = Recent(size), np.arange(sum(sizes))[:, None]
    for piece in np.split(rows, np.cumsum(sizes)[:-1]):
        recent.add(piece)
    np.testing.assert_array_equal(latest(recent.pieces(), len(recent)), rows[-size:])
    assert len(recent) == recent.fresh == min(size, len(rows))
    assert sum(map(len, recent.pieces())) < size + 12  # memory is bounded


def test_rows_from_before_the_plan_are_not_fresh() -> None:
    recent = Recent(5)
    recent.add(np.zeros((4, 1)))
    recent.fresh = 0  # as a new plan does
    recent.add(np.ones((2, 1)))
    assert (len(recent), recent.fresh) == (5, 2)


def pool(rows: int, date: float = 0.0) -> LabelledRows:
    return learned(np.arange(rows), date)


def learned(y: np.ndarray, date: float) -> LabelledRows:
    """Rows that hold their labels."""
    rows = np.zeros((len(y), 1)) if y.dtype.kind == "U" else y[:, None].astype(float)
    return LabelledRows([rows], y, np.full(len(y), date))


def test_without_anything_new_the_pool_is_what_it_is() -> None:
    assert PoolMemory(pool(5)).upcoming(1e9) is None


def test_the_youngest_stay() -> None:
    memory = PoolMemory(pool(4), max_rows=5)
    memory.add(learned(np.array([10, 11, 12]), 7.0))
    upcoming = memory.upcoming(8.0)
    assert upcoming.pool.y.tolist() == [2, 3, 10, 11, 12]
    assert upcoming.pool.rows[:, 0].tolist() == [2.0, 3.0, 10.0, 11.0, 12.0]
    memory.add(learned(np.array([20]), 9.0))  # while the plan is made
    memory.commit(upcoming)
    assert [piece.y.tolist() for piece in memory.new] == [[20]]
    assert memory.upcoming(9.0).pool.y.tolist() == [3, 10, 11, 12, 20]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=150), st.integers(0, 150))
def test_few_pieces_wait_and_a_refresh_takes_what_it_saw(sizes: list[int], seen: int) -> None:
    memory, count = PoolMemory(pool(4)), 0
    upcoming = None
    for i, size in enumerate(sizes):
        if i == seen:
            upcoming, joined = memory.upcoming(1.0), count
        memory.add(learned(np.arange(count, count + size), 1.0))
        count += size
    assert memory.waiting() == count
    assert len(memory.new) <= 100
    if upcoming is not None:
        memory.commit(upcoming)
        left = np.concatenate([piece.y for piece in memory.new])
        assert left.tolist() == list(range(joined, count))


def test_old_rows_leave_by_their_age() -> None:
    memory = PoolMemory(pool(4), max_age=10.0)
    memory.add(learned(np.array([10]), 7.0))
    assert memory.upcoming(10.0).pool.y.tolist() == [0, 1, 2, 3, 10]
    assert memory.upcoming(10.1).pool.y.tolist() == [10]


def test_labels_of_another_sort_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Labels are of type"):
        PoolMemory(pool(4)).add(learned(np.array(["a"]), 0.0))


def test_the_next_refresh_sees_what_was_learned() -> None:
    X, y = table()
    more, labels = table(30, seed=5)
    labels[:] = 7  # a class that the pool does not have
    Q = queries()
    with CrumbOnline(cheap(), Q, timeout=0) as stream:
        before = stream.submit(Q[0]).result(10)
        stream.learn(more, labels)
        more[:] = 0  # the stream has its own copy
        assert stream.submit(Q[0]).result(10).classes.tolist() == [0, 1, 2]
        stream.refresh()
        after = stream.submit(Q[0]).result(10)
        stats = stream.stats()
        assert (stats.version, stats.pool_version, stats.refreshes) == (2, 2, 1)
        stream.refresh()
        assert stream.stats().pool_version == 2  # nothing new
    assert (before.version, before.classes.tolist()) == (1, [0, 1, 2])
    assert (after.version, after.classes.tolist()) == (2, [0, 1, 2, 7])
    fresh = cheap().fit(np.concatenate([X, table(30, seed=5)[0]]), np.concatenate([y, labels]))
    np.testing.assert_array_equal(stream.estimator.predict_proba(Q), fresh.predict_proba(Q))


def test_a_pool_of_bounded_size_forgets_the_oldest() -> None:
    clock = ManualClock()
    with CrumbOnline(cheap(), queries(), max_rows=200, max_age=1_000.0, clock=clock) as stream:
        clock.move(500.0)
        X, y = table(50, seed=5)
        stream.learn(X, y)
        stream.refresh()
        np.testing.assert_array_equal(stream.estimator.pool_.rows[-50:], X)
        assert len(stream.estimator.pool_.rows) == 200
        clock.move(600.0)
        stream.refresh()
        np.testing.assert_array_equal(stream.estimator.pool_.rows, X)
        clock.move(1_000.0)
        with pytest.raises(InvalidInput, match="young enough"):
            stream.refresh()
        assert stream.version == 3  # and goes on as it was


def test_frames_with_categories_that_the_pool_has_not_seen() -> None:
    frame = pd.DataFrame(
        {"x": np.arange(60.0), "c": pd.Categorical(["a", "b"] * 30), "t": ["u", "v", None] * 20}
    )
    clf = CrumbClassifier(n_clusters=2, context_size=30, cache_size=0).fit(frame, [0, 1] * 30)
    with CrumbOnline(clf, timeout=0) as stream:
        new = pd.DataFrame({"x": [1.0, 2.0], "c": pd.Categorical(["z", "a"]), "t": ["w", None]})
        stream.learn(new, [1, 0])
        stream.refresh()
        rows = stream.estimator.pool_.rows
        assert rows["c"].astype(str).tolist()[-2:] == ["z", "a"]
        assert isinstance(rows["c"].dtype, pd.CategoricalDtype)
        got = stream.submit({"x": 3.0, "c": "z", "t": "w"}).result(20).value
        asked = pd.DataFrame({"x": [3.0], "c": ["z"], "t": ["w"]})
        np.testing.assert_array_equal(
            got, stream.estimator.predict_proba(asked, plan=stream.plan)[0]
        )


def test_words_stay_words_when_only_dates_are_left() -> None:
    """Else a query with the word that has left would be refused after the refresh."""
    seen = pd.DataFrame({"seen": ["never"] * 10 + ["2020-01-01", "2020-01-02"] * 10})
    clf = CrumbClassifier(n_clusters=1, context_size=5).fit(seen, np.arange(30) % 2)
    left = LabelledRows(
        [clf.pool_.rows[10:].reset_index(drop=True)], np.arange(20) % 2, np.zeros(20)
    )
    fresh = refitted(clf, left)
    assert fresh.predict(seen[:1]).shape == (1,)
    assert refitted(fresh, left).pool_.encoder.kinds_ == ["category"]


def test_wrong_lessons_are_refused() -> None:
    X, y = table(10)
    with CrumbOnline(cheap(LogisticRegression())) as stream:
        with pytest.raises(InvalidInput, match="10 rows, y has 9"):
            stream.learn(X, y[:9])
        with pytest.raises(InvalidInput, match="NaN"):
            stream.learn(X, [None, *y[1:]])
        with pytest.raises(InvalidInput, match="type"):
            stream.learn(X, ["a"] * 10)
        with pytest.raises(InvalidInput, match="whole"):
            stream.learn(X, [0.5] * 10)
        with pytest.raises(InvalidInput, match="one sort"):
            stream.learn(X, np.array([{"a": 1}] * 10, dtype=object))
        stream.learn(X, y.astype(float))  # 1.0 is the class 1
        assert stream.snapshot().new[0].y.dtype == y.dtype
    reg = CrumbRegressor(model=LinearRegression(), context_size=20, n_clusters=2).fit(*table())
    with CrumbOnline(reg) as stream:
        with pytest.raises(InvalidInput, match="infinity"):
            stream.learn(X, np.full(10, np.inf))
        with pytest.raises(InvalidInput, match="single precision"):
            stream.learn(X, np.full(10, 1e39))
        stream.learn(X, y)
        stream.refresh()
        assert len(stream.estimator.pool_.rows) == 210


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["a", "b"], "text"), ([1.5, 2.5], "number"), (pd.Categorical(["a", "b"]), "category")],
)
def test_what_is_learned_in_an_empty_column_stays(values, kind: str, tmp_path) -> None:
    """A column that was empty at the first fit has the values of the rows that came later."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=40), "e": [None] * 40})
    clf = CrumbClassifier(context_size=20, n_clusters=2).fit(X, np.arange(40) % 2)
    rows = pd.DataFrame({"x": [0.5, 1.5], "e": values})
    with CrumbOnline(clf, timeout=0.01) as stream:
        stream.learn(rows, [0, 1])
        stream.save(tmp_path / "state")
        stream.refresh()
        pool = stream.estimator.pool_
        assert pool.encoder.kinds_ == ["number", kind]
        assert pool.rows["e"].tolist()[-2:] == list(values)
        assert pool.rows["e"][:40].isna().all()
        assert len(stream.submit({"x": 0.5, "e": values[0]}).result().value) == 2
    with CrumbOnline.load(tmp_path / "state") as again:
        again.learn(rows.assign(e=["3", "u"]), [0, 1])
        again.save(tmp_path / "state")
    with CrumbOnline.load(tmp_path / "state") as again:
        again.refresh()
        pool = again.estimator.pool_
        assert pool.encoder.kinds_ == ["number", "text" if kind == "number" else kind]
        assert pool.rows["e"].tolist()[-4:] == [*map(str, values), "3", "u"]
