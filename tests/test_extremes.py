"""Cells of any size: no query spoils the contexts of the others, and no context has a row twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from crumb import CrumbClassifier, select_contexts
from crumb.pool import table_pool

rng = np.random.default_rng(0)
POOL, QUERIES = rng.normal(size=(1_500, 4)), rng.normal(size=(120, 4))
LABELS = (POOL[:, 0] + POOL[:, 1] > 0).astype(int)
SIZES = {"n_clusters": 6, "context_size": 50}

# From 1e30 on a number is infinite, and as ordinary as the pool's extreme that stands for it.
extreme = st.builds(
    lambda sign, exponent: sign * 10.0**exponent, st.sampled_from([-1, 1]), st.floats(6, 29.9)
)
where = st.tuples(st.integers(0, len(QUERIES) - 1), st.integers(0, 3))
WAYS = [
    *({"kernel": kernel} for kernel in ("exact", "candidates", "rff")),
    *({"strategy": strategy} for strategy in ("centroid", "voronoi", "micp", "knn")),
    {"features": StandardScaler()},
]


def contexts_by_query(plan) -> list[list[int]]:
    return [sorted(plan.contexts[label].tolist()) for label in plan.labels]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(next(iter(way.values()))))
@settings(max_examples=8, deadline=None)
@given(cells=st.dictionaries(where, extreme, min_size=1, max_size=25))
def test_extreme_queries_leave_the_others_contexts_as_they_are(way, cells) -> None:
    odd = QUERIES.copy()
    for cell, value in cells.items():
        odd[cell] = value
    others = np.setdiff1d(np.arange(len(odd)), [row for row, _ in cells])
    found = select_contexts(POOL, odd, **SIZES, **way)
    expected = select_contexts(POOL, odd[others], **SIZES, **way)
    by_query = contexts_by_query(found)
    assert [by_query[i] for i in others] == contexts_by_query(expected)
    assert all(len(np.unique(context)) == len(context) for context in found.contexts)
    assert np.isfinite(found.centroids).all()
    assert np.isfinite(found.query_distance).all()
    assert found.outside[[row for row, _ in cells]].all()


@pytest.mark.parametrize("value", [1e30, 3.4e38, -3.4e38, 1e300, -np.inf])
def test_what_stands_for_no_data_is_as_infinite(value) -> None:
    pool = table_pool(POOL, None, None, None)
    odd = QUERIES[:3].copy()
    odd[1, 2] = value
    rows, points = pool.encode(odd)
    assert rows[1, 2] == (POOL[:, 2].max() if value > 0 else POOL[:, 2].min())
    assert np.abs(points).max() < 10


def test_a_table_that_has_drifted_still_has_clusters() -> None:
    moved = QUERIES.copy()
    moved[10:, 3] += 1e9
    assert select_contexts(POOL, moved, **SIZES).n_clusters > 1


def test_a_pool_with_extreme_cells() -> None:
    for value in (1e6, 1e13, 1e20, 1e38, -3.4e38):
        pool = POOL.copy()
        pool[5, 1] = value
        plan = select_contexts(pool, QUERIES, **SIZES)
        assert all(len(np.unique(context)) == 50 for context in plan.contexts)
        assert np.isfinite(plan.final_mmd2).all()


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-20, 1e20])
@pytest.mark.parametrize("kernel", ["exact", "candidates", "rff"])
def test_a_bandwidth_of_any_size_gives_contexts_without_repeats(bandwidth, kernel) -> None:
    plan = select_contexts(POOL, QUERIES, **SIZES, bandwidth=bandwidth, kernel=kernel)
    assert all(len(np.unique(context)) == 50 for context in plan.contexts)


def test_answers_to_the_other_queries_stay() -> None:
    model = CrumbClassifier(**SIZES, device="cpu", n_jobs=1).fit(POOL, LABELS)
    odd = QUERIES.copy()
    odd[3, 0], odd[70, 2] = 1e13, -1e29
    others = np.setdiff1d(np.arange(len(odd)), [3, 70])
    answers = model.predict_proba(odd)
    assert np.isfinite(answers).all()
    np.testing.assert_allclose(answers[others], model.predict_proba(odd[others]), atol=1e-5)
    plan = model.plan(odd)
    assert plan.labels.tolist() == plan.route(model.encode(odd)[1]).tolist()
    one = model.encode_row(odd[3].tolist())[1]
    np.testing.assert_array_equal(one, model.encode(odd)[1][[3]])
