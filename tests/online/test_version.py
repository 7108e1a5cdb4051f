"""online/version.py: an estimator and a plan that belong together."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from streams import cheap, queries, table

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput, PlanMismatch
from crumb.online.version import check_estimator, make_version, pool_sample, resolve_output


def test_a_version_answers_one_cluster_as_the_frozen_plan_does() -> None:
    clf, X = cheap(), queries()
    version = make_version(clf, clf.encode(X)[1], 5, 2, 0.0)
    rows, points = version.encode(X)
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
        make_version(clf, clf.encode(X)[1], 1, 1, 0.0, other)


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
    rows, points = pool_sample(clf, 10)
    assert len(rows) == len(points) == 10
    np.testing.assert_array_equal(clf.encode(rows)[1], points)
    assert len(pool_sample(clf, 10_000)[0]) == 200
