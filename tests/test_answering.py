"""answering.py: which contexts answer a query, and how their answers are mixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

from crumb import CrumbClassifier, CrumbOnline, CrumbRegressor
from crumb.answering import LEAST, answering

RNG = np.random.default_rng(0)
X, QUERIES = RNG.normal(size=(300, 3)), RNG.normal(size=(40, 3))
Y = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 0.7)
SMALL = {"n_clusters": 6, "context_size": 60}


def fitted(**more) -> CrumbClassifier:
    settings = {"device": "cpu", **SMALL, **more}  # weights are exact there
    return CrumbClassifier(model=LogisticRegression(), **settings).fit(X, Y)


def by_hand(plan, points: np.ndarray, pool: np.ndarray, count: int) -> tuple:
    """The rule, for one query after the other in float64."""
    labels, weights = [], []
    for point in points:
        centre = np.linalg.norm(plan.centroids - point, axis=1)
        near = np.argsort(centre)[:count]
        third = np.array([np.sort(cdist([point], pool[plan.contexts[k]]))[0, 2] for k in near])
        weight = np.ones(len(near))
        for i in range(1, len(near)):
            weight[i] = (centre[near[0]] / centre[near[i]]) ** 2
            weight[i] *= min(1, third[0] / third[i]) ** 8
        weight[weight < LEAST] = 0
        labels.append(near)
        weights.append(weight / weight.sum())
    return np.array(labels), np.array(weights)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(2, 8), seed=st.integers(0, 5))
def test_weights_by_the_rule(count: int, seed: int) -> None:
    clf = fitted(contexts_per_query=count, random_state=seed)
    plan, points = clf.plan(QUERIES), clf.encode(QUERIES)[1]
    labels, weights = answering(plan, clf.pool_, points, clf.options_)
    wanted = by_hand(plan, points, clf.pool_.points, min(count, 6))
    np.testing.assert_array_equal(labels, wanted[0])
    np.testing.assert_allclose(weights, wanted[1], atol=1e-12)
    np.testing.assert_array_equal(labels[:, 0], plan.labels)
    assert (weights[:, 0] > 0).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_gives_the_same_weights() -> None:
    clf = fitted()
    plan, points = clf.plan(QUERIES), clf.encode(QUERIES)[1]
    labels, weights = answering(plan, clf.pool_, points, clf.options_)
    there = answering(plan, clf.pool_, points, replace(clf.options_, device="cuda"))
    np.testing.assert_array_equal(there[0], labels)
    np.testing.assert_allclose(there[1], weights, atol=1e-4)


def test_distances_in_pieces(monkeypatch) -> None:
    clf = fitted()
    plan, points = clf.plan(QUERIES), clf.encode(QUERIES)[1]
    _, whole = answering(plan, clf.pool_, points, clf.options_)
    monkeypatch.setattr("crumb.answering.CELLS", 130)  # two queries at a time
    np.testing.assert_array_equal(answering(plan, clf.pool_, points, clf.options_)[1], whole)


def test_probabilities_are_mixed_by_geometric_means() -> None:
    clf = fitted()
    plan, (rows, points) = clf.plan(QUERIES), clf.encode(QUERIES)
    assert plan.contexts_per_query == 4
    labels, weights = answering(plan, clf.pool_, points, clf.options_)
    assert np.count_nonzero(weights, axis=1).max() > 1
    models = [LogisticRegression().fit(X[rows], Y[rows]) for rows in plan.contexts]
    found = clf.predict_proba(QUERIES)
    for i in range(len(QUERIES)):
        logs = [np.log(models[k].predict_proba(rows[i : i + 1])[0]) for k in labels[i]]
        wanted = np.exp(np.average(logs, axis=0, weights=weights[i]))
        np.testing.assert_allclose(found[i], wanted / wanted.sum(), rtol=1e-6)
    assert (clf.predict(QUERIES) == found.argmax(axis=1)).all()


def test_numbers_are_mixed_by_means() -> None:
    reg = CrumbRegressor(model=LinearRegression(), **SMALL).fit(X, X[:, 0] ** 2)
    plan, points = reg.plan(QUERIES), reg.encode(QUERIES)[1]
    labels, weights = answering(plan, reg.pool_, points, reg.options_)
    each = [LinearRegression().fit(X[r], X[r, 0] ** 2).predict(QUERIES) for r in plan.contexts]
    wanted = (np.array(each)[labels, np.arange(40)[:, None]] * weights).sum(axis=1)
    np.testing.assert_allclose(reg.predict(QUERIES), wanted, rtol=1e-6)


def test_quantiles_are_mixed_and_stay_in_order() -> None:
    reg = CrumbRegressor(**SMALL).fit(X, X[:, 0] + X[:, 1])
    found = reg.predict(QUERIES, quantiles=[0.1, 0.5, 0.9])
    assert (np.diff(found, axis=1) > 0).all()
    alone = CrumbRegressor(**SMALL, contexts_per_query=1).fit(X, X[:, 0] + X[:, 1])
    assert np.abs(alone.predict(QUERIES, quantiles=[0.1, 0.5, 0.9]) - found).max() > 0


def test_a_context_says_nothing_of_classes_that_it_lacks() -> None:
    """Two groups with two classes each, and one class that both have."""
    left, right = X[:150] * 0.3, X[150:] * 0.3 + [2.5, 0, 0]
    y = np.concatenate([np.arange(150) % 2, 1 + np.arange(150) % 2])
    clf = CrumbClassifier(
        model=LogisticRegression(), n_clusters=2, context_size=100, min_per_class=0
    )
    clf.fit(np.vstack([left, right]), y)
    middle = np.linspace([0.2, 0, 0], [2.3, 0, 0], 22)
    plan, points = clf.plan(middle), clf.encode(middle)[1]
    _, weights = answering(plan, clf.pool_, points, clf.options_)
    both = np.count_nonzero(weights, axis=1) == 2
    assert set(both) == {True, False}
    found = clf.predict_proba(middle)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (found[both] > 1e-3).all()  # with zeros for unknown classes two of three would be tiny


def test_many_answers_are_mixed_in_pieces(monkeypatch) -> None:
    clf = fitted()
    whole = clf.predict_proba(QUERIES)
    monkeypatch.setattr("crumb.infer.MIXED", 7)
    np.testing.assert_array_equal(clf.predict_proba(QUERIES), whole)


class Broken(LogisticRegression):
    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), np.nan)


def test_a_model_that_answers_nan_is_not_hidden() -> None:
    found = CrumbClassifier(model=Broken(), **SMALL).fit(X, Y).predict_proba(QUERIES)
    assert np.isnan(found).all()


def test_contexts_of_the_whole_pool_are_asked_once() -> None:
    assert fitted(context_size=300).plan(QUERIES).contexts_per_query == 1


def test_an_answer_depends_on_its_row_alone_when_the_plan_is_frozen() -> None:
    clf = fitted()
    plan = clf.plan(QUERIES)
    whole = clf.predict_proba(QUERIES, plan=plan)
    np.testing.assert_allclose(clf.predict_proba(QUERIES), whole, rtol=1e-9)
    for i in range(40):
        alone = clf.predict_proba(QUERIES[i : i + 1], plan=plan)
        np.testing.assert_array_equal(alone[0], whole[i])


def test_the_order_of_the_queries_changes_nothing() -> None:
    clf = CrumbClassifier(**SMALL).fit(X, Y)
    whole, order = clf.predict_proba(QUERIES), np.random.default_rng(1).permutation(40)
    np.testing.assert_array_equal(clf.predict_proba(QUERIES[order]), whole[order])


def test_a_query_alone_in_its_cluster_is_answered_by_its_own_context() -> None:
    far = np.vstack([QUERIES, [[5.0, 5.0, 5.0]]])
    clf = fitted(context_size=100)
    plan, points = clf.plan(far), clf.encode(far)[1]
    labels, weights = answering(plan, clf.pool_, points, clf.options_)
    assert (plan.labels == plan.labels[-1]).sum() == 1
    assert weights[-1].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert labels[-1, 0] == plan.labels[-1]


def test_rows_that_are_in_the_pool_many_times() -> None:
    """Distances of 0 everywhere."""
    clf = CrumbClassifier(model=LogisticRegression(), **SMALL).fit(np.tile(X[:30], (10, 1)), Y)
    assert np.isfinite(clf.predict_proba(X[:30])).all()


@pytest.mark.parametrize("strategy", ["uniform", "knn", "micp", "centroid", "voronoi", "full"])
def test_other_strategies_answer_with_one(strategy: str) -> None:
    clf = fitted(strategy=strategy)
    plan, points = clf.plan(QUERIES), clf.encode(QUERIES)[1]
    assert plan.contexts_per_query == 1
    labels, weights = answering(plan, clf.pool_, points, clf.options_, own=True)
    assert weights is None
    assert labels[:, 0].tolist() == plan.labels.tolist()


def test_baselines_may_mix_too_but_a_context_of_ones_own_stays_alone() -> None:
    assert fitted(strategy="micp", contexts_per_query=3).plan(QUERIES).contexts_per_query == 3
    assert fitted(strategy="knn", contexts_per_query=3).plan(QUERIES).contexts_per_query == 1


def test_labels_without_probabilities_are_those_of_the_own_context() -> None:
    many, one = (
        CrumbClassifier(model=LinearSVC(), **SMALL, contexts_per_query=count).fit(X, Y)
        for count in (4, 1)
    )
    assert many.predict(QUERIES).tolist() == one.predict(QUERIES).tolist()


def test_a_stream_answers_with_one_context() -> None:
    clf = fitted(cache_size=0)
    plan = clf.plan(QUERIES)
    with CrumbOnline(clf, QUERIES, plan=plan, timeout=0.01) as stream:
        assert (stream.plan.contexts_per_query, plan.contexts_per_query) == (1, 4)
        found = [future.result(20).value for future in stream.submit_many(QUERIES)]
    alone = fitted(contexts_per_query=1).predict_proba(QUERIES)
    np.testing.assert_allclose(found, alone, rtol=1e-6)


def test_plans_keep_the_number_in_files(tmp_path) -> None:
    plan = fitted().plan(QUERIES)
    plan.save(tmp_path / "plan.crumb")
    assert type(plan).load(tmp_path / "plan.crumb").contexts_per_query == 4
    del plan.settings["contexts_per_query"]  # as in files of version 0.1
    assert plan.contexts_per_query == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", True])
def test_what_is_no_number_of_contexts(wrong: object) -> None:
    with pytest.raises(ValueError, match="contexts_per_query must be"):
        fitted(contexts_per_query=wrong)
