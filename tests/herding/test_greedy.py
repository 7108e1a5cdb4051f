"""greedy.py against brute force in float64."""

from __future__ import annotations

import brute_force
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.errors import InvalidInput
from crumb.herding import greedy
from crumb.herding.greedy import (
    Clusters,
    EarlyStopping,
    ExactObjective,
    Herded,
    RffObjective,
    cluster_sums,
    herd,
)
from crumb.herding.kernel import RandomFourierFeatures, Rbf


def blobs(
    seed: int, n_pool: int = 120, n_queries: int = 30, d: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2.0, size=(3, d))
    pool = centres[rng.integers(3, size=n_pool)] + rng.normal(size=(n_pool, d))
    labels = rng.permutation(np.arange(n_queries) % 3)
    return pool, centres[labels] + 0.5 * rng.normal(size=(n_queries, d)), labels


def exact(
    pool: np.ndarray, queries: np.ndarray, labels: np.ndarray, sigma: float
) -> ExactObjective:
    pool, queries, labels = map(torch.from_numpy, (pool, queries, labels))
    return ExactObjective(Rbf(sigma), pool, Clusters(queries, labels))


def features(d: int, dim: int, sigma: float) -> RandomFourierFeatures:
    return RandomFourierFeatures.draw(d, dim, sigma, np.random.default_rng(7))


def approximate(
    pool: np.ndarray, queries: np.ndarray, labels: np.ndarray, sigma: float, dim: int = 64
) -> RffObjective:
    pool, queries, labels = map(torch.from_numpy, (pool, queries, labels))
    return RffObjective(features(pool.shape[1], dim, sigma), pool, Clusters(queries, labels))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), batch=st.sampled_from([1, 1, 1, 3, 50]), sigma=st.floats(0.7, 5.0)
)
def test_exact_herding_equals_brute_force(seed: int, batch: int, sigma: float) -> None:
    pool, queries, labels = blobs(seed)
    for k, herded in enumerate(herd(exact(pool, queries, labels, sigma), 40, batch)):
        assert herded.indices.tolist() == brute_force.greedy(
            pool, queries[labels == k], 40, sigma, batch
        )


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_the_trace_equals_a_direct_recomputation(batch: int) -> None:
    pool, queries, labels = blobs(3)
    for k, herded in enumerate(herd(exact(pool, queries, labels, 2.0), 60, batch)):
        direct = [
            brute_force.mmd2(pool[herded.indices[:t]], queries[labels == k], 2.0)
            for t in range(1, 61)
        ]
        np.testing.assert_allclose(herded.mmd2, direct, atol=1e-12)
        assert herded.mmd2.min() >= -1e-12


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_rff_herding_equals_brute_force_on_its_own_features(batch: int) -> None:
    pool, queries, labels = blobs(4)
    embed = features(4, 64, 2.0)
    z, zq = (embed(torch.from_numpy(array)).numpy() for array in (pool, queries))
    for k, herded in enumerate(herd(approximate(pool, queries, labels, 2.0), 50, batch)):
        target, chosen = zq[labels == k].mean(axis=0), []
        while len(chosen) < 50:
            score = -2 * z @ target + 2 / (len(chosen) + 1) * z @ z[chosen].sum(axis=0)
            score[chosen] = np.inf
            chosen += np.argsort(score)[: min(batch, 50 - len(chosen))].tolist()
        assert herded.indices.tolist() == chosen
        direct = [((target - z[chosen[:t]].mean(axis=0)) ** 2).sum() for t in range(1, 51)]
        np.testing.assert_allclose(herded.mmd2, direct, atol=1e-12)


def test_rff_scores_approach_the_exact_scores() -> None:
    pool, queries, labels = blobs(5)
    reference = exact(pool, queries, labels, 2.0).scores(slice(None), 0)
    error = {}
    for dim in (16, 256, 4096):
        scores = approximate(pool, queries, labels, 2.0, dim).scores(slice(None), 0)
        error[dim] = float((scores - reference).square().mean().sqrt())
    assert error[4096] < error[256] < error[16]
    assert error[4096] < 0.05


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), rff=st.booleans())
def test_permuting_the_pool_permutes_the_result(seed: int, rff: bool) -> None:
    pool, queries, labels = blobs(seed)
    build = approximate if rff else exact
    order = np.random.default_rng(seed).permutation(len(pool))
    straight = herd(build(pool, queries, labels, 2.0), 20)
    shuffled = herd(build(pool[order], queries, labels, 2.0), 20)
    for a, b in zip(straight, shuffled, strict=True):
        assert a.indices.tolist() == order[b.indices].tolist()


@pytest.mark.parametrize("build", [exact, approximate])
def test_blocks_do_not_change_the_answer(build, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, queries, labels = blobs(8, n_pool=500)
    whole = herd(build(pool, queries, labels, 2.0), 60, 7)
    monkeypatch.setattr(greedy, "CACHE_CELLS", 60)  # blocks of 21 rows
    monkeypatch.setattr(greedy, "BLOCK_CELLS", 600)
    blocks = herd(build(pool, queries, labels, 2.0), 60, 7)
    for a, b in zip(whole, blocks, strict=True):
        assert a.indices.tolist() == b.indices.tolist()
        np.testing.assert_allclose(a.mmd2, b.mmd2, atol=1e-12)


def test_whole_pool_and_more_than_the_pool() -> None:
    pool, queries, labels = blobs(9, n_pool=40)
    for n, reason in ((40, "context size"), (1_000, "pool exhausted")):
        for herded in herd(exact(pool, queries, labels, 2.0), n, 7):
            assert sorted(herded.indices) == list(range(40))
            assert herded.stop_reason == reason


def test_duplicate_rows_are_each_taken_once() -> None:
    pool = np.repeat(np.eye(3), 4, axis=0)
    queries, labels = np.eye(3), np.zeros(3, dtype=np.int64)
    (herded,) = herd(exact(pool, queries, labels, 1.0), 12)
    assert sorted(herded.indices) == list(range(12))
    assert herded.mmd2[2] == pytest.approx(
        0.0, abs=1e-12
    )  # one of each corner matches the queries exactly


def hopeless() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A pool of equal rows away from the one query: MMD² is the same at every size."""
    return np.zeros((2_000, 2)), np.ones((1, 2)), np.zeros(1, dtype=np.int64)


def test_early_stopping_stops_after_five_idle_checks() -> None:
    pool, queries, labels = hopeless()
    (herded,) = herd(exact(pool, queries, labels, 1.0), 1_500, 1, EarlyStopping())
    # Warm-up max(100, 1500/10) = 150; checks at 150, 200, 250, 300, 350.
    assert (len(herded.indices), herded.stop_reason) == (350, "converged")


@pytest.mark.parametrize(("n", "stop"), [(400, 300), (1_500, 350)])
def test_the_warm_up_is_the_larger_of_100_and_a_tenth(n: int, stop: int) -> None:
    pool, queries, labels = hopeless()
    (herded,) = herd(exact(pool, queries, labels, 1.0), n, 1, EarlyStopping())
    assert len(herded.indices) == stop


def test_a_check_takes_place_at_the_first_batch_that_reaches_the_mark() -> None:
    pool, queries, labels = hopeless()
    (herded,) = herd(exact(pool, queries, labels, 1.0), 1_000, 30, EarlyStopping())
    # Batches end at 30, 60, 90, …: marks 100, 150, 200, 250, 300 are reached at 120, 150, 210, 270,
    # 300.
    assert len(herded.indices) == 300
    (herded,) = herd(exact(pool, queries, labels, 1.0), 1_000, 80, EarlyStopping())
    # A batch that jumps a mark is one check: 160, 240, 320, 400, 480.
    assert len(herded.indices) == 480


def test_early_stopping_is_exactly_the_rule_of_the_paper() -> None:
    pool, queries, labels = blobs(0, n_pool=3_000, n_queries=60, d=2)
    rule = EarlyStopping(every=10, warm_up=60, tolerance=0.02, patience=3)
    stopped = herd(exact(pool, queries, labels, 2.0), 500, 1, rule)
    full = herd(exact(pool, queries, labels, 2.0), 500, 1)
    for short, long in zip(stopped, full, strict=True):
        assert len(short.indices) == expected_stop(long, rule)
        assert short.indices.tolist() == long.indices[: len(short.indices)].tolist()
    assert len({len(herded.indices) for herded in stopped}) > 1, "clusters should stop one by one"
    assert any(herded.stop_reason == "converged" for herded in stopped)


def expected_stop(herded: Herded, rule: EarlyStopping) -> int:
    idle = 0
    for t in range(rule.every, len(herded.mmd2) + 1, rule.every):
        if t < rule.warm_up or t == rule.every:
            continue
        before, now = herded.mmd2[t - rule.every - 1], herded.mmd2[t - 1]
        idle = idle + 1 if (before - now) / before < rule.tolerance else 0
        if idle == rule.patience:
            return t
    return len(herded.mmd2)


def test_rff_stops_early_too() -> None:
    pool, queries, labels = blobs(12, n_pool=3_000, n_queries=90)
    lenient = EarlyStopping(tolerance=0.1, patience=1)
    herded = herd(approximate(pool, queries, labels, 2.0), 2_500, 50, lenient)
    assert all(context.stop_reason == "converged" for context in herded)
    assert all(len(context.indices) == len(context.mmd2) < 2_500 for context in herded)


def test_progress_counts_the_rows() -> None:
    pool, queries, labels = blobs(13)
    seen: list[int] = []
    herd(exact(pool, queries, labels, 2.0), 50, 20, progress=seen.append)
    assert seen == [20, 20, 10]


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"patience": 0}, {"tolerance": -1.0}, {"warm_up": -5}]
)
def test_senseless_rules_are_refused(wrong: dict) -> None:
    with pytest.raises(InvalidInput, match="Early stopping needs"):
        EarlyStopping(**wrong)


def test_cluster_sums() -> None:
    values, labels = torch.randn(50, 8, dtype=torch.float64), torch.arange(50) % 4
    expected = torch.stack([values[labels == k].sum(0) for k in range(4)])
    torch.testing.assert_close(cluster_sums(values, labels, 4), expected)
    if torch.cuda.is_available():
        torch.testing.assert_close(cluster_sums(values.cuda(), labels.cuda(), 4).cpu(), expected)
