"""``plan_at="fit"``: an answer depends on its row alone, whatever else is asked with it."""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale_tables import mixed, stay_on_disk
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import crumb
from crumb import MICP, CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidFile, InvalidInput, PlanMismatch
from crumb.files import read_archive, write_archive
from crumb.online import CrumbOnline

SMALL = {"n_clusters": 4, "context_size": 40, "device": "cpu"}
TABLE = mixed(360)
X, CLASSES = TABLE.drop(columns="target"), TABLE["target"].to_numpy()
NUMBERS = np.random.default_rng(0).normal(size=360) + np.where(TABLE["flag"], 3, 0)
POOL, QUERIES = slice(0, 300), X[300:].reset_index(drop=True)


def fitted(kind: type = CrumbClassifier, **more: Any) -> Any:
    y = CLASSES if kind is CrumbClassifier else NUMBERS
    return kind(**{**SMALL, "plan_at": "fit", **more}).fit(X[POOL], y[POOL])


def ask(model: Any, rows: pd.DataFrame) -> np.ndarray:
    return model.predict(rows) if model.task == "regression" else model.predict_proba(rows)


MADE: dict[str, tuple[type, dict[str, Any]]] = {
    "classifier": (CrumbClassifier, {}),
    "regressor": (CrumbRegressor, {}),
    "guided": (CrumbClassifier, {"guide": "trees"}),
    "members": (CrumbClassifier, {"n_estimators": 2}),
    "micp": (CrumbClassifier, {"strategy": MICP(n_clusters=6)}),
    "nothing kept": (CrumbClassifier, {"cache_size": 0}),
    "uniform": (CrumbRegressor, {"strategy": "uniform"}),
}


@cache
def answered(name: str) -> tuple[Any, np.ndarray]:
    """A model, and what it says of all queries at once."""
    kind, more = MADE[name]
    model = fitted(kind, **more)
    return model, ask(model, QUERIES)


BATCHES = st.lists(st.integers(0, len(QUERIES) - 1), min_size=1, max_size=80)


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=8, deadline=None)
@given(rows=BATCHES)
def test_an_answer_depends_on_its_row_alone(name: str, rows: list[int]) -> None:
    """In any batch, in any order, more than once: to the last bit on a CPU."""
    model, whole = answered(name)
    np.testing.assert_array_equal(ask(model, QUERIES.iloc[rows]), whole[rows])


@pytest.mark.parametrize("kind", [CrumbClassifier, CrumbRegressor])
def test_without_the_switch_it_depends_on_the_batch(kind: type) -> None:
    model = fitted(kind, plan_at="predict")
    assert model.plan_ is None
    together = ask(model, QUERIES)
    assert np.abs(ask(model, QUERIES[:9]) - together[:9]).max() > 1e-3


def test_medians_and_quantiles_too() -> None:
    reg, _ = answered("regressor")
    for output in ("median", "quantiles"):
        whole = reg.predict(QUERIES, output_type=output)
        part = reg.predict(QUERIES[7:9], output_type=output)
        np.testing.assert_array_equal(part, whole[7:9])


def test_the_plan_is_one_for_rows_of_the_pool() -> None:
    clf, whole = answered("classifier")
    expected = fitted(plan_at="predict").plan(X[POOL])
    assert [rows.tolist() for rows in clf.plan_.contexts] == [
        rows.tolist() for rows in expected.contexts
    ]
    np.testing.assert_array_equal(clf.plan_.labels, expected.labels)
    frozen = fitted(plan_at="predict").predict_proba(QUERIES, plan=expected)
    np.testing.assert_array_equal(whole, frozen)


def test_a_large_pool_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crumb.learning.PLANNED_ROWS", 50)
    one, same, other = (fitted(random_state=seed).plan_ for seed in (0, 0, 1))
    assert one.settings["n_queries"] == len(one.labels) == 50
    np.testing.assert_array_equal(one.centroids, same.centroids)
    assert not np.array_equal(one.centroids, other.centroids)
    assert np.concatenate(one.contexts).max() >= 250, "contexts come from the whole pool"


def test_plan_says_what_predict_does() -> None:
    clf, whole = answered("classifier")
    plan = clf.plan(QUERIES[:3])
    assert len(plan.labels) == 3
    assert plan.contexts is clf.plan_.contexts
    assert plan.summary()["queries"].sum() == 3
    for point, label, distance in zip(
        clf.encode(QUERIES[:3])[1], plan.labels, plan.query_distance, strict=True
    ):
        context = clf.pool_.points[plan.contexts[label]]
        np.testing.assert_allclose(distance, np.linalg.norm(context - point, axis=1).min())
    np.testing.assert_array_equal(
        clf.predict_proba(QUERIES, plan=plan), whole
    )  # frozen again, it still has all of its clusters
    other = fitted(plan_at="predict").plan(QUERIES)
    assert np.abs(clf.predict_proba(QUERIES, plan=other) - whole).max() > 1e-3


@pytest.mark.parametrize("name", ["classifier", "regressor", "micp"])
def test_saved_loaded_and_pickled(name: str, tmp_path) -> None:
    model, whole = answered(name)
    model.save(tmp_path / "model.crumb")
    for again in (crumb.load(tmp_path / "model.crumb"), pickle.loads(pickle.dumps(model))):
        assert again.plan_at == "fit"
        np.testing.assert_array_equal(again.plan_.centroids, model.plan_.centroids)
        np.testing.assert_array_equal(ask(again, QUERIES[5:8]), whole[5:8])
    changed = crumb.load(tmp_path / "model.crumb", plan_at="predict")
    assert changed.plan_ is None


def test_a_plan_is_read_and_not_made_again(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine might choose otherwise."""
    answered("classifier")[0].save(tmp_path / "model.crumb")
    monkeypatch.setattr("crumb.pool.Pool.plan", None)
    assert crumb.load(tmp_path / "model.crumb").plan_.n_clusters == 4


def test_a_plan_of_another_pool_in_the_file_is_noticed(tmp_path) -> None:
    for name, rows in (("one", 300), ("two", 299)):
        model = CrumbClassifier(**SMALL, plan_at="fit").fit(X[:rows], CLASSES[:rows])
        model.save(tmp_path / name)
    about, arrays, files = read_archive(tmp_path / "one", "crumb-estimator", 1)
    plain = {name: about[name] for name in about if name not in ("format", "version")}
    other = read_archive(tmp_path / "two", "crumb-estimator", 1)[2]["plan.crumb"]
    for content, error, said in (
        (other, PlanMismatch, "another pool"),
        (b"no plan", InvalidFile, "damaged"),
    ):
        files["plan.crumb"] = content
        write_archive(tmp_path / "bad", "crumb-estimator", 1, plain, arrays, files)
        with pytest.raises(error, match=said):
            crumb.load(tmp_path / "bad")


def test_a_parameter_like_others() -> None:
    clf, whole = answered("classifier")
    assert clone(clf).plan_at == "fit"
    back = clone(clf).fit(X[POOL], CLASSES[POOL]).set_params(plan_at="predict")
    np.testing.assert_array_equal(ask(back, QUERIES[:3]), whole[:3])
    assert back.fit(X[POOL], CLASSES[POOL]).plan_ is None
    again = back.set_params(plan_at="fit").fit(X[POOL], CLASSES[POOL])
    np.testing.assert_array_equal(ask(again, QUERIES[:3]), whole[:3])
    search = GridSearchCV(clone(clf), {"plan_at": ["fit", "predict"]}, cv=2).fit(X, CLASSES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(("strategy", "cells"), [("mmd", 0), ("micp", 0), ("mmd", 10**9)])
def test_a_pool_in_files(tmp_path, monkeypatch, strategy: str, cells: int) -> None:
    stay_on_disk(monkeypatch)
    monkeypatch.setattr("crumb.scale.pool.COVERED_CELLS", cells)
    mixed(900).to_parquet(tmp_path / "pool.parquet", row_group_size=200)
    clf = CrumbClassifier(**SMALL, plan_at="fit", strategy=strategy)
    clf.fit(tmp_path / "pool.parquet", "target")
    assert clf.pool_.on_disk
    whole = clf.predict_proba(QUERIES)
    np.testing.assert_array_equal(clf.predict_proba(QUERIES[11:14]), whole[11:14])
    assert np.isfinite(clf.plan(QUERIES).query_distance).all()


def test_a_stream_answers_by_the_plan_made_at_fit() -> None:
    clf, whole = answered("classifier")
    with CrumbOnline(clf, QUERIES[:20], timeout=0.01) as stream:
        assert stream.plan.contexts is clf.plan_.contexts
        answer = stream.submit(QUERIES.iloc[30]).result()
        alone = clf.predict_proba(QUERIES, plan=stream.plan)  # one context a query
        np.testing.assert_array_equal(answer.value, alone[30])
        assert np.abs(alone - whole).max() > 0
        stream.learn(X[300:310], CLASSES[300:310])
        stream.refresh()
        assert stream.plan.pool_size == 310
        assert stream.plan.settings["n_queries"] == 310


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"plan_at": "never"}, "plan_at must be 'predict' or 'fit'"),
        ({"plan_at": None}, "plan_at must be 'predict' or 'fit'"),
        ({"n_clusters": "auto", "budget": "5s"}, "A budget is for plan_at='predict'"),
        ({"strategy": "knn"}, "chooses a context for every query"),
    ],
)
def test_what_cannot_be(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        fitted(**more)
    assert "\n" not in str(caught.value)
