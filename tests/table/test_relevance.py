"""space.py: columns weighed by what they tell about the target."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scale_tables import mixed, write
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression

from crumb import CrumbClassifier, CrumbRegressor, load, select_contexts
from crumb.errors import InvalidInput
from crumb.options import Options
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import FilePool
from crumb.scale.source import count_rows, open_source
from crumb.table import space
from crumb.table.encoder import TableEncoder
from crumb.table.intake import to_rows
from crumb.table.space import FOREST, LEAST_SHARE, column_weights, learn_space, relevance_rows

FEW = {"n_clusters": 2, "context_size": 50, "device": "cpu"}


@pytest.fixture(autouse=True)
def small_pools_count(monkeypatch):
    monkeypatch.setattr(space, "LEAST_POOL", 100)


def encoded(table) -> tuple[TableEncoder, pd.DataFrame | np.ndarray]:
    encoder = TableEncoder()
    return encoder, encoder.fit_transform(to_rows(table))


def weights(table, y, classify=True, jobs=1) -> np.ndarray:
    encoder, rows = encoded(table)
    return column_weights(rows, encoder, np.asarray(y), classify, 0, jobs)


def needles(rows=600, columns=12, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """A table whose target depends on two columns."""
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return X, (X[:, 3] * X[:, 7] > 0).astype(int)


def test_weights_are_the_roots_of_the_shares_of_a_forest() -> None:
    X, y = needles()
    forest = RandomForestClassifier(**FOREST, random_state=0).fit(X - X.mean(axis=0), y)
    shares = forest.feature_importances_
    expected = np.sqrt(np.maximum(shares / shares.mean(), LEAST_SHARE))
    np.testing.assert_allclose(weights(X, y), expected)
    assert set(np.argsort(expected)[-2:]) == {3, 7}
    np.testing.assert_array_equal(weights(X, y), weights(X, y, jobs=2))


def test_of_very_many_classes_the_rarest_are_one() -> None:
    """With a class for each of 3,000 rows, ``fit`` took 14 s."""
    X, places = np.random.default_rng(0).normal(size=(1_000, 3)), np.arange(1_000)
    np.testing.assert_allclose(weights(X, places), weights(X, np.minimum(places, 255)))
    frequent = np.where(places % 3, X[:, 1] > 0, places)
    assert weights(X, frequent).argmax() == 1


def test_dates_text_and_holes_count_as_well() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=400),
            # Nanoseconds since 1970 are the same number in float32 for minutes on end.
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 400), "s"),
            "word": rng.choice(["a", "b", None], 400),
            "empty": np.nan,
        }
    )
    second = frame["when"].dt.second + 60 * frame["when"].dt.minute
    found = weights(frame, second > 45)
    assert found.argmax() == 1
    assert weights(frame, frame["word"].fillna("none")).argmax() == 2


@pytest.mark.parametrize("scale", [1.0, 1e300])
def test_a_few_extreme_targets_do_not_decide(scale) -> None:
    X, _ = needles()
    y = scale * (X[:, 3] + np.where(np.arange(len(X)) % 100 == 0, 50.0 * X[:, 5], 0))
    assert weights(X, y, classify=False).argmax() == 3


def test_a_target_that_nothing_tells_leaves_the_columns_alike() -> None:
    X, _ = needles()
    np.testing.assert_array_equal(weights(X, np.zeros(len(X)), classify=False), np.ones(12))


@pytest.mark.parametrize("own", [[1.0, 2.0, 0.5, 4.0], "learned"])
def test_points_are_the_plain_ones_times_the_weights(own) -> None:
    frame = mixed(300, 1)
    y, table = frame["target"], frame.drop(columns="target")
    encoder, rows = encoded(table)
    given = weights(table, y) if own == "learned" else np.resize(own, table.shape[1])
    plain, points = learn_space(None, rows, encoder, None, None)
    _, times = learn_space(given, rows, encoder, None, None)
    heights = [
        np.full(one.width, given[j])
        for j, one in zip(plain.categories, plain.indicators, strict=True)
    ]
    factor = np.concatenate([given[plain.numbers], *heights])
    np.testing.assert_allclose(times, points * factor, atol=1e-12)
    estimator = CrumbClassifier(model=LogisticRegression(), features=list(given), **FEW)
    estimator.fit(table, y)
    for i in (0, 7):  # one row by itself
        point = estimator.encode_row(table.iloc[i].to_dict())[1]
        np.testing.assert_allclose(point[0], times[i], atol=1e-12)


def test_files_get_the_weights_of_the_table_in_memory(tmp_path) -> None:
    frame = mixed(500, 3)
    source = count_rows(
        open_source(write(tmp_path / "t", frame, files=3), "target"), LocalEngine(1)
    )
    pool = FilePool(source, LocalEngine(1), Options.of(), classify=True, features="auto")
    memory = CrumbClassifier(model=LogisticRegression(), **FEW).fit(frame, "target").pool_
    np.testing.assert_allclose(pool.space.weights, memory.space.weights)
    np.testing.assert_allclose(pool.sample_points, memory.points[pool.sample.ids], atol=1e-9)


def test_contexts_are_alike_in_what_matters() -> None:
    X, y = needles(2_000, 30)
    apart = {}
    for features in (None, "auto"):
        clf = CrumbClassifier(
            model=LogisticRegression(), features=features, **FEW | {"n_clusters": 20}
        )
        plan = clf.fit(X[100:], y[100:]).plan(X[:100])
        pairs = zip(plan.labels, X[:100], strict=True)
        near = [np.abs(X[100:][plan.contexts[k]] - x)[:, [3, 7]].mean() for k, x in pairs]
        apart[features] = np.mean(near)
    assert apart["auto"] < 0.8 * apart[None]


def test_a_small_pool_has_plain_columns() -> None:
    X, y = needles(100)
    plain, auto = (
        CrumbClassifier(model=LogisticRegression(), features=features, **FEW).fit(X, y).pool_
        for features in (None, "auto")
    )
    assert auto.space.weights is None
    assert auto.fingerprint == plain.fingerprint
    assert select_contexts(X, X[:9], features="auto", n_clusters=1, context_size=10).sizes == 10


def test_few_rows_of_a_large_or_wide_table_are_looked_at() -> None:
    assert len(relevance_rows(100, 5, 0)) == 0
    assert len(relevance_rows(10**6, 5, 0)) == 20_000
    assert len(relevance_rows(10**6, 1_000, 0)) == 2_000
    rows = relevance_rows(30_000, 5, 1)
    assert (np.diff(rows) > 0).all()
    assert not np.array_equal(rows, relevance_rows(30_000, 5, 2))


def test_a_saved_estimator_keeps_its_weights(tmp_path, monkeypatch) -> None:
    X, y = needles(300)
    clf = CrumbClassifier(n_clusters=2, context_size=50, device="cpu").fit(X, y)
    clf.save(tmp_path / "clf.crumb")
    # Another version of scikit-learn may grow other trees.
    monkeypatch.setattr("crumb.table.space.column_weights", None)
    again = load(tmp_path / "clf.crumb", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(X[:20]), clf.predict_proba(X[:20]))
    assert again.features == "auto"
    own = CrumbClassifier(features=np.arange(1.0, 13.0), **FEW).fit(X, y)
    own.save(tmp_path / "own.crumb")
    again = load(tmp_path / "own.crumb", device="cpu")
    np.testing.assert_array_equal(again.pool_.space.weights, np.arange(1.0, 13.0))


@pytest.mark.parametrize("bad", [[1.0, 2.0], [0.0] * 12, [np.nan] * 12, ["a"] * 12, [[1.0]]])
def test_weights_that_do_not_fit_are_refused(bad) -> None:
    X, y = needles()
    with pytest.raises(InvalidInput, match="one for each of the 12 columns"):
        CrumbRegressor(model=LinearRegression(), features=bad, **FEW).fit(X, y)
