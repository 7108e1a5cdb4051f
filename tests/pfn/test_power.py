"""Exponents are those that scipy finds, one column after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import yeojohnson, yeojohnson_llf, yeojohnson_normmax

from crumb.pfn.power import Likelihood, likeliest, transformed


def columns(rows: int, seed: int) -> np.ndarray:
    """Both signs, one sign, few values, a far outlier, (7, rows)."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=rows)
    return np.stack(
        [
            normal,
            np.exp(normal),
            -np.exp(normal),
            normal**3,
            rng.integers(-1, 3, rows).astype(float),
            np.where(np.arange(rows) == 1, 99.0, -0.01),
            1e-4 * normal,
        ]
    )


def found(X: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
    there = np.ones(X.shape, dtype=bool) if counted is None else counted
    return likeliest(torch.from_numpy(X), torch.from_numpy(there))[..., 0].numpy()


def scaled(Y: np.ndarray) -> np.ndarray:
    return (Y - Y.mean()) / Y.std()


@pytest.mark.parametrize("rows", [3, 10, 300, 5_000])
def test_exponents_are_scipys(rows: int) -> None:
    X = columns(rows, rows)
    expected = np.array([yeojohnson_normmax(column) for column in X])
    np.testing.assert_allclose(found(X)[:-1], expected[:-1], rtol=1e-6, atol=1e-6)
    # Where cells are small, far exponents are almost alike: what counts is what they do.
    narrow = [scaled(yeojohnson(X[-1], one)) for one in (found(X)[-1], expected[-1])]
    np.testing.assert_allclose(*narrow, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=40).filter(lambda x: np.ptp(x) > 1e-3))
def test_exponents_of_any_column_are_as_likely_as_scipys(cells: list[float]) -> None:
    X = scaled(np.array(cells))
    ours, theirs = (yeojohnson_llf(one, X) for one in (*found(X[None]), yeojohnson_normmax(X)))
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def test_a_long_search_does_not_move_the_others() -> None:
    X = np.random.default_rng(0).integers(-1, 2, (64, 256)).astype(float)
    slow = np.where(np.arange(256) == np.arange(64)[:, None], 99.0, -0.01)
    np.testing.assert_array_equal(found(np.concatenate([X, slow]))[:64], found(X))


def test_cells_that_do_not_count() -> None:
    X = columns(200, 0)
    counted = np.arange(200) < np.array([200, 150, 100, 50, 40, 30, 20])[:, None]
    together = found(np.where(counted, X, 1e3), counted)
    alone = [found(row[there][None])[0] for row, there in zip(X, counted, strict=True)]
    np.testing.assert_allclose(together[:-1], alone[:-1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(together[-1], alone[-1], rtol=1e-4)


@pytest.mark.parametrize("exponent", [-3.0, 0.0, 1e-17, 1e-13, 0.7, 1.0, 2.0, 2 + 1e-15, 5.5])
def test_transform_is_scipys(exponent: float) -> None:
    X = np.append(np.linspace(-100, 100, 41), [0.0, -0.0, 1e-12, -1e-12])
    ours = transformed(torch.from_numpy(X), torch.tensor([exponent], dtype=torch.float64))
    np.testing.assert_allclose(ours, yeojohnson(X, exponent), rtol=1e-11)


def test_likelihood_is_scipys() -> None:
    X = columns(50, 1)
    known = Likelihood.of(torch.from_numpy(X), torch.ones(X.shape, dtype=torch.bool))
    for exponent in (-4.0, 0.0, 0.3, 2.0, 7.0):
        ours = -known.unlikelihood(torch.full((len(X), 1), exponent, dtype=torch.float64))
        theirs = [yeojohnson_llf(exponent, column) for column in X]
        np.testing.assert_allclose(ours[:, 0], theirs, rtol=1e-9)
