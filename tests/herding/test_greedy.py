"""greedy.py against the direct formulas, and against brute force in float64."""

from __future__ import annotations

import brute_force
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from crumb.errors import InvalidInput
from crumb.herding import greedy
from crumb.herding.greedy import (
    Clusters,
    EarlyStopping,
    ExactObjective,
    Herded,
    RandomFourierFeatures,
    Rbf,
    RffObjective,
    Trace,
    cluster_sums,
    herd,
    median_bandwidth,
    rff_trace,
)

matrices = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).normal(size=(2 + seed % 30, 1 + seed % 5))
)


@settings(max_examples=30, deadline=None)
@given(a=matrices, sigma=st.floats(0.05, 20.0))
def test_rbf_is_the_formula_and_mmd2_is_never_negative(a: np.ndarray, sigma: float) -> None:
    b = np.random.default_rng(len(a)).normal(size=(7, a.shape[1]))
    exact, ta, tb = Rbf(sigma), torch.from_numpy(a), torch.from_numpy(b)
    np.testing.assert_allclose(exact(ta, tb).numpy(), brute_force.rbf(a, b, sigma), atol=1e-12)
    assert exact(ta, ta).max() <= 1.0
    assert exact.mmd2(ta, tb) == pytest.approx(brute_force.mmd2(a, b, sigma), abs=1e-12)
    assert exact.mmd2(ta, tb) >= -1e-12
    assert exact.mmd2(ta, ta) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("cells", [1 << 22, 64])
def test_prefix_mmd2_equals_recomputation_of_every_prefix(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, "BLOCK_CELLS", cells)  # the small one forces many blocks
    rng = np.random.default_rng(0)
    context, queries = rng.normal(size=(25, 3)), rng.normal(size=(9, 3)) + 1
    direct = [brute_force.mmd2(context[: t + 1], queries, 1.3) for t in range(25)]
    trace = Rbf(1.3).prefix_mmd2(torch.from_numpy(context), torch.from_numpy(queries))
    np.testing.assert_allclose(trace.numpy(), direct, atol=1e-12)


def test_traces_of_many_clusters_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "BLOCK_CELLS", 100)  # 4 rows of a context, of 1 or 2 clusters
    monkeypatch.setattr(greedy, "TRACED", 4)
    rng = np.random.default_rng(0)
    contexts, queries = torch.from_numpy(rng.normal(size=(5, 13, 3))), rng.normal(size=(5, 6, 3))
    kernel, asked = Rbf(1.3), torch.from_numpy(queries)
    cross = torch.stack([kernel.row_means(a, b) for a, b in zip(contexts, asked, strict=True)])
    trace = Trace(kernel, torch.stack([kernel.mean_within(one) for one in asked]), 3)
    first = trace.extend(contexts[:, :6], cross[:, :6])
    left = torch.tensor([True, False, True, True, True])
    trace.keep(left)
    rest = trace.extend(contexts[left, 6:], cross[left, 6:])

    def direct(k: int, rows: range) -> list[float]:
        return [brute_force.mmd2(contexts[k, : t + 1].numpy(), queries[k], 1.3) for t in rows]

    expected = [direct(k, range(6)) for k in range(5)]
    np.testing.assert_allclose(first.numpy(), expected, atol=1e-12)
    expected = [direct(k, range(6, 13)) for k in (0, 2, 3, 4)]
    np.testing.assert_allclose(rest.numpy(), expected, atol=1e-12)


def test_random_features_are_the_formula_of_the_paper() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    features = RandomFourierFeatures.draw(3, 16, 2.0, rng)
    omega, phase = features.omega.numpy(), features.phase.numpy()
    expected = np.sqrt(2 / 16) * np.cos(x @ omega + phase)
    np.testing.assert_allclose(features(torch.from_numpy(x)).numpy(), expected, atol=1e-14)
    assert (phase >= 0).all()
    assert (phase < 2 * np.pi).all()
    queries = rng.normal(size=(4, 3))
    z, target = expected, np.sqrt(2 / 16) * np.cos(queries @ omega + phase)
    direct = [((target.mean(0) - z[: t + 1].mean(0)) ** 2).sum() for t in range(6)]
    trace = rff_trace(features, torch.from_numpy(x), torch.from_numpy(queries))
    np.testing.assert_allclose(trace.numpy(), direct, atol=1e-14)


def test_random_features_of_many_queries_are_made_in_blocks() -> None:
    sizes = []

    class Watched(RandomFourierFeatures):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return super().__call__(x)

    rng = np.random.default_rng(0)
    plain = RandomFourierFeatures.draw(2, 256, 1.0, rng)
    queries, context = (torch.from_numpy(rng.normal(size=(n, 2))) for n in (30_000, 9_000))
    trace = rff_trace(Watched(plain.omega, plain.phase), context, queries)
    assert max(sizes) * 256 <= greedy.BLOCK_CELLS  # 8 MB, however many there are
    whole = plain(queries).mean(0) - plain(context).cumsum(0)[-1] / len(context)
    assert float(trace[-1]) == pytest.approx(float((whole * whole).sum()), rel=1e-9)


def test_random_features_approach_the_kernel_as_their_number_grows() -> None:
    x = np.random.default_rng(1).normal(size=(40, 4))
    exact = brute_force.rbf(x, x, 1.5)
    error = {}
    for dim in (16, 256, 4096):
        z = RandomFourierFeatures.draw(4, dim, 1.5, np.random.default_rng(2))(
            torch.from_numpy(x)
        ).numpy()
        error[dim] = np.sqrt(np.mean((z @ z.T - exact) ** 2))
    # The error falls as 1/√D: sixteen times the features, a quarter of the error.
    assert error[256] < 0.45 * error[16]
    assert error[4096] < 0.45 * error[256]
    assert error[4096] < 0.03


def test_omega_has_the_spread_of_the_bandwidth() -> None:
    features = RandomFourierFeatures.draw(50, 2_000, 4.0, np.random.default_rng(0))
    assert float(features.omega.std()) == pytest.approx(1 / 4.0, rel=0.02)


def test_median_bandwidth_is_the_median_pair_distance() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    assert median_bandwidth(x, np.random.default_rng(0)) == pytest.approx(np.median(pdist(x)))


def test_median_bandwidth_samples_large_pools_by_the_seed() -> None:
    x = np.random.default_rng(0).normal(size=(5_000, 3))
    first, again, other = (median_bandwidth(x, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert first == pytest.approx(np.median(pdist(x)), rel=0.05)


def test_median_bandwidth_of_duplicates() -> None:
    rng = np.random.default_rng(0)
    mostly_equal = np.vstack([np.zeros((40, 2)), np.array([[3.0, 4.0]])])
    assert median_bandwidth(mostly_equal, rng) == pytest.approx(5.0)  # the median of all pairs is 0
    assert median_bandwidth(np.ones((10, 2)), rng) == 1.0
    assert median_bandwidth(np.ones((1, 2)), rng) == 1.0


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
