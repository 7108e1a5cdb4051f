"""selection/: every strategy gives what it says, by brute force on small pools."""

from __future__ import annotations

import math
from dataclasses import replace

import brute_force
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.errors import InvalidInput
from crumb.options import Options
from crumb.selection import (
    KNN,
    MICP,
    CentroidNN,
    Problem,
    Selection,
    Strategy,
    Uniform,
    resolve_strategy,
)
from crumb.selection.base import REGISTRY, TableFinder, cluster

NAMES = ["centroid", "full", "knn", "micp", "mmd", "uniform", "voronoi"]


def problem(
    seed: int = 0, n_pool: int = 200, n_queries: int = 40, n: int = 30, k: int = 4, **other
) -> Problem:
    rng = np.random.default_rng(seed)
    pool, queries = rng.normal(size=(n_pool, 3)), rng.normal(size=(n_queries, 3)) + 0.5
    options = Options.of(kernel="exact", random_state=seed, device="cpu", **other)
    options = replace(options, n_clusters=k, context_size=n, bandwidth=1.5)
    return Problem(TableFinder(pool, seed=seed), queries, options)


def points(task: Problem) -> np.ndarray:
    return task.finder.held.points


def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ((a[:, None] - b[None]) ** 2).sum(axis=2)


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    k=st.integers(1, 50),
    n_queries=st.integers(1, 30),
)
def test_every_selection_is_whole(name: str, seed: int, n: int, k: int, n_queries: int) -> None:
    task = problem(seed, n_pool=60, n_queries=n_queries, n=n, k=k)
    selection = resolve_strategy(name).select(task)
    assert selection.labels.shape == (n_queries,)
    assert set(selection.labels) == set(range(len(selection.contexts))), (
        "a context without queries, or worse"
    )
    assert len(selection.centroids) == len(selection.stop_reasons) == len(selection.contexts)
    for context in selection.contexts:
        assert len(context) == len(set(context.tolist())) == (60 if name == "full" else n)
        assert context.min() >= 0
        assert context.max() < 60
    # A frozen plan routes by the nearest centroid: its own queries must get their labels.
    routed = squared(task.queries, selection.centroids).argmin(axis=1)
    assert (routed == selection.labels).all()


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_answer(name: str) -> None:
    first, again = (resolve_strategy(name).select(problem(5)) for _ in range(2))
    assert [c.tolist() for c in first.contexts] == [c.tolist() for c in again.contexts]
    assert (first.labels == again.labels).all()


@pytest.mark.parametrize("name", ["uniform", "micp", "voronoi"])
def test_another_seed_another_draw(name: str) -> None:
    task = problem(5)
    options = replace(task.options, seed=6)
    other = Problem(TableFinder(points(task), seed=6), task.queries, options)
    a, b = (resolve_strategy(name).select(one) for one in (task, other))
    assert [sorted(c) for c in a.contexts] != [sorted(c) for c in b.contexts]


def test_mmd_herds_each_cluster() -> None:
    task = problem(1)
    selection = resolve_strategy("mmd").select(task)
    for k, context in enumerate(selection.contexts):
        members = task.queries[selection.labels == k]
        assert context.tolist() == brute_force.greedy(points(task), members, task.n, 1.5)
    assert selection.mmd2 is not None
    assert all(len(trace) == task.n for trace in selection.mmd2)


def test_uniform_is_case_a_without_and_case_b_with_clusters() -> None:
    case_a = Uniform().select(problem(k=1))
    assert len(case_a.contexts) == 1
    case_b = Uniform().select(problem(k=4))
    assert len({tuple(sorted(context)) for context in case_b.contexts}) == 4, (
        "each cluster draws its own context"
    )
    assert Uniform.default_clusters == 1


def test_uniform_draws_every_row_equally_often() -> None:
    drawn = np.concatenate(
        [Uniform().select(problem(seed, n=50, k=1)).contexts[0] for seed in range(200)]
    )
    counts = np.bincount(drawn, minlength=200)
    assert abs(counts.mean() - 50) < 1e-9
    assert counts.std() < 3 * math.sqrt(200 * 0.25 * 0.75)


def test_knn_gives_every_query_its_neighbours() -> None:
    task = problem(2)
    selection = KNN().select(task)
    expected = np.argsort(squared(task.queries, points(task)), axis=1)[:, : task.n]
    assert selection.labels.tolist() == list(range(40))
    assert np.array_equal(np.stack(selection.contexts), expected)


def test_centroid_takes_the_rows_nearest_to_each_centroid() -> None:
    task = problem(3)
    selection = CentroidNN().select(task)
    expected = np.argsort(squared(selection.centroids, points(task)), axis=1)[:, : task.n]
    assert np.array_equal(np.stack(selection.contexts), expected)


def test_voronoi_draws_from_the_cell_and_tops_up_with_the_nearest() -> None:
    task = problem(4, n=60)
    selection = resolve_strategy("voronoi").select(task)
    distance = squared(points(task), selection.centroids)
    cells = distance.argmin(axis=1)
    topped_up = 0
    for k, context in enumerate(selection.contexts):
        own = np.flatnonzero(cells == k)
        if len(own) >= 60:
            assert set(context) <= set(own)
        else:
            topped_up += 1
            others = [row for row in np.argsort(distance[:, k]) if cells[row] != k][: 60 - len(own)]
            assert set(context) == set(own) | set(others)
    assert topped_up > 0, "the example should have a small cell"


def test_micp_clusters_the_pool_and_runs_only_prompters_with_queries() -> None:
    task = problem(6, n_pool=300, n_queries=3, n=30)
    selection = MICP(gamma=1.0).select(task)
    pool_labels, centroids = cluster(points(task), math.ceil(300 / 30), task.seed)
    routed = squared(task.queries, centroids).argmin(axis=1)
    used = np.unique(routed)
    assert len(selection.contexts) == len(used) <= 3
    assert np.array_equal(selection.centroids, centroids[used])
    assert (used[selection.labels] == routed).all()
    for prompter, context in zip(used, selection.contexts, strict=True):
        own = np.flatnonzero(pool_labels == prompter)
        if len(own) >= 30:
            assert set(context) <= set(own)
        else:
            near = [
                row
                for row in np.argsort(squared(points(task), centroids)[:, prompter])
                if row not in set(own)
            ]
            assert set(context) == set(own) | set(near[: 30 - len(own)])


def test_micp_knobs() -> None:
    task = problem(7, n_pool=300, n_queries=300, n=30)
    assert len(MICP(gamma=2.0).select(task).contexts) > len(MICP(gamma=0.5).select(task).contexts)
    assert len(MICP(n_clusters=3).select(task).contexts) <= 3
    with pytest.raises(InvalidInput, match="gamma must be positive"):
        MICP(gamma=0).select(task)
    with pytest.raises(InvalidInput, match="n_clusters must be"):
        MICP(n_clusters=0).select(task)


def test_full_is_the_whole_pool() -> None:
    selection = resolve_strategy("full").select(problem(8))
    assert [context.tolist() for context in selection.contexts] == [list(range(200))]


def test_the_registry_has_the_seven_and_takes_more() -> None:
    assert set(NAMES) <= set(REGISTRY)
    with pytest.raises(InvalidInput, match=r"Unknown strategy 'best'.*'centroid'"):
        resolve_strategy("best")
    with pytest.raises(InvalidInput, match="Unknown strategy"):
        resolve_strategy(MICP)  # the class instead of an object

    class Mine(MICP):
        """No name of its own: must not take its parent's place."""

    assert type(resolve_strategy("micp")) is MICP

    class First(Strategy):
        name = "first"

        def select(self, problem: Problem) -> Selection:
            return Selection(
                np.zeros(len(problem.queries), dtype=int),
                problem.finder.held.points[:1],
                [np.arange(problem.n)],
                ["context size"],
            )

    try:
        assert isinstance(resolve_strategy("first"), First)
    finally:
        del REGISTRY["first"]
