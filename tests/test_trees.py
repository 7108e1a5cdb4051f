"""trees.py: boosted trees on encoded rows."""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification

from crumb.trees import MORE_ROWS, ROUNDS, Trees, scattered


def rows(count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(count, 6, n_informative=4, n_classes=3, flip_y=0.2, random_state=0)


def test_categories_are_the_places_of_their_words() -> None:
    trees = Trees(2, [1])
    first = pd.DataFrame({"x": [1.5, np.nan, 3.0], "c": ["b", None, "a"]})
    np.testing.assert_array_equal(trees.table(first), [[1.5, 1], [np.nan, np.nan], [3.0, 0]])
    later = pd.DataFrame({"x": [0.0, 0.0], "c": ["new", "b"]})
    np.testing.assert_array_equal(trees.table(later), [[0.0, np.nan], [0.0, 1]])


def test_training_stops_early_and_the_whole_pool_takes_as_many_rounds() -> None:
    X, y = rows()
    trees = Trees(3, [])
    stop = np.arange(60)
    booster, known = trees.fit(X, y, stop)
    assert known.tolist() == [0, 1, 2]
    assert trees.rounds == [booster.best_iteration]
    assert booster.best_iteration < ROUNDS
    whole, _ = trees.fit(X, y, None)
    assert whole.current_iteration() == int(MORE_ROWS * trees.rounds[0])


def test_trees_do_not_depend_on_the_number_of_threads() -> None:
    X, y = rows()
    models = [Trees(3, [], jobs=jobs).fit(X, y, np.arange(60))[0] for jobs in (1, 2)]
    one, two = (model.predict(X) for model in models)
    np.testing.assert_array_equal(one, two)


def test_the_text_of_a_model_is_the_model() -> None:
    X, y = rows()
    booster, _ = Trees(3, []).fit(X, y, np.arange(60))
    again = lightgbm.Booster(model_str=booster.model_to_string())
    np.testing.assert_array_equal(again.predict(X), booster.predict(X))


def test_classes_that_a_model_does_not_know() -> None:
    X, y = rows(90)
    trees = Trees(5, [])
    model = trees.fit(X, np.where(y == 2, 4, 1), np.arange(9))
    proba = trees.answers(model, X)
    assert proba.shape == (90, 5)
    assert (proba[:, [0, 2, 3]] == 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    single = trees.answers(trees.fit(X, np.full(90, 3), np.arange(9)), X)
    assert (single == np.eye(5)[3]).all()
    assert scattered(np.ones((1, 1)), np.array([1]), 2).tolist() == [[0.0, 1.0]]


def test_numbers_have_their_own_scale() -> None:
    X = rows()[0]
    target = 1e9 + X[:, 0]
    trees = Trees(None, [])
    found = trees.answers(trees.fit(X, target, np.arange(60)), X)
    assert np.corrcoef(found - 1e9, X[:, 0])[0, 1] == pytest.approx(1.0, abs=0.01)
