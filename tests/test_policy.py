"""How many contexts, of how many rows, where nobody says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb import CrumbClassifier, paper_configuration
from crumb.options import CPU, GPU, LEAST_ROWS
from crumb.options import choose_sizes as choose

SHAPES = st.tuples(st.integers(1, 10**7), st.integers(1, 500))
QUERIES = st.integers(1, 10**6)


@given(SHAPES, QUERIES, st.sampled_from(["cpu", "cuda"]), st.none() | st.integers(1, 20_000))
def test_there_is_always_a_choice_that_the_pool_and_the_model_allow(shape, queries, device, window):
    clusters, size = choose(device, shape, queries, window=window)
    assert 1 <= clusters <= queries
    assert 1 <= size <= min(shape[0], window or shape[0])


@given(SHAPES, QUERIES, st.integers(1, 500), st.integers(1, 20_000))
def test_what_the_user_chose_stays(shape, queries, clusters, size):
    assert choose("cpu", shape, queries, clusters, size) == (clusters, size)
    assert choose("cpu", shape, queries, clusters=clusters)[0] == clusters
    assert choose("cpu", shape, queries, size=size)[1] == size


@given(SHAPES, st.integers(1, 5_000))
def test_contexts_have_no_more_rows_together_than_there_is_room_for(shape, queries):
    for device, room in (("cpu", CPU), ("cuda", GPU)):
        clusters, size = choose(device, shape, queries)
        assert clusters * size <= max(room.rows, clusters * LEAST_ROWS, room.pool)


def test_more_queries_get_more_contexts_and_wide_tables_get_fewer():
    few, many = (choose("cpu", (100_000, 20), queries)[0] for queries in (50, 500))
    assert (few, many) == (10, 100)
    assert choose("cpu", (100_000, 20), 10_000) == (200, 500)
    assert choose("cpu", (100_000, 120), 500) == (25, 1_000)
    assert choose("cuda", (100_000, 20), 5_000) == (500, 1_000)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 3))
    return X, (X[:, 0] > 0).astype(int)


def test_a_plan_follows_the_policy(table):
    X, y = table
    plan = CrumbClassifier(device="cpu").fit(X, y).plan(X[:60])
    assert (plan.n_clusters, plan.sizes.tolist()) == (12, [2_000] * 12)
    small = CrumbClassifier(device="cpu").fit(X[:1_500], y[:1_500]).plan(X[:60])
    assert (small.n_clusters, small.sizes.tolist()) == (1, [1_500])


def test_other_strategies_and_the_paper_keep_their_own(table):
    X, y = table
    uniform = CrumbClassifier(strategy="uniform", device="cpu").fit(X, y).plan(X[:60])
    assert (uniform.n_clusters, uniform.sizes.tolist()) == (1, [1_000])
    paper = CrumbClassifier(**paper_configuration(), device="cpu").fit(X, y).plan(X[:60])
    assert (paper.n_clusters, set(paper.sizes.tolist())) == (20, {300})
