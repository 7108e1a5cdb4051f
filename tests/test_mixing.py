"""mixing.py: mixtures of two answers against direct formulas, and shares by likelihood."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crumb.mixing import LEAST, SHARES, averaged, loss, losses, mean_share, mixture, pooled


def test_the_likelier_network_and_the_mean_share() -> None:
    shares = np.linspace(0, 1, 21)
    level = np.full((2, 21), 0.3)
    assert mean_share(level, 300, False) == (0, 0.5)  # nothing is known: half and half
    one, other = 0.3 + (shares - 0.2) ** 2, 0.31 + (shares - 0.2) ** 2
    assert mean_share(np.stack([one, other]), 10_000, False) == (0, 0.2)
    assert mean_share(np.stack([other, one]), 10_000, True) == (1, 0.2)
    shrunk = mean_share(np.stack([one, other]), 10, False)[1]
    assert 0.2 < shrunk < 0.5  # few rows
    assert mean_share(np.stack([one, other]), 0, False) == (0, 0.5)
    exact = np.where(shares == 0, 0.0, 1.0)  # no error at all
    assert mean_share(np.stack([exact, exact]), 300, True) == (0, 0.0)


@given(arrays(np.float64, (2, 5, 3), elements=st.floats(1e-6, 1.0)), st.floats(0, 1))
def test_mixtures_of_probabilities_are_geometric_means(proba: np.ndarray, share: float) -> None:
    found, own = proba / proba.sum(axis=2, keepdims=True)
    answers = mixture(found, own, share)
    np.testing.assert_allclose(answers.sum(axis=1), 1.0)
    ratios = (found[:, :1] / found[:, 1:]) ** (1 - share) * (own[:, :1] / own[:, 1:]) ** share
    np.testing.assert_allclose(answers[:, :1] / answers[:, 1:], ratios, rtol=1e-9)
    np.testing.assert_allclose(mixture(own, found, 1 - share), answers, rtol=1e-9)


def test_mixtures_at_the_ends() -> None:
    sure, unsure = np.array([[1.0, 0.0]]), np.array([[0.2, 0.8]])
    np.testing.assert_allclose(mixture(unsure, sure, 0.0), unsure)
    np.testing.assert_allclose(mixture(unsure, sure, 1.0), sure, atol=1e-6)
    assert 0 < mixture(unsure, sure, 0.5)[0, 1] < 1e-2  # impossible to one of them only
    assert mixture(np.array([1.0]), np.array([3.0]), 0.25) == 1.5  # numbers: their mean


def test_losses() -> None:
    np.testing.assert_allclose(loss(np.array([1.0, 2.0]), np.array([0.0, 4.0])), [1.0, 4.0])
    proba = np.array([[0.5, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(loss(np.array([0, 1]), proba), [np.log(2), -np.log(LEAST)])


def test_losses_of_all_shares_do_not_overflow() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=50)
    first, second = y + rng.normal(size=50), y + 1.0
    near, far = losses(y, first, second), losses(1e300 * y, 1e300 * first, 1e300 * second)
    np.testing.assert_allclose(near, far)
    mixed = [np.mean((y - (1 - w) * first - w * second) ** 2) / np.var(y) for w in SHARES]
    np.testing.assert_allclose(near, mixed)


def test_several_answers_as_one() -> None:
    who, weights = np.array([0, 0, 1, 2, 2, 2]), np.array([0.25, 0.75, 1.0, 0.5, 0.3, 0.2])
    numbers = np.array([1.0, 3.0, 7.0, 2.0, 4.0, 6.0])
    np.testing.assert_allclose(averaged(numbers, who, weights), [2.5, 7.0, 3.4])
    quantiles = averaged(np.stack([numbers, 2 * numbers], axis=1), who, weights)
    np.testing.assert_allclose(quantiles, [[2.5, 5.0], [7.0, 14.0], [3.4, 6.8]])
    proba = np.array([[0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])
    pairs = pooled(proba[:2], who[:2], weights[:2])
    np.testing.assert_allclose(pairs, mixture(proba[:1], proba[1:2], 0.75))
    np.testing.assert_allclose(pooled(proba, who, weights).sum(axis=1), 1.0)


def test_classes_that_some_answers_do_not_know() -> None:
    who, weights = np.array([0, 0]), np.array([0.6, 0.4])
    proba = np.array([[0.9, 0.1, -1.0], [-1.0, 0.5, 0.5]])
    likely = np.array([0.6 * 0.9, 0.1**0.6 * 0.5**0.4, 0.4 * 0.5])
    np.testing.assert_allclose(pooled(proba, who, weights)[0], likely / likely.sum())
    nobody = np.array([[1.0, -1.0], [1.0, -1.0]])
    np.testing.assert_allclose(pooled(nobody, who, weights), [[1.0, 0.0]])
    little = pooled(np.array([[1.0, -1.0], [0.5, 0.5]]), who, np.array([0.97, 0.03]))
    assert little[0, 1] < 0.03  # what counts little says little
    assert np.isnan(pooled(np.array([[np.nan, np.nan], [0.5, 0.5]]), who, weights)).all()
