"""Exact herding among candidates: the same choices as over the whole pool, and a bound that holds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from crumb import select_contexts
from crumb.certified import TooManyCandidates, _Herding, herd_certified, worth_while
from crumb.herding import candidates
from crumb.herding.greedy import EarlyStopping, herd, stop_early
from crumb.herding.kernel import Rbf, median_bandwidth
from crumb.herding.objective import ExactObjective
from crumb.parallel import block_threads
from crumb.selection.clustering import cluster


def blobs(rows: int = 6_000, queries: int = 200, d: int = 6, centers: int = 12, seed: int = 0):
    X, _ = make_blobs(rows + queries, d, centers=centers, random_state=seed)
    X = (X - X.mean(0)) / X.std(0)
    return torch.from_numpy(X[queries:]), torch.from_numpy(X[:queries])


def problem(pool: torch.Tensor, queries: torch.Tensor, k: int = 12):
    labels, _ = cluster(queries.numpy(), k, seed=0)
    sigma = median_bandwidth(pool.numpy(), np.random.default_rng(0))
    return Rbf(sigma), pool, queries, torch.from_numpy(labels)


def over_the_whole_pool(kernel, pool, queries, labels, n):
    return herd(ExactObjective(kernel, pool, queries, labels, int(labels.max()) + 1), n)


@pytest.mark.parametrize("seed", range(4))
def test_choices_are_those_of_herding_over_the_whole_pool(seed):
    asked = problem(*blobs(seed=seed))
    ours, certificate = herd_certified(*asked, n=80, most=0.5)
    for context, whole in zip(ours, over_the_whole_pool(*asked, n=80), strict=True):
        np.testing.assert_array_equal(context.indices, whole.indices)
        np.testing.assert_allclose(context.mmd2, whole.mmd2, rtol=1e-9, atol=1e-13)
    assert certificate.verifications >= 8
    assert certificate.candidates < 0.5 * 12 * 6_000


def test_choices_are_taken_back_until_they_are_right(monkeypatch):
    """Forty choices at once among far too few candidates: the verification finds out, and leads to the right ones."""
    monkeypatch.setattr(candidates, "FIRST", 1)
    kernel, pool, queries, labels = problem(*blobs(seed=1, d=3), k=6)
    herding = _Herding(kernel, pool, queries, labels, 40, map, most=1.0)
    waiting = herding.clusters
    while waiting:
        for group in waiting:
            group.advance(40)
        waiting = herding.verify()
    assert herding.redone > 0
    for group, whole in zip(
        herding.clusters, over_the_whole_pool(kernel, pool, queries, labels, n=40), strict=True
    ):
        np.testing.assert_array_equal(group.rows, whole.indices)
        np.testing.assert_allclose(group.mmd2, whole.mmd2, rtol=1e-9, atol=1e-13)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 8),
    k=st.integers(1, 6),
    spread=st.floats(0.05, 3),
    t=st.integers(0, 30),
    steps=st.integers(1, 20),
)
def test_the_bound_is_never_above_the_score(seed, d, k, spread, t, steps):
    """Against brute force in float64, on clustered and on shapeless tables alike."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, d)) * 2
    X = centres[rng.integers(4, size=460)] + spread * rng.normal(size=(460, d))
    kernel, pool, queries, labels = problem(torch.from_numpy(X[60:]), torch.from_numpy(X[:60]), k)
    herding = _Herding(kernel, pool, queries, labels, 60, map, most=1.0)
    for group in herding.clusters:
        group.advance(t)
        group.advance(t + steps)
    low, high, reach, limit = herding.limits()
    bound = herding.bound(slice(None), low, high, reach)
    for j, group in enumerate(herding.clusters):
        rounding = float(limit[j]) - float(group.window.score.max())
        cross = kernel(pool, queries[labels == j]).mean(1)
        for now in range(t, t + steps):
            chosen = pool[group.rows[:now]]
            score = (kernel(pool, chosen).sum(1) if now else 0) - (now + 1) * cross
            assert (bound[j] - rounding <= score + 1e-11).all()
            assert score[group.rows[now]] == pytest.approx(
                float(group.window.score[now - t]), abs=1e-9
            )


def test_equal_rows_are_interchangeable():
    """Tables of few distinct values are full of ties: the values chosen are the same, each row is chosen once."""
    pool, queries = blobs(4_000, 150, d=3)
    asked = problem((2 * pool).round(), (2 * queries).round(), k=5)
    assert len(asked[1].unique(dim=0)) < 1_000
    ours, _ = herd_certified(*asked, n=60, most=1.0)
    for context, whole in zip(ours, over_the_whole_pool(*asked, n=60), strict=True):
        np.testing.assert_array_equal(asked[1][context.indices], asked[1][whole.indices])
        assert len(set(context.indices)) == 60


@pytest.mark.parametrize("offset", [0.0, 100.0, 3_000.0])
def test_far_groups_and_large_norms_do_not_spoil_the_proof(offset):
    """Squared distances are differences of squared norms: far from the origin they lose digits."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(12, 3)) * 6)[rng.integers(12, size=6_200)] + 0.3 * rng.normal(
        size=(6_200, 3)
    )
    X[rng.random(len(X)) < 0.25] += offset
    asked = problem(torch.from_numpy(X[200:]), torch.from_numpy(X[:200]), k=24)
    ours, _ = herd_certified(*asked, n=30, most=1.0)
    for context, whole in zip(ours, over_the_whole_pool(*asked, n=30), strict=True):
        np.testing.assert_allclose(context.mmd2, whole.mmd2, rtol=0, atol=1e-9)
        if offset < 1_000:  # beyond, the scores themselves are only known to nine digits
            np.testing.assert_array_equal(context.indices, whole.indices)


def test_single_precision_proves_nothing():
    kernel, pool, queries, labels = problem(*blobs(20_000, 300, d=10))
    assert not worth_while(kernel, pool.float(), queries.float(), labels, n=100, seed=0)


def test_shapeless_tables_are_given_up_early():
    rng = np.random.default_rng(0)
    asked = problem(
        torch.from_numpy(rng.normal(size=(20_000, 10))),
        torch.from_numpy(rng.normal(size=(300, 10))),
    )
    with pytest.raises(TooManyCandidates):
        herd_certified(*asked, n=100)
    assert not worth_while(*asked, n=100, seed=0)


def test_clustered_tables_are_worth_while():
    asked = problem(*blobs(20_000, 300, d=10))
    assert worth_while(*asked, n=100, seed=0)
    assert not worth_while(*asked, n=3_000, seed=0)  # most rows would be candidates
    assert not worth_while(
        asked[0], asked[1][:1_000], *asked[2:], n=10, seed=0
    )  # small pools are fast anyway


def test_threads_change_nothing():
    asked = problem(*blobs())
    alone, _ = herd_certified(*asked, n=40, most=0.5)
    with block_threads(3) as map_blocks:
        together, _ = herd_certified(*asked, n=40, map_blocks=map_blocks, most=0.5)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)


def test_early_stopping_cuts_where_herding_would_have_stopped():
    rule = EarlyStopping(every=10, warm_up=20, tolerance=0.05, patience=2)
    kernel, pool, queries, labels = problem(*blobs())
    whole = herd(
        ExactObjective(kernel, pool, queries, labels, int(labels.max()) + 1),
        150,
        early_stopping=rule,
    )
    full, _ = herd_certified(kernel, pool, queries, labels, n=150, most=0.6)
    cut = [stop_early(context, rule, 150) for context in full]
    assert "converged" in [context.stop_reason for context in cut]
    for ours, theirs in zip(cut, whole, strict=True):
        assert ours.stop_reason == theirs.stop_reason
        np.testing.assert_array_equal(ours.indices, theirs.indices)


@pytest.mark.parametrize(
    "rule", [False, EarlyStopping(every=10, warm_up=20, tolerance=0.05, patience=1)]
)
def test_plans_say_how_they_were_made(rule):
    pool, queries = (part.numpy() for part in blobs(20_000, 300, d=10))
    plans = {
        kernel: select_contexts(
            pool,
            queries,
            context_size=60,
            kernel=kernel,
            device="cpu",
            early_stopping=rule,
            n_clusters=12,
        )
        for kernel in ("certified", "exact")
    }
    plan = plans["certified"]
    assert "certificate" not in plans["exact"].settings
    assert (plan.settings["kernel"], plan.settings["herd_batch"]) == ("certified", 1)
    assert plan.settings["certificate"]["verifications"] > 5
    for ours, theirs in zip(plan.contexts, plans["exact"].contexts, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_where_it_does_not_pay_the_rest_is_as_before():
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(17_000, 8)), rng.normal(size=(60, 8))
    plans = [
        select_contexts(pool, queries, context_size=20, n_clusters=3, kernel=kernel, device="cpu")
        for kernel in ("certified", "exact")
    ]
    assert plans[0].settings == plans[1].settings
    for ours, theirs in zip(plans[0].contexts, plans[1].contexts, strict=True):
        np.testing.assert_array_equal(ours, theirs)
