"""options.py: numbers that the user chooses, and the policy where nobody does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb import CrumbClassifier, select_contexts
from crumb.errors import InvalidInput
from crumb.herding.greedy import EarlyStopping
from crumb.herding.search import AFFORDABLE, AT_ONCE, Load, resolve_search
from crumb.options import (
    CPU,
    GPU,
    LEAST_ROWS,
    check_bandwidth,
    check_search,
    median_factor,
    paper_configuration,
    positive,
    resolve_context_size,
    resolve_early_stopping,
)
from crumb.options import choose_sizes as choose


@pytest.mark.parametrize(
    ("given", "n"),
    [(50, 50), (1, 1), (0.1, 100), (1.0, 1_000), (0.0001, 1), ("auto", 1_000), (1_000, 1_000)],
)
def test_context_size_is_a_count_or_a_share(given, n: int) -> None:
    assert resolve_context_size(given, 1_000) == n


def test_auto_is_a_thousand_and_never_more_than_the_pool() -> None:
    assert resolve_context_size("auto", 10**6) == 1_000
    assert resolve_context_size("auto", 300) == 300


def test_more_than_the_pool_or_the_window_is_said() -> None:
    with pytest.warns(UserWarning, match="all 80 rows are used"):
        assert resolve_context_size(100, 80) == 80
    with pytest.warns(UserWarning, match="more than the 500 that the model was made for"):
        assert resolve_context_size(0.1, 10_000, window=500) == 500


@pytest.mark.parametrize("wrong", [0, -1, 0.0, -0.5, 1.5, True, "many", None, float("nan")])
def test_senseless_context_sizes_are_refused(wrong) -> None:
    with pytest.raises(InvalidInput, match="context_size must be"):
        resolve_context_size(wrong, 100)


@pytest.mark.parametrize(
    ("load", "device", "way"),
    [
        (Load(10_000, 200, 20, 500), "cpu", "exact"),  # done at once
        (Load(100_000, 1_000, 20, 500), "cpu", "candidates"),
        (Load(25_000, 1_000, 20, 1_000), "cpu", "candidates"),
        (Load(5_000_000, 1_000, 20, 1_000), "cpu", "candidates"),
        (Load(40_000, 1_000, 100, 1_000), "cpu", "candidates"),  # as many contexts as pay
        (Load(117_000, 100_000, 10_000, 500), "cpu", "candidates"),
        (Load(5_000_000, 1_000_000, 20, 1_000), "cpu", "candidates"),  # the passes cost more
        (Load(5_000_000, 1_000, 20, 20_000), "cpu", "rff"),  # contexts that are too large
        (Load(1_000_000, 10_000, 20, 2_000), "cuda", "exact"),
        (Load(100_000_000, 10_000, 20, 2_000), "cuda", "rff"),
        (Load(1_000_000, 10_000, 20, 2_000), "mps", "rff"),  # no Triton there
        (Load(200_000, 1_000, 20, 1_000), "mps", "exact"),
    ],
)
def test_auto_kernel_goes_by_the_cost(
    load: Load, device: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crumb.herding.search.find_spec", lambda name: name)  # Triton is there
    kernel = resolve_search("auto", 64, "auto", load, device)
    assert kernel.name == way
    assert kernel.batch == (10 if way == "rff" else 1)
    if way == "candidates":
        assert 4 * load.context_size <= kernel.most_candidates <= load.rows
        assert load.exact > AT_ONCE
        passes = load.clusters * load.context_size + load.queries
        most = max(AFFORDABLE["cpu"], 50_000 * passes + load.neighbours)
        assert load.among(kernel.most_candidates) + load.neighbours <= most


def test_candidates_are_for_one_row_at_a_time_on_a_cpu() -> None:
    load = Load(100_000, 1_000, 20, 500)
    kernel = "candidates"
    assert resolve_search(kernel, 64, "auto", load).name == kernel
    assert resolve_search(kernel, 64, 5, load).name == "exact"
    assert resolve_search(kernel, 64, 1, load, "cuda").name == "exact"
    assert resolve_search("auto", 64, 5, load).name == "exact"
    assert resolve_search("exact", 64, 7, load).batch == 7


def test_unknown_kernel_and_senseless_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Unknown kernel 'linear'"):
        check_search("linear", 64, 1)
    for name, arguments in {"rff_dim": (0, 1), "herd_batch": (64, 0)}.items():
        with pytest.raises(InvalidInput, match=name):
            check_search("rff", *arguments)
    for wrong in (
        0,
        -1.0,
        "mean",
        "0 median",
        "-1median",
        "median 2",
        True,
        float("inf"),
        float("nan"),
    ):
        with pytest.raises(InvalidInput, match="bandwidth must be"):
            check_bandwidth(wrong)
    for wrong in (0, -3, 1.5, True, "2"):
        with pytest.raises(InvalidInput, match="n_clusters must be"):
            positive("n_clusters", wrong)
    with pytest.raises(InvalidInput, match="min_per_class must be"):
        positive("min_per_class", -1, 0)
    with pytest.raises(InvalidInput, match="early_stopping must be"):
        resolve_early_stopping("yes")


def test_early_stopping_is_off_on_or_one_s_own() -> None:
    assert resolve_early_stopping(False) is None
    assert resolve_early_stopping(True) == EarlyStopping(50, None, 1e-4, 5)
    own = EarlyStopping(patience=1)
    assert resolve_early_stopping(own) is own


def test_the_paper_is_one_setting_away() -> None:
    assert paper_configuration() == {
        "strategy": "mmd",
        "n_clusters": 20,
        "context_size": 0.1,
        "contexts_per_query": 1,
        "kernel": "rff",
        "rff_dim": 64,
        "herd_batch": 50,
        "bandwidth": "median",
        "early_stopping": False,
        "features": None,
        "min_per_class": 0,
    }


def test_bandwidths_are_numbers_or_multiples_of_the_median() -> None:
    pool = np.random.default_rng(0).normal(size=(200, 3))
    queries = np.zeros((5, 3))
    whole, half, same = (
        select_contexts(pool, queries, context_size=5, bandwidth=given).settings["bandwidth"]
        for given in ("median", "0.5 median", "1.0*median")
    )
    assert half == 0.5 * whole
    assert same == whole
    assert [median_factor(text) for text in ("median", ".25median", "2 * median", "mean")] == [
        1.0,
        0.25,
        2.0,
        0.0,
    ]


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
    assert (few, many) == (25, 100)
    assert choose("cpu", (100_000, 20), 10_000) == (200, 500)
    assert choose("cpu", (100_000, 120), 500) == (25, 1_000)
    assert choose("cuda", (100_000, 20), 5_000) == (500, 2_000)
    assert choose("cuda", (100_000, 60), 5_000) == (250, 2_000)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 3))
    return X, (X[:, 0] > 0).astype(int)


def test_a_plan_follows_the_policy(table):
    X, y = table
    plan = CrumbClassifier(device="cpu").fit(X, y).plan(X[:60])
    assert (plan.n_clusters, plan.sizes.tolist()) == (30, [1_000] * 30)
    small = CrumbClassifier(device="cpu").fit(X[:1_500], y[:1_500]).plan(X[:60])
    assert (small.n_clusters, small.sizes.tolist()) == (1, [1_500])


def test_other_strategies_and_the_paper_keep_their_own(table):
    X, y = table
    uniform = CrumbClassifier(strategy="uniform", device="cpu").fit(X, y).plan(X[:60])
    assert (uniform.n_clusters, uniform.sizes.tolist()) == (1, [1_000])
    paper = CrumbClassifier(**paper_configuration(), device="cpu").fit(X, y).plan(X[:60])
    assert (paper.n_clusters, set(paper.sizes.tolist())) == (20, {300})
