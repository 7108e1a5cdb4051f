"""A stream's plan is made for what may come next, too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression

import crumb.online.expected as module
from crumb import CrumbClassifier
from crumb.online import CrumbOnline
from crumb.online.expected import NEIGHBOURS, expected_queries


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
    monkeypatch.setattr(module, "MOST_DISTANCES", 10 * 2_000)
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
