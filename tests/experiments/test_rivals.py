"""The rivals against their formulas, written out row by row in float64."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from experiments import rivals


def linear() -> rivals.Network:
    """In the place of a network: softmax of products with the means of the classes."""

    def answer(X: pd.DataFrame, y: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
        means = np.stack([X.to_numpy()[y == code].mean(axis=0) for code in range(3)])
        found = np.exp(rows.to_numpy() @ means.T)
        return found / found.sum(axis=1, keepdims=True)

    return answer


@pytest.fixture
def table() -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X + 0.5 * rng.normal(size=(60, 3))).argmax(axis=1)
    return pd.DataFrame(X[:50]), y[:50], pd.DataFrame(X[50:])


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def test_boosting_over_contexts(table: tuple[pd.DataFrame, np.ndarray, pd.DataFrame]) -> None:
    X, y, queries = table
    rng, weights = np.random.default_rng(7), [1 / 50] * 50
    rows = pd.concat([X, queries], ignore_index=True)
    total, losses = [[0.0] * 3 for _ in range(60)], [50 * math.log(3)]
    for _ in range(4):
        context = rivals.draw(np.array(weights), y, 20, rng)
        found = np.log(linear()(X.iloc[context], y[context], rows)).tolist()

        def summed(step: float, total: list = total, found: list = found) -> list:
            return [[t + step * f for t, f in zip(*both, strict=True)]
                    for both in zip(total, found, strict=True)]  # fmt: skip

        def loss(sums: list) -> float:
            return -sum(math.log(softmax(sums[i])[y[i]]) for i in range(50))

        step = rivals.best_step(np.array(total[:50]), np.array(found[:50]), y)
        grid = min(np.linspace(0, rivals.MOST_STEP, 501), key=lambda one: loss(summed(one)))
        assert abs(step - grid) <= 0.02
        total = summed(step)
        losses.append(loss(total))
        weights = [w * math.exp(1 - softmax(t)[c])
                   for w, t, c in zip(weights, total, y, strict=False)]  # fmt: skip
        weights = [w / sum(weights) for w in weights]
    assert losses == sorted(losses, reverse=True)
    expected = [softmax(one) for one in total[50:]]
    found = rivals.boost_contexts(linear(), X, y, queries, n=20, rounds=4, seed=7)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_contexts_have_every_class_and_follow_the_weights() -> None:
    y = np.array([0] * 90 + [1] * 9 + [2])
    weights = np.full(100, 1e-9)
    weights[:20] = 1
    rows = rivals.draw(weights / weights.sum(), y, 20, np.random.default_rng(0))
    assert sorted(rows[:20]) == list(range(20))
    assert sorted(y[rows[20:]]) == [1, 2]


def test_boosting_on_outputs() -> None:
    """softmax(s · scores + trees); without use for trees, the network's own answer."""
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    table, start = rng.normal(size=(400, 3)), rng.normal(size=(400, 3))
    odds = start + np.c_[2 * (table[:, 0] > 0), np.zeros((400, 2))]
    y = (odds + rng.gumbel(size=(400, 3))).argmax(axis=1)
    made = rivals.OutputBoosting().fit(table, y, start)
    assert made.scale > 0
    found = made.predict_proba(table[:9], start[:9])
    trees = made.trees.predict(table[:9], raw_score=True)
    expected = [softmax(list(made.scale * start[i] + trees[i])) for i in range(9)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.ptp(trees, axis=0).max() > 0.1

    constant = np.zeros((400, 1))
    y = (start + rng.gumbel(size=(400, 3))).argmax(axis=1)
    made = rivals.OutputBoosting().fit(constant, y, 2 * start)
    assert 0.25 <= made.scale <= 0.75  # the scores were twice what they should be


def test_prior_correction() -> None:
    proba = np.array([[0.7, 0.3, 0.0], [0.2, 0.8, 0.0]])
    own, wanted = np.array([0.5, 0.5, 0.0]), np.array([0.2, 0.6, 0.2])
    found = rivals.corrected(proba, own, wanted)
    for row, (a, b, _) in zip(found, proba, strict=True):
        total = a * 0.2 / 0.5 + b * 0.6 / 0.5
        np.testing.assert_allclose(row, [a * 0.4 / total, b * 1.2 / total, 0], rtol=1e-12)
    np.testing.assert_allclose(rivals.corrected(proba, own, own), proba)
    alone = np.array([[0.0, 0.0, 1.0]])  # nothing is left of it: as it was
    np.testing.assert_array_equal(rivals.corrected(alone, own, wanted), alone)


def test_correction_of_contexts() -> None:
    """To the shares of the pool, and to the mean answer of each context (DistPFN)."""
    y = np.array([0, 0, 0, 1, 1, 0, 1, 0])
    contexts, labels = [np.array([0, 1, 2, 3]), np.array([3, 4, 5])], np.array([0, 1, 0, 1])
    proba = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.2, 0.8]])
    shares = {0: (0.75, 0.25), 1: (1 / 3, 2 / 3)}
    pool = np.bincount(y) / len(y)
    found = rivals.correct_contexts(proba, labels, contexts, y, pool)
    for row, (a, b), k in zip(found, proba, labels, strict=True):
        a, b = a * pool[0] / shares[k][0], b * pool[1] / shares[k][1]
        np.testing.assert_allclose(row, [a / (a + b), b / (a + b)], rtol=1e-12)
    found = rivals.correct_contexts(proba, labels, contexts, y)
    means = {0: (0.7, 0.3), 1: (0.3, 0.7)}
    for row, (a, b), k in zip(found, proba, labels, strict=True):
        a, b = a * means[k][0] / shares[k][0], b * means[k][1] / shares[k][1]
        np.testing.assert_allclose(row, [a / (a + b), b / (a + b)], rtol=1e-12)


def test_network_that_lacks_a_class() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)))
    y = np.where(X[0] > 0, 3, 1)
    found = rivals.network(4, device="cpu")(X, y, X[:5])
    assert found.shape == (5, 4)
    np.testing.assert_array_equal(found[:, [0, 2]], 0)
    np.testing.assert_allclose(found.sum(axis=1), 1)
