"""crumb.explain and crumb.influential_rows."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import shap
from scale_tables import numbers as numbers_in_files
from scale_tables import stay_on_disk, write
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier
from small_tables import classes, frame, numbers, table, targets

from crumb import CrumbClassifier, CrumbRegressor, explain, influential_rows
from crumb.errors import BackendUnavailable, InvalidInput, PlanMismatch

ROWS, CONTEXT = 60, 8
SMALL = {"n_clusters": 2, "context_size": CONTEXT}


def fitted(task: str, kind: str = "numbers", **more):
    if task == "classification":
        return CrumbClassifier(**{**SMALL, **more}).fit(table(kind, ROWS, 0), classes(ROWS, 1))
    return CrumbRegressor(**{**SMALL, **more}).fit(table(kind, ROWS, 0), targets(ROWS, 1))


def only(plan, cluster: int):
    """A plan of one cluster: masked rows keep the context of their query."""
    names = "contexts", "mmd2", "stop_reasons", "centroids", "swapped"
    parts = {name: getattr(plan, name)[cluster : cluster + 1] for name in names}
    return replace(plan, labels=np.zeros_like(plan.labels), **parts)


def enumerated(model, kind: str, queries, plan) -> tuple[np.ndarray, np.ndarray]:
    """The same through shap's own enumeration; a context is the background of its queries.

    shap sees a cell as the number of the row that it comes from, whatever its type.
    """
    both = pd.concat([pd.DataFrame(table(kind, ROWS, 0)), pd.DataFrame(queries)])
    both = both.astype(dict.fromkeys(both.select_dtypes("category"), object))
    predict = model.predict_proba if model.task == "classification" else model.predict
    found = []
    for i, cluster in enumerate(plan.labels):

        def answers(cells, plan=only(plan, cluster)):  # noqa: B008
            cells = cells.astype(int)
            rows = {name: both[name].to_numpy()[cells[:, j]] for j, name in enumerate(both)}
            rows = pd.DataFrame(rows).infer_objects()
            return predict(rows if kind == "frame" else rows.to_numpy(float), plan=plan)

        wide = np.ones(both.shape[1], dtype=int)
        masker = shap.maskers.Independent(np.outer(plan.contexts[cluster], wide), CONTEXT)
        found.append(shap.explainers.Exact(answers, masker)((ROWS + i) * wide[None]))
    base = [np.atleast_1d(one.base_values) for one in found]
    return np.concatenate([one.values for one in found]), np.concatenate(base)


@pytest.mark.parametrize("kind", ["numbers", "frame"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_values_are_those_of_shaps_exact_enumeration(task, kind):
    model, queries = fitted(task, kind), table(kind, 2, 5)
    plan = model.plan(queries)
    found = explain(model, queries, plan=plan, background=CONTEXT, method="exact")
    values, base = enumerated(model, kind, queries, plan)
    unit = 1 if task == "classification" else 20
    assert np.abs(values).max() > 0.01 * unit
    np.testing.assert_allclose(found.values, values, atol=1e-4 * unit)
    np.testing.assert_allclose(found.base_values, base.reshape(found.base_values.shape), rtol=1e-4)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_permutations_are_exact_up_to_their_errors_and_sum_to_the_answer(task):
    model, queries = fitted(task, "frame"), frame(3, 5)
    plan = model.plan(queries)
    exact, found = (
        explain(model, queries, plan=plan, background=CONTEXT, method=method)
        for method in ("exact", "permutation")
    )
    assert (np.abs(found.values - exact.values) <= 5 * found.error_std + 1e-4).all()
    assert not np.allclose(found.values, exact.values, rtol=1e-3)  # it is an estimate
    predict = model.predict_proba if task == "classification" else model.predict
    whole = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(whole, predict(queries, plan=plan), rtol=1e-3, atol=1e-4)


def test_a_linear_model_gets_its_coefficients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 7))
    weights = np.array([3.0, -2, 1, 0, 0.5, 0, 4])
    model = CrumbRegressor(model=LinearRegression(), n_clusters=1, context_size=20)
    model.fit(X, X @ weights + 1)
    context = model.plan(X[:4]).contexts[0]
    found = explain(model, X[:4], background=20)
    np.testing.assert_allclose(found.values, weights * (X[:4] - X[context].mean(axis=0)), atol=1e-9)
    assert found.error_std[:, 3].max() < 1e-9 < found.error_std[:, 0].min()


def test_what_shap_plots_need():
    model, queries = fitted("classification", "frame"), frame(4, 5)
    found = explain(model, queries, background=2)
    assert found.feature_names == list(queries.columns)
    assert found.output_names == ["0", "1", "2"]
    assert found.values.shape == (4, 6, 3)
    assert found[0, :, "2"].values.shape == (6,)
    assert found.data[0][1] == queries["text"][0]
    shap.plots.beeswarm(found[..., 1], show=False)
    shap.plots.waterfall(found[0, :, 1], show=False)
    plain = explain(fitted("regression"), numbers(2, 5), background=2)
    assert plain.feature_names == ["x0", "x1", "x2", "x3"]
    assert plain.output_names is None


def test_the_first_rows_of_a_herded_context_are_the_background():
    X = np.random.default_rng(0).normal(size=(200, 3))
    far = {}
    for strategy in ("mmd", "uniform"):
        model = CrumbRegressor(model=LinearRegression(), strategy=strategy, **SMALL)
        model.set_params(context_size=60).fit(X, X[:, 0])
        plan = model.plan(X[:20])
        few, every = (explain(model, X[:20], plan=plan, background=rows) for rows in (6, 60))
        far[strategy] = np.abs(few.base_values - every.base_values).mean()
        first = np.array([X[context[:6], 0].mean() for context in plan.contexts])
        assert np.allclose(few.base_values, first[plan.labels]) == (strategy == "mmd")
    assert far["mmd"] < 0.5 * far["uniform"]


@pytest.mark.parametrize("method", ["exact", "permutation"])
def test_the_size_of_blocks_changes_nothing(monkeypatch, method):
    model, queries = fitted("regression"), numbers(6, 5)
    plan = model.plan(queries)
    whole = explain(model, queries, plan=plan, background=3, method=method)
    monkeypatch.setattr("crumb.explanation.MASKED_ROWS", 50)
    parts = explain(model, queries, plan=plan, background=3, method=method)
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-3)
    one = explain(model, queries[:1], plan=plan, background=1, method=method)
    assert np.isnan(one.error_std).all()


def test_a_pool_in_files_is_explained_as_one_in_memory(tmp_path, monkeypatch):
    write(tmp_path / "pool", numbers_in_files(300).assign(target=np.arange(300) % 7 * 1.0))
    stay_on_disk(monkeypatch)
    model = CrumbRegressor(**SMALL).fit(tmp_path / "pool", "target")
    assert model.pool_.on_disk
    queries = numbers_in_files(3, seed=2).drop(columns="target")
    plan = model.plan(queries)
    found = explain(model, queries, plan=plan, background=2)
    whole = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(whole, model.predict(queries, plan=plan), atol=1e-3)
    rows = influential_rows(model, queries[:1], plan=plan, candidates=3)
    assert (rows["target"] == rows.index % 7).all()


def test_a_guide_is_part_of_what_is_explained():
    pool, queries = np.nan_to_num(numbers(ROWS, 0)), np.nan_to_num(numbers(2, 5))
    model = CrumbClassifier(**SMALL, guide=KNeighborsClassifier(3)).fit(pool, classes(ROWS, 1))
    found = explain(model, queries, background=3)
    whole = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(whole, model.predict_proba(queries), atol=1e-4)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_influence_is_what_the_answer_loses_without_a_row(task):
    model, query = fitted(task, "frame"), frame(1, 5)
    plan = model.plan(query)
    found = influential_rows(model, query, plan=plan, candidates=4)
    assert list(found.columns) == ["distance", "influence", "target", *query.columns]
    assert found["influence"].abs().is_monotonic_decreasing
    predict = model.predict_proba if task == "classification" else model.predict
    row, context = found.index[0], plan.contexts[0]
    lacks = replace(plan, contexts=[context[context != row]])
    whole, less = (predict(query, plan=one)[0] for one in (plan, lacks))
    at = np.argmax(whole) if task == "classification" else ()
    assert found["influence"].iloc[0] == pytest.approx(whole[at] - less[at], abs=1e-4)
    assert found["influence"].iloc[0] != 0
    labels = classes(ROWS, 1) if task == "classification" else targets(ROWS, 1)
    assert found["target"].iloc[0] == labels[row]
    assert found["whole"].iloc[0] == frame(ROWS, 0)["whole"][row]
    every = influential_rows(model, query, plan=plan, candidates=None)
    assert sorted(every.index) == sorted(context)
    assert set(every.nsmallest(4, "distance").index) == set(found.index)


def test_what_cannot_be_explained_is_refused():
    model, queries = fitted("regression"), numbers(2, 5)
    with pytest.raises(InvalidInput, match="one query, got 2"):
        influential_rows(model, queries)
    with pytest.raises(InvalidInput, match="'auto', 'permutation' or 'exact', got 'tree'"):
        explain(model, queries, method="tree")
    wide = CrumbRegressor(**SMALL).fit(numbers(ROWS, 0, 20), targets(ROWS, 1))
    with pytest.raises(InvalidInput, match="2\\^20 coalitions"):
        explain(wide, numbers(1, 5, 20), method="exact")
    with pytest.raises(InvalidInput, match="background must be"):
        explain(model, queries, background=0)
    with pytest.raises(InvalidInput, match="Only CrumbClassifier and CrumbRegressor"):
        explain(LinearRegression(), queries)
    with pytest.raises(PlanMismatch):
        explain(model, queries, plan=fitted("regression", "frame").plan(frame(2, 5)))


def test_without_shap_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(BackendUnavailable, match="pip install 'crumb-pfn\\[explain\\]'"):
        explain(None, None)
