"""online/version.py: an estimator and a plan that belong together, made for what may come."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from streams import cheap, queries, table

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput, PlanMismatch
from crumb.online import CrumbOnline
from crumb.online.version import (
    NEIGHBOURS,
    PlanVersion,
    check_estimator,
    expected_queries,
    plan_for,
    resolve_output,
)


def test_a_version_answers_one_cluster_as_the_frozen_plan_does() -> None:
    clf, X = cheap(), queries()
    version = PlanVersion(5, 2, clf, *plan_for(clf, clf.encode(X)[1]), 0.0)
    rows, points = clf.encode(X)
    clusters, expected = version.plan.route(points), clf.predict_proba(X, plan=version.plan)
    for cluster in np.unique(clusters):
        answers = version.answer(int(cluster), rows[clusters == cluster], resolve_output(clf, None))
        np.testing.assert_array_equal([a.value for a in answers], expected[clusters == cluster])
        assert {(a.version, a.cluster) for a in answers} == {(5, cluster)}
        assert answers[0].classes.tolist() == [0, 1, 2]


def test_a_plan_of_another_pool_is_refused() -> None:
    clf, X = cheap(), queries()
    other = cheap().fit(*table(seed=8)).plan(X)
    with pytest.raises(PlanMismatch, match="another pool"):
        plan_for(clf, clf.encode(X)[1], other)


def test_only_fitted_estimators_of_crumb() -> None:
    with pytest.raises(InvalidInput, match="CrumbClassifier or CrumbRegressor"):
        check_estimator(LinearRegression())
    with pytest.raises(NotFittedError):
        check_estimator(CrumbClassifier())


def test_what_is_answered_by_default() -> None:
    assert resolve_output(cheap(), None).kind == "proba"
    reg = CrumbRegressor(model=LinearRegression(), context_size=20).fit(*table())
    assert resolve_output(reg, None).kind == "mean"
    embedded = CrumbRegressor(context_size=20).fit(*table())
    assert resolve_output(embedded, "quantiles", [0.2]).quantiles == (0.2,)
    assert len(resolve_output(embedded, "quantiles").quantiles) == 9
    for wrong in ([], [0.0], [1.5]):
        with pytest.raises(InvalidInput, match="between 0 and 1"):
            resolve_output(embedded, "quantiles", wrong)


def test_a_sample_of_the_pool() -> None:
    clf = cheap()
    rows, points = clf.pool_.drawn(10, 0)
    assert len(rows) == len(points) == 10
    np.testing.assert_array_equal(clf.encode(rows)[1], points)
    assert len(clf.pool_.drawn(10_000, 0)[0]) == 200


def test_queries_neighbours_and_a_sample() -> None:
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(2_000, 3)), rng.normal(size=(300, 3))
    found = expected_queries(queries, pool, seed=0)
    nearest = np.argsort(cdist(queries, pool), axis=1)[:, :NEIGHBOURS]
    near = pool[np.unique(nearest)]
    np.testing.assert_array_equal(found[:300], queries)
    np.testing.assert_array_equal(found[300 : 300 + len(near)], near)
    assert len(found) == 300 + len(near) + 300
    assert (cdist(found, np.concatenate([pool, queries])).min(axis=1) == 0).all()
    np.testing.assert_array_equal(found, expected_queries(queries, pool, seed=0))
    assert not np.array_equal(found, expected_queries(queries, pool, seed=1))


def test_neighbours_of_some_where_all_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crumb.online.version.MOST_DISTANCES", 10 * 2_000)
    pool = np.random.default_rng(0).normal(size=(2_000, 3))
    assert len(expected_queries(pool[:300] + 0.1, pool, seed=0)) <= 300 + 10 * NEIGHBOURS + 300


def test_queries_that_nobody_planned_for_find_rows_of_their_kind() -> None:
    rng = np.random.default_rng(0)
    here, there = rng.normal(size=(300, 2)), rng.normal(size=(300, 2)) + 20
    clf = CrumbClassifier(model=LogisticRegression(), n_clusters=4, context_size=30)
    clf.fit(np.concatenate([here, there]), np.arange(600) % 2)

    def from_there(plan_ahead: bool) -> float:
        with CrumbOnline(clf, here[:100], plan_ahead=plan_ahead) as stream:
            plan = stream.plan
        return float(
            np.mean([(plan.contexts[k] >= 300).mean() for k in plan.route(clf.encode(there)[1])])
        )

    assert from_there(True) == 1.0
    assert from_there(False) == 0.0
