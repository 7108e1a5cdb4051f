"""trees.py: boosted trees on encoded rows."""

from __future__ import annotations

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification

from crumb.trees import CURVES, KINDS, LITTLE, MORE_ROWS, ROUNDS, WIDE, Trees, scattered


def rows(count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(count, 6, n_informative=4, n_classes=3, flip_y=0.2, random_state=0)


def ready(n_classes: int | None, X: np.ndarray, **settings: int) -> Trees:
    trees = Trees(n_classes, [], **settings)
    np.testing.assert_array_equal(trees.table(X), X)
    return trees


def test_categories_are_the_places_of_their_words() -> None:
    trees = Trees(2, [1])
    first = pd.DataFrame({"x": [1.5, np.nan, 3.0], "c": ["b", None, "a"]})
    np.testing.assert_array_equal(trees.table(first), [[1.5, 1], [np.nan, np.nan], [3.0, 0]])
    later = pd.DataFrame({"x": [0.0, 0.0], "c": ["new", "b"]})
    np.testing.assert_array_equal(trees.table(later), [[0.0, np.nan], [0.0, 1]])


def test_training_stops_early_and_the_whole_pool_takes_as_many_rounds() -> None:
    X, y = rows()
    trees = ready(3, X)
    stop = np.arange(60)
    boosters, known, *_ = trees.fit(X, y, stop)
    assert known.tolist() == [0, 1, 2]
    assert trees.rounds == [{kind: one.best_iteration for kind, one in boosters.items()}]
    whole, *_ = trees.fit(X, y, None)
    assert list(boosters) == list(whole) == list(range(len(KINDS)))
    for kind, booster in boosters.items():
        assert booster.best_iteration < ROUNDS
        assert whole[kind].current_iteration() == int(MORE_ROWS * booster.best_iteration)
        assert booster.params["num_leaves"] == KINDS[kind]["num_leaves"]


def test_the_kind_that_explains_more_has_the_larger_share() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 2))
    fine = (X[:, 0] * 64 // 1 + X[:, 1] * 64 // 1) % 2  # a chessboard: needs many leaves
    noise = (X[:, 0] + rng.normal(size=3000) > 0.5).astype(float)
    shares, smooth = {}, {}
    for name, y in (("fine", fine), ("noise", noise)):
        trees = ready(None, X)
        known = trees.answers(trees.fit(X[:2000], y[:2000], np.arange(200)), X[2000:])
        trees.weigh(y[2000:], known)
        expected = sum(share * one for share, one in zip(trees.shares, known, strict=True))
        np.testing.assert_allclose(trees.joined(known), expected)
        shares[name], smooth[name] = trees.shares[1], trees.shares[CURVES]
        assert sum(trees.shares) == pytest.approx(1)
    assert shares["noise"] < 0.3
    assert shares["noise"] < shares["fine"]
    assert smooth["noise"] > 0.2  # a straight line: much, and half of it


def test_a_kind_with_a_small_share_is_left_out_from_then_on() -> None:
    rng = np.random.default_rng(0)
    X, y = rows(2_000)
    trees = ready(3, X)
    model = trees.fit(X, y, np.arange(200))
    good = 0.8 * np.eye(3)[y] + 0.2 / 3
    bad = rng.dirichlet(np.ones(3), size=len(y))
    trees.weigh(y, np.stack([good, bad, bad, bad]))
    assert trees.shares == (1.0, 0.0, 0.0, 0.0)
    boosters, _, _, curves = trees.fit(X, y, np.arange(200))
    assert list(boosters) == [0]
    assert curves.size == 0
    assert list(trees.fit(X, y, None)[0]) == [0]
    np.testing.assert_array_equal(trees.answers(model, X)[1:], 0.0)
    np.testing.assert_allclose(trees.joined(trees.answers(model, X)), trees.answers(model, X)[0])
    trees.weigh(y, np.stack([good, good, good, good]))  # what is left out stays out
    assert trees.shares == (1.0, 0.0, 0.0, 0.0)


def test_kinds_that_are_alike_share_alike() -> None:
    X, y = rows(2_000)
    trees = ready(3, X)
    trees.weigh(y, np.stack([0.8 * np.eye(3)[y] + 0.2 / 3] * 4))
    assert min(trees.shares) > LITTLE
    assert trees.shares[CURVES] == pytest.approx(0.25)  # half of a half


def test_trees_do_not_depend_on_the_number_of_threads() -> None:
    X, y = rows()
    trees = ready(3, X)
    one, two = (
        trees.answers(ready(3, X, jobs=jobs).fit(X, y, np.arange(60)), X) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_the_text_of_a_model_is_the_model() -> None:
    X, y = rows()
    booster = ready(3, X).fit(X, y, np.arange(60))[0][0]
    again = lightgbm.Booster(model_str=booster.model_to_string())
    np.testing.assert_array_equal(again.predict(X), booster.predict(X))


def test_classes_that_a_model_does_not_know() -> None:
    X, y = rows(90)
    trees = ready(5, X)
    model = trees.fit(X, np.where(y == 2, 4, 1), np.arange(9))
    proba = trees.answers(model, X)[1]
    assert proba.shape == (90, 5)
    assert (proba[:, [0, 2, 3]] == 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    single = trees.answers(trees.fit(X, np.full(90, 3), np.arange(9)), X)
    assert (single == np.eye(5)[3]).all()
    assert scattered(np.ones((1, 1)), np.array([1]), 2).tolist() == [[0.0, 1.0]]


def test_numbers_have_their_own_scale() -> None:
    X = rows()[0]
    target = 1e9 + X[:, 0]
    trees = ready(None, X)
    found = trees.answers(trees.fit(X, target, np.arange(60)), X)
    assert np.corrcoef(found[0] - 1e9, X[:, 0])[0, 1] == pytest.approx(1.0, abs=0.01)


def test_many_classes_have_fewer_rounds(monkeypatch) -> None:
    monkeypatch.setattr("crumb.trees.MOST_TREES", 30)
    X, y = rows()
    trees = ready(3, X)
    boosters, *_ = trees.fit(X, y, np.arange(60))
    assert {one.num_trees() for one in boosters.values()} == {30}  # ten rounds of three trees


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_columns_of_many_words_are_mean_targets(n_classes: int | None) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(WIDE + 20, size=4_000)
    effect = rng.normal(size=WIDE + 20)
    value = effect[codes] + 0.3 * rng.normal(size=len(codes))
    y = value if n_classes is None else np.digitize(value, [-0.5, 0.5][: n_classes - 1])
    table = pd.DataFrame({"x": rng.normal(size=len(codes)), "word": [f"w{c:03d}" for c in codes]})
    trees = Trees(n_classes, [1])
    numbers = trees.table(table)
    boosters, _, means, _ = trees.fit(numbers, y, np.arange(400))
    assert means.shape == (1, WIDE + 21, 3 if n_classes == 3 else 1)
    assert boosters[0].num_feature() == (4 if n_classes == 3 else 2)
    wanted = np.stack([y == c for c in range(3)], 1) if n_classes == 3 else y[:, None]
    for code in (0, 7, 33):  # shrunk towards the mean of all, but little
        mine = wanted[400:][codes[400:] == code].mean(axis=0)
        np.testing.assert_allclose(means[0, code], mine, atol=0.1 * np.std(y) + 0.05)
    new = pd.DataFrame({"x": [0.0, 0.0], "word": ["never seen", None]})
    shares = wanted[400:].mean(axis=0)
    np.testing.assert_allclose(means[0, -1], shares, atol=0.05 * np.std(y))
    found = trees.answers((boosters, *trees.fit(numbers, y, np.arange(400))[1:]), trees.table(new))
    assert np.isfinite(found).all()


def test_a_word_that_says_all_is_no_leak() -> None:
    """A column with a word for each row tells nothing: means are those of other rows."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    table = pd.DataFrame({"x": rng.normal(size=600), "id": [f"i{i}" for i in range(600)]})
    trees = Trees(2, [1])
    numbers = trees.table(table)
    model = trees.fit(numbers[:400], y[:400], np.arange(40))
    proba = trees.answers(model, numbers[400:])
    assert -np.log(proba[:, np.arange(200), y[400:]]).mean() < np.log(2) + 0.05


@pytest.mark.parametrize(
    ("n_classes", "rare", "rows", "columns"),
    [(3, 1, 300, 1), (4, 1, 300, 3), (2, 20, 300, 1), (2, 0, 300, 1), (None, 0, 4, 0)],
)
def test_mean_targets_where_rows_of_a_class_only_end_the_training(
    n_classes: int | None, rare: int, rows: int, columns: int
) -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in np.arange(300) % (WIDE + 20)]
    trees = Trees(n_classes, [1])
    table = trees.table(pd.DataFrame({"x": rng.normal(size=300), "word": words}))[:rows]
    y = rng.normal(size=rows)
    if n_classes:
        y = rng.integers(max(1, n_classes - 1) if rare else n_classes, size=rows)
        y[:rare] = n_classes - 1  # these rows end the training
    model = trees.fit(table, y, np.arange(30) if n_classes else None)
    assert (model[2].shape[-1] if columns else len(model[2])) == columns
    assert np.isfinite(trees.answers(model, table)).all()
