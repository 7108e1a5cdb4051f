"""candidates.py: exact herding among rows that are drawn where the queries lie."""

from __future__ import annotations

import brute_force
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from crumb import EarlyStopping, select_contexts
from crumb.herding import candidates
from crumb.herding.candidates import CandidateObjective, herd_candidates
from crumb.herding.greedy import Clusters, ExactObjective, Rbf, herd, median_bandwidth
from crumb.herding.neighbours import PoolCandidates
from crumb.machine import block_threads
from crumb.rng import row_numbers
from crumb.selection.base import cluster


def problem(
    kind: str = "blobs",
    rows: int = 12_000,
    queries: int = 200,
    d: int = 8,
    k: int = 10,
    seed: int = 0,
):
    if kind == "blobs":
        X, _ = make_blobs(rows + queries, d, centers=k, random_state=seed)
    else:
        X = np.random.default_rng(seed).normal(size=(rows + queries, d))
    X = (X - X.mean(0)) / X.std(0)
    labels, _ = cluster(X[:queries], k, seed)
    kernel = Rbf(median_bandwidth(X[queries:], np.random.default_rng(0)))
    pool, asked, labels = map(torch.from_numpy, (X[queries:], X[:queries], labels))
    return kernel, pool, Clusters(asked, labels)


def mean_mmd2(contexts) -> float:
    return float(np.mean([context.mmd2[-1] for context in contexts]))


def exact(kernel, pool, clusters, n):
    return herd(ExactObjective(kernel, pool, clusters), n)


@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_herding_among_all_rows_is_the_paper_s(seed: int, rows: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    points, queries, sigma = rng.normal(size=(rows, d)), rng.normal(size=(7, d)), 1.3
    cross = brute_force.rbf(points, queries, sigma).mean(1)
    within = torch.full((2,), brute_force.rbf(queries, queries, sigma).mean())
    both = [[torch.from_numpy(a), torch.from_numpy(a[::-1].copy())] for a in (points, cross)]
    one, other = herd(CandidateObjective(Rbf(sigma), *both, within, np.float64), rows)
    assert one.indices.tolist() == brute_force.greedy(points, queries, rows, sigma)
    assert (rows - 1 - other.indices).tolist() == one.indices.tolist()
    direct = [brute_force.mmd2(points[one.indices[: t + 1]], queries, sigma) for t in range(rows)]
    np.testing.assert_allclose(one.mmd2, direct, atol=1e-7)


def test_with_every_row_a_candidate_it_is_exact_herding() -> None:
    task = problem(rows=900)
    ours, doubling = herd_candidates(*task, 60, 900, 0, dtype=np.float64, first=900)
    assert doubling.candidates == 900
    assert doubling.gain == 0.0
    for a, b in zip(ours, exact(*task, 60), strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_allclose(a.mmd2, b.mmd2, atol=1e-12)


def enough(doubling: candidates.Doubling) -> bool:
    """Whether the last doubling was not needed."""
    return doubling.gain is not None and doubling.gain < candidates.ENOUGH


@pytest.mark.parametrize("kind", ["blobs", "cloud"])
def test_mmd2_is_near_that_of_exact_herding(kind: str) -> None:
    task = problem(kind)
    ours, doubling = herd_candidates(*task, 60, 12_000, 0)
    assert enough(doubling)
    assert doubling.candidates <= 24 * 60
    assert mean_mmd2(ours) < 1.1 * mean_mmd2(exact(*task, 60))


def test_where_little_can_be_left_out_candidates_double() -> None:
    task = problem("cloud", rows=20_000, queries=500, d=20)  # clusters as broad as the table
    ours, doubling = herd_candidates(*task, 100, 20_000, 0)
    assert enough(doubling)
    assert doubling.candidates > 12 * 100
    assert mean_mmd2(ours) < 1.05 * mean_mmd2(exact(*task, 100))


def test_where_it_has_to_end_early_it_says_so() -> None:
    task = problem("cloud", rows=20_000, queries=500, d=20)
    contexts, doubling = herd_candidates(*task, 100, 4 * 100, 0)
    assert doubling.candidates == 4 * 100
    assert not enough(doubling)
    assert mean_mmd2(contexts) > 1.2 * mean_mmd2(exact(*task, 100))


def test_traces_are_the_exact_mmd2() -> None:
    kernel, pool, clusters = problem()
    contexts, _ = herd_candidates(kernel, pool, clusters, 40, 10**6, 0)
    for k, context in enumerate(contexts):
        assert len(set(context.indices)) == 40
        members = clusters.queries[clusters.labels == k].numpy()
        for t in (1, 7, 40):
            direct = brute_force.mmd2(pool[context.indices[:t]].numpy(), members, kernel.sigma)
            assert context.mmd2[t - 1] == pytest.approx(direct, abs=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_single_precision_does_no_harm_far_from_the_origin(offset: float) -> None:
    single, double = [], []
    for seed in range(4):  # of two rows that are nearly as good, rounding takes either
        kernel, pool, clusters = problem(seed=seed)
        far = Clusters(clusters.queries + offset, clusters.labels)
        single += herd_candidates(kernel, pool + offset, far, 60, 12 * 60, 0)[0]
        double += herd_candidates(kernel, pool, clusters, 60, 12 * 60, 0, dtype=np.float64)[0]
    assert mean_mmd2(single) == pytest.approx(mean_mmd2(double), rel=0.02)


def test_pools_in_single_precision_are_taken() -> None:
    kernel, pool, clusters = problem()
    asked = Clusters(clusters.queries.float(), clusters.labels)
    single, _ = herd_candidates(kernel, pool.float(), asked, 60, 24 * 60, 0)
    double, _ = herd_candidates(kernel, pool, clusters, 60, 24 * 60, 0)
    assert mean_mmd2(single) == pytest.approx(mean_mmd2(double), rel=0.02)


def test_threads_change_nothing_and_the_seed_does() -> None:
    task = problem()
    alone, _ = herd_candidates(*task, 40, 10**6, 0)
    other, _ = herd_candidates(*task, 40, 10**6, 1)
    with block_threads(2) as blocks:
        shared, _ = herd_candidates(*task, 40, 10**6, 0, blocks)
    assert all(np.array_equal(a.indices, b.indices) for a, b in zip(alone, shared, strict=True))
    assert not all(np.array_equal(a.indices, b.indices) for a, b in zip(alone, other, strict=True))


def nearest(pool, queries, count, **more):
    """Candidates of one cluster."""
    labels = np.zeros(len(queries), dtype=int)
    return PoolCandidates(pool, queries, labels, more.get("n", 10), more.get("seed", 0))([0], count)


@given(
    st.integers(0, 10**6),
    st.integers(2, 300),
    st.integers(1, 40),
    st.integers(1, 300),
    st.sampled_from([np.float32, np.float64]),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_as_many_different_rows_are_candidates_as_were_asked_for(
    seed, rows, queries, count, dtype, ties
) -> None:
    rng = np.random.default_rng(seed)
    pool, asked = rng.normal(size=(rows, 2)).astype(dtype), rng.normal(size=(queries, 2))
    if ties:
        pool, asked = pool.round(), asked.round()
    (found,) = nearest(pool, asked, min(count, rows))
    assert len(found) == min(count, rows)
    assert (np.diff(found) > 0).all()
    assert found.min() >= 0
    assert found.max() < rows


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_candidates_are_the_rows_nearest_to_a_query_within_its_reach(offset: float) -> None:
    """Brute force: distances as multiples of that within which a query's share of rows lies."""
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(3_000, 3)) + offset, rng.normal(size=(6, 3)) * 2 + offset
    squared = ((pool[None] - queries[:, None]) ** 2).sum(axis=2)  # all rows are in the sample
    reach = np.sort(squared, axis=1)[:, [12 * 50 // 6]]
    near = np.argsort((squared / reach).min(axis=0))[:360]
    order = np.argsort(row_numbers(np.arange(3_000), 0, "rows"))
    elsewhere = order[~np.isin(order, near)][:40]  # a tenth
    (found,) = nearest(pool, queries, 400, n=50)
    np.testing.assert_array_equal(found, np.union1d(near, elsewhere))
    of_each = (squared[:, found] / reach < 1).sum(axis=1)
    assert of_each.min() > 400 / 6 / 2, "every query has candidates, where the pool is thin too"


def test_many_equal_rows_leave_room_for_others() -> None:
    """Half of the pool equals one query: as many of it are candidates as of other queries."""
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(20_000, 3))
    queries = rng.normal(size=(5, 3))
    pool[::2] = queries[0]
    (found,) = nearest(pool, queries, 2_000, n=200)
    equal = (pool[found] == queries[0]).all(axis=1)
    assert 200 < equal.sum() < 800
    assert np.diff(np.flatnonzero(equal)).max() < len(found) / 4, "from the whole pool"
    for query in queries[1:]:
        closest = np.argsort(((pool - query) ** 2).sum(axis=1))[:50]
        assert np.isin(closest, found).all()


def test_more_candidates_include_the_fewer() -> None:
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(5_000, 4)), rng.normal(size=(60, 4))
    (few,), (many,) = (nearest(pool, queries, count) for count in (200, 400))
    assert np.isin(few, many).all()


def test_plans_say_how_many_candidates_were_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    _, pool, clusters = problem(rows=120_000)
    queries = clusters.queries
    arguments = {"context_size": 200, "n_clusters": 10, "device": "cpu"}
    auto = select_contexts(pool.numpy(), queries.numpy(), **arguments)
    named = select_contexts(pool.numpy(), queries.numpy(), kernel="candidates", **arguments)
    assert auto.settings["kernel"] == named.settings["kernel"] == "candidates"
    assert 12 * 200 <= auto.settings["candidates"]["candidates"] < 30_000
    assert auto.settings["candidates"]["gain"] < candidates.ENOUGH
    for a, b in zip(auto.contexts, named.contexts, strict=True):
        np.testing.assert_array_equal(a, b)
    # Contexts that stop early may need fewer candidates: with as many the choices are the same.
    monkeypatch.setattr(candidates, "ENOUGH", 1.0)
    auto = select_contexts(pool.numpy(), queries.numpy(), **arguments)
    rule = EarlyStopping(every=10, warm_up=20, tolerance=0.05, patience=1)
    stopped = select_contexts(pool.numpy(), queries.numpy(), early_stopping=rule, **arguments)
    assert stopped.sizes.mean() < 150
    for a, b in zip(stopped.contexts, auto.contexts, strict=True):
        np.testing.assert_array_equal(a, b[: len(a)])


def test_where_candidates_do_not_suffice_auto_goes_on_with_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "ENOUGH", -1.0)  # nothing ever does
    _, pool, clusters = problem("cloud", rows=40_000, queries=300)
    queries = clusters.queries
    arguments = {"context_size": 300, "n_clusters": 20, "device": "cpu"}
    auto = select_contexts(pool.numpy(), queries.numpy(), **arguments)
    whole = select_contexts(pool.numpy(), queries.numpy(), kernel="exact", **arguments)
    assert auto.settings["candidates"] == {"candidates": 40_000, "gain": 0.0}
    for a, b in zip(auto.contexts, whole.contexts, strict=True):
        np.testing.assert_array_equal(a[:20], b[:20])  # then single precision may decide
    assert auto.final_mmd2.mean() == pytest.approx(whole.final_mmd2.mean(), rel=0.01)


def test_no_more_candidates_than_there_are() -> None:
    """A given list of candidates ends the search, and the gain of the last doubling is told."""
    task = problem("cloud")
    rows = np.random.default_rng(0).permutation(12_000)

    def first(clusters: list[int], count: int) -> list[np.ndarray]:
        return [np.sort(rows[:count])] * len(clusters)

    contexts, doubling = herd_candidates(*task, 60, 3_000, 0, candidates=first, available=3_000)
    assert doubling.candidates == 3_000
    assert not enough(doubling)
    assert all(np.isin(context.indices, rows[:3_000]).all() for context in contexts)
    begun, _ = herd_candidates(*task, 60, 3_000, 0, candidates=first, available=3_000, first=3_000)
    for one, other in zip(contexts, begun, strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)


@pytest.mark.parametrize("early_stopping", [None, EarlyStopping(tolerance=0.5, patience=1)])
def test_the_progress_bar_moves_and_ends_where_it_should(early_stopping) -> None:
    """Clusters that try more candidates are herded again: that is work which was not foreseen."""
    total, done, shown = 0, 0, []

    def progress(steps: int, more: int = 0) -> None:
        nonlocal total, done
        total, done = total + more, done + steps
        shown.append(done / total)

    task = problem("cloud", rows=4_000)
    herd_candidates(*task, 60, 10**6, 0, early_stopping=early_stopping, progress=progress)
    assert done == total > 60 * len(task[2])  # every cluster, and the trial again
    assert shown[0] == 0
    assert shown[-1] == 1
    assert any(0.3 < part < 0.7 for part in shown)


def count_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows that herding among candidates chooses, round by round."""
    counted: list[int] = []
    choose = CandidateObjective.choose
    monkeypatch.setattr(
        CandidateObjective,
        "choose",
        lambda self, count, t: counted.append(self.n_clusters) or choose(self, count, t),
    )
    return counted


def test_early_stopping_saves_the_rows_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices and stops are those of herding over the whole pool, which equal brute force."""
    task = problem("cloud", rows=900)
    rule = EarlyStopping(every=10, warm_up=20, tolerance=0.15, patience=2)
    counted = count_rows(monkeypatch)
    ours, _ = herd_candidates(*task, 300, 900, 0, early_stopping=rule, dtype=np.float64)
    expected = herd(ExactObjective(*task), 300, early_stopping=rule)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a.indices, b.indices)
        np.testing.assert_allclose(a.mmd2, b.mmd2, atol=1e-12)
        assert a.stop_reason == b.stop_reason
    sizes = [len(context.indices) for context in ours]
    assert len(set(sizes)) > 2, "clusters should stop one by one"
    assert sum(counted) == sum(sizes) < 0.8 * 300 * len(sizes)


def test_early_stopping_saves_rows_in_the_trial_too(monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem("cloud", rows=40_000)
    rule = EarlyStopping(every=10, warm_up=20, tolerance=0.3, patience=1)
    counted = count_rows(monkeypatch)
    herd_candidates(*task, 200, 10**6, 0)
    whole = sum(counted)
    counted.clear()
    stopped, _ = herd_candidates(*task, 200, 10**6, 0, early_stopping=rule)
    assert all(context.stop_reason == "converged" for context in stopped)
    assert sum(counted) < 0.5 * whole


def test_chance_is_not_taken_for_a_gain() -> None:
    """Herding among other candidates changes MMD² by some percent; a trial of two sees no more."""
    first = 24 * 60
    found = [herd_candidates(*problem(), 60, 12_000, seed, first=first)[1] for seed in range(8)]
    assert [one.candidates for one in found].count(first) >= 7
