"""kernel.py against the direct formulas."""

from __future__ import annotations

import brute_force
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from crumb.herding import kernel
from crumb.herding.greedy import rff_trace
from crumb.herding.kernel import RandomFourierFeatures, Rbf, median_bandwidth

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
    monkeypatch.setattr(kernel, "BLOCK_CELLS", cells)  # the small one forces many blocks
    rng = np.random.default_rng(0)
    context, queries = rng.normal(size=(25, 3)), rng.normal(size=(9, 3)) + 1
    direct = [brute_force.mmd2(context[: t + 1], queries, 1.3) for t in range(25)]
    trace = Rbf(1.3).prefix_mmd2(torch.from_numpy(context), torch.from_numpy(queries))
    np.testing.assert_allclose(trace.numpy(), direct, atol=1e-12)


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
    assert max(sizes) * 256 <= kernel.BLOCK_CELLS  # 8 MB, however many there are
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
