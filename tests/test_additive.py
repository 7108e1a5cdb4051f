"""additive.py: a curve for each number and a value for each word."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from crumb import additive
from crumb.additive import KNOTS, WEIGHTS, Slots, choose_values, fit_values, summed

GAP = np.nan


def table(rows: int = 400, seed: int = 0) -> np.ndarray:
    """A number, a count that is mostly zero, and words; all with gaps."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=rows), rng.poisson(0.3, rows), rng.integers(4, size=rows)
    made = np.column_stack(columns).astype(float)
    made[rng.random(made.shape) < 0.05] = GAP
    return made


def test_a_number_counts_at_the_two_knots_around_it() -> None:
    slots = Slots([np.array([0.0, 1.0, 3.0]), np.arange(2.0)], [0])
    rows = np.array([[0.0, 0], [0.25, 1], [2.5, GAP], [-9, 0], [9, 1], [GAP, 0], [np.inf, 0]])
    wanted = [
        [1, 0, 0, 0, 1, 0, 0],
        [0.75, 0.25, 0, 0, 0, 1, 0],
        [0, 0.25, 0.75, 0, 0, 0, 1],
        [1, 0, 0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0, 1, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 1, 0, 0],
    ]
    np.testing.assert_array_equal(slots.design(rows).toarray(), wanted)
    np.testing.assert_array_equal(slots.lines().toarray()[:, 0], [-1, 0, 1, 0, 0, 0, 0])


def test_knots_are_where_the_rows_are_and_where_the_values_are() -> None:
    counts = np.repeat([0.0, 1, 2, 3, 50], [900, 40, 30, 20, 10])
    assert Slots.of(counts[:, None], {}).knots[0].tolist() == [0, 1, 2, 3, 50]
    smooth = Slots.of(np.random.default_rng(0).normal(size=(5000, 1)), {}).knots[0]
    assert KNOTS <= len(smooth) <= 2 * KNOTS
    assert (np.diff(smooth) > 0).all()


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_a_model_is_scikit_learns_on_the_same_design(n_classes: int | None) -> None:
    X = table()
    rng = np.random.default_rng(1)
    value = np.nan_to_num(X[:, 0]) + 0.5 * np.nan_to_num(X[:, 2]) + rng.normal(size=len(X))
    y = value if n_classes is None else np.digitize(value, [0.5, 1.5][: n_classes - 1])
    slots = Slots.of(X, {2: 4})
    (model,) = fit_values(slots, X, y, n_classes, [0.3])
    dense = slots.design(X).toarray()
    dense = np.hstack([dense, dense @ slots.lines().toarray()]).astype(np.float64)
    if n_classes is None:
        wanted = Ridge(1 / 0.3).fit(dense, y).predict(dense)
    else:
        wanted = LogisticRegression(C=0.3, tol=1e-3).fit(dense, y)
        wanted = wanted.predict_proba(dense)
    np.testing.assert_allclose(summed(slots, model, X, n_classes), wanted, atol=1e-3)


def test_an_additive_rule_is_found() -> None:
    X = table(4_000)
    truth = np.sin(2 * np.nan_to_num(X[:, 0])) + np.isnan(X[:, 1]) + np.nan_to_num(X[:, 2]) ** 2 / 4
    y = truth + 0.1 * np.random.default_rng(1).normal(size=len(X))
    slots = Slots.of(X[:3000], {2: 4})
    model, weight = choose_values(slots, (X[:3000], y[:3000]), (X[3000:], y[3000:]), None)
    assert weight == max(WEIGHTS)
    assert np.mean((summed(slots, model, X[3000:], None) - truth[3000:]) ** 2) < 0.03


def test_noise_takes_the_strongest_penalty() -> None:
    X = np.hstack([table(900, seed) for seed in range(9)])
    y = np.random.default_rng(1).integers(2, size=900)
    slots = Slots.of(X, dict.fromkeys(range(2, 27, 3), 4))
    assert choose_values(slots, (X[:400], y[:400]), (X[400:], y[400:]), 2)[1] == min(WEIGHTS)


@pytest.mark.parametrize("there", [[1], [0, 2], [0, 1, 2]])
def test_classes_without_rows_are_never_said(there: list[int]) -> None:
    X = table(90)
    slots = Slots.of(X, {2: 4})
    y = np.array(there)[np.arange(90) % len(there)]
    (model,) = fit_values(slots, X, y, 4, [0.3])
    proba = summed(slots, model, X, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (np.delete(proba, there, axis=1) < 1e-10).all()
    assert (proba[:, there] > 1e-4).all()


def test_few_rows_teach_where_there_are_many(monkeypatch) -> None:
    monkeypatch.setattr(additive, "MOST_ROWS", 50)
    X, y = table(400), np.zeros(400, dtype=int)
    y[::2], y[399] = 1, 2  # the last class has one row
    slots = Slots.of(X, {2: 4})
    (model,) = fit_values(slots, X, y, 3, [0.3])
    assert (summed(slots, model, X, 3)[:, 2] > 1e-10).all()
    rows = np.union1d(np.linspace(0, 399, 50).astype(int), [0, 1, 399])
    monkeypatch.undo()
    (wanted,) = fit_values(slots, X[rows], y[rows], 3, [0.3])
    np.testing.assert_array_equal(model, wanted)


@given(
    st.lists(st.floats(width=64), min_size=1, max_size=12),
    st.lists(st.floats(width=64), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_any_cells(column: list[float], asked: list[float]) -> None:
    slots = Slots.of(np.array(column)[:, None], {})
    design = slots.design(np.array(asked)[:, None]).toarray()
    np.testing.assert_allclose(design.sum(axis=1), 1, rtol=1e-6)
    assert (design >= 0).all()
    assert (design[np.isnan(asked), -1] == 1).all()
    assert (np.diff(slots.knots[0]) > 0).all()


def test_columns_of_gaps_and_of_one_word() -> None:
    X = np.column_stack([np.full(20, GAP), np.zeros(20), np.full(20, GAP)])
    slots = Slots.of(X, {1: 1, 2: 0})
    (model,) = fit_values(slots, X, np.arange(20.0), None, [3.0])
    np.testing.assert_allclose(summed(slots, model, X, None), 9.5, atol=1e-3)
