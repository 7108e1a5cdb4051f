"""space.py: the selection space, and the weights of its columns."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scale_tables import mixed, write
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from crumb import CrumbClassifier, CrumbRegressor, load, select_contexts
from crumb.errors import InvalidInput
from crumb.options import Options
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import FilePool
from crumb.scale.source import count_rows, open_source
from crumb.table import space as space_module
from crumb.table.cells import MISSING
from crumb.table.encoder import TableEncoder, texts, to_rows
from crumb.table.space import (
    FOREST,
    LEAST_SHARE,
    MAX_CATEGORIES,
    MAX_INDICATORS,
    Space,
    column_weights,
    learn_space,
    relevance_rows,
)


def fitted(
    pool, features=None, categorical_features=None
) -> tuple[Space, TableEncoder, np.ndarray]:
    encoder = TableEncoder(categorical_features)
    rows = encoder.fit_transform(to_rows(pool))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space, points = learn_space(features, rows, encoder, None, None)
    return space, encoder, points


def transform(space: Space, encoder: TableEncoder, rows) -> np.ndarray:
    return space.transform(encoder.transform(to_rows(rows)))


def by_sklearn(encoder: TableEncoder) -> ColumnTransformer:
    """The default space, made of scikit-learn's parts."""
    each = max(2, min(MAX_CATEGORIES, MAX_INDICATORS // max(1, len(encoder.categorical_indices))))
    number = make_pipeline(
        StandardScaler(),
        SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True),
    )
    category = make_pipeline(
        FunctionTransformer(
            lambda frame: np.column_stack([texts(frame[name], MISSING) for name in frame])
        ),
        OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=each, sparse_output=False
        ),
    )
    return ColumnTransformer(
        [
            ("number", number, encoder.numeric_indices),
            ("category", category, encoder.categorical_indices),
        ]
    )


@pytest.mark.parametrize("rows", [42, 200])
@pytest.mark.parametrize("seed", range(5))
def test_the_default_space_is_that_of_scikit_learn(rows: int, seed: int) -> None:
    pool, queries = (mixed(rows, s).drop(columns="target") for s in (seed, seed + 100))
    space, encoder, points = fitted(pool)
    reference = by_sklearn(encoder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(
            points, reference.fit_transform(encoder.transform(pool)), atol=1e-9
        )
        expected = reference.transform(encoder.transform(queries))
    np.testing.assert_allclose(transform(space, encoder, queries), expected, atol=1e-9)


def test_numbers_are_standardised_with_the_pool() -> None:
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(3, 5, size=(50, 4)), rng.normal(size=(7, 4))
    space, encoder, points = fitted(pool)
    np.testing.assert_allclose(points, (pool - pool.mean(0)) / pool.std(0), atol=1e-12)
    expected = (queries - pool.mean(0)) / pool.std(0)
    np.testing.assert_allclose(transform(space, encoder, queries), expected, atol=1e-12)


def test_missing_constant_and_empty_columns_are_zero() -> None:
    pool = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, np.nan], [np.nan, 5.0, np.nan]])
    space, encoder, points = fitted(pool)
    np.testing.assert_allclose(points, [[-1, 0, 0], [1, 0, 0], [0, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(transform(space, encoder, np.array([[np.nan, 5.0, np.nan]])), 0.0)


def test_two_categories_are_root_two_apart() -> None:
    space, encoder, points = fitted(pd.DataFrame({"c": ["a", "b", None, "a"]}))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.testing.assert_allclose(distance[0], [0, np.sqrt(2), np.sqrt(2), 0])
    unseen = transform(space, encoder, pd.DataFrame({"c": ["zzz"]}))
    assert np.isfinite(unseen).all()


def test_integer_codes_can_be_declared_categories() -> None:
    codes = np.array([[0.0], [1.0], [50.0]])
    _, _, numbers = fitted(codes)
    _, _, categories = fitted(codes, categorical_features=[0])
    far, near = (
        np.linalg.norm(z[0] - z[2]) / np.linalg.norm(z[0] - z[1]) for z in (numbers, categories)
    )
    assert far == pytest.approx(50)
    assert near == pytest.approx(1)


def test_the_width_stays_bounded() -> None:
    rng = np.random.default_rng(0)
    many_values = pd.DataFrame({"id": [f"id{i}" for i in range(2_000)]})
    assert fitted(many_values)[2].shape[1] <= MAX_CATEGORIES
    many_columns = pd.DataFrame(
        {f"c{j}": rng.choice(list("abcdefghijklmnop"), 200) for j in range(100)}
    )
    assert fitted(many_columns)[2].shape[1] <= MAX_INDICATORS


def test_mixed_types_in_one_column_are_categories() -> None:
    points = fitted(pd.DataFrame({"c": ["1", 2, 2.5, None]}))[2]
    assert len(np.unique(points, axis=0)) == 4


def test_ones_own_transformer_replaces_it() -> None:
    pool = np.random.default_rng(0).normal(size=(30, 5))
    own = PCA(2)
    space, encoder, points = fitted(pool, features=own)
    np.testing.assert_allclose(points, PCA(2).fit_transform(pool), atol=1e-12)
    assert not hasattr(own, "components_"), "the user's object must stay unfitted"
    assert transform(space, encoder, pool[:3]).shape == (3, 2)
    with pytest.raises(InvalidInput, match="features="):
        fitted(pool, features=FunctionTransformer(lambda X: X * np.nan))


def test_a_space_far_from_the_origin_is_centred() -> None:
    """Distances in floating point are exact only near the origin."""
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(200, 3)), rng.normal(size=(30, 3))
    far = FunctionTransformer(lambda X: X + 1e8)
    near = select_contexts(
        pool, queries, features=FunctionTransformer(), context_size=20, bandwidth=1.0, n_clusters=2
    )
    moved = select_contexts(
        pool, queries, features=far, context_size=20, bandwidth=1.0, n_clusters=2
    )
    np.testing.assert_allclose(near.final_mmd2, moved.final_mmd2, atol=1e-5)
    assert moved.final_mmd2.min() > -1e-9


def test_a_transformer_that_loses_rows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one row for each row"):
        fitted(np.zeros((9, 2)), features=FunctionTransformer(lambda X: X[:5]))


def test_very_large_spaces_are_kept_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_module, "DOUBLE_CELLS", 10)
    space, encoder, points = fitted(np.random.default_rng(0).normal(size=(6, 2)))
    assert points.dtype == np.float32
    assert transform(space, encoder, np.zeros((1, 2))).dtype == np.float32


FEW = {"n_clusters": 2, "context_size": 50, "device": "cpu"}


@pytest.fixture(autouse=True)
def small_pools_count(monkeypatch):
    monkeypatch.setattr(space_module, "LEAST_POOL", 100)


def encoded(table) -> tuple[TableEncoder, pd.DataFrame | np.ndarray]:
    encoder = TableEncoder()
    return encoder, encoder.fit_transform(to_rows(table))


def weights(table, y, classify=True, jobs=1) -> np.ndarray:
    encoder, rows = encoded(table)
    return column_weights(rows, encoder, np.asarray(y), classify, 0, jobs)


def needles(rows=600, columns=12, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """A table whose target depends on two columns."""
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return X, (X[:, 3] * X[:, 7] > 0).astype(int)


def test_weights_are_the_roots_of_the_shares_of_a_forest() -> None:
    X, y = needles()
    forest = RandomForestClassifier(**FOREST, random_state=0).fit(X - X.mean(axis=0), y)
    shares = forest.feature_importances_
    expected = np.sqrt(np.maximum(shares / shares.mean(), LEAST_SHARE))
    np.testing.assert_allclose(weights(X, y), expected)
    assert set(np.argsort(expected)[-2:]) == {3, 7}
    np.testing.assert_array_equal(weights(X, y), weights(X, y, jobs=2))


def test_of_very_many_classes_the_rarest_are_one() -> None:
    """With a class for each of 3,000 rows, ``fit`` took 14 s."""
    X, places = np.random.default_rng(0).normal(size=(1_000, 3)), np.arange(1_000)
    np.testing.assert_allclose(weights(X, places), weights(X, np.minimum(places, 255)))
    frequent = np.where(places % 3, X[:, 1] > 0, places)
    assert weights(X, frequent).argmax() == 1


def test_dates_text_and_holes_count_as_well() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "noise": rng.normal(size=400),
            # Nanoseconds since 1970 are the same number in float32 for minutes on end.
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, 400), "s"),
            "word": rng.choice(["a", "b", None], 400),
            "empty": np.nan,
        }
    )
    second = frame["when"].dt.second + 60 * frame["when"].dt.minute
    found = weights(frame, second > 45)
    assert found.argmax() == 1
    assert weights(frame, frame["word"].fillna("none")).argmax() == 2


@pytest.mark.parametrize("scale", [1.0, 1e300])
def test_a_few_extreme_targets_do_not_decide(scale) -> None:
    X, _ = needles()
    y = scale * (X[:, 3] + np.where(np.arange(len(X)) % 100 == 0, 50.0 * X[:, 5], 0))
    assert weights(X, y, classify=False).argmax() == 3


def test_a_target_that_nothing_tells_leaves_the_columns_alike() -> None:
    X, _ = needles()
    np.testing.assert_array_equal(weights(X, np.zeros(len(X)), classify=False), np.ones(12))


@pytest.mark.parametrize("own", [[1.0, 2.0, 0.5, 4.0], "learned"])
def test_points_are_the_plain_ones_times_the_weights(own) -> None:
    frame = mixed(300, 1)
    y, table = frame["target"], frame.drop(columns="target")
    encoder, rows = encoded(table)
    given = weights(table, y) if own == "learned" else np.resize(own, table.shape[1])
    plain, points = learn_space(None, rows, encoder, None, None)
    _, times = learn_space(given, rows, encoder, None, None)
    heights = [
        np.full(one.width, given[j])
        for j, one in zip(plain.categories, plain.indicators, strict=True)
    ]
    factor = np.concatenate([given[plain.numbers], *heights])
    np.testing.assert_allclose(times, points * factor, atol=1e-12)
    estimator = CrumbClassifier(model=LogisticRegression(), features=list(given), **FEW)
    estimator.fit(table, y)
    for i in (0, 7):  # one row by itself
        point = estimator.encode_row(table.iloc[i].to_dict())[1]
        np.testing.assert_allclose(point[0], times[i], atol=1e-12)


def test_files_get_the_weights_of_the_table_in_memory(tmp_path) -> None:
    frame = mixed(500, 3).drop(columns="many")  # files know mean targets of frequent words only
    source = count_rows(
        open_source(write(tmp_path / "t", frame, files=3), "target"), LocalEngine(1)
    )
    pool = FilePool(source, LocalEngine(1), Options.of(), classify=True, features="auto")
    memory = CrumbClassifier(model=LogisticRegression(), **FEW).fit(frame, "target").pool_
    np.testing.assert_allclose(pool.space.weights, memory.space.weights)
    np.testing.assert_allclose(pool.sample_points, memory.points[pool.sample.ids], atol=1e-9)


def test_contexts_are_alike_in_what_matters() -> None:
    X, y = needles(2_000, 30)
    apart = {}
    for features in (None, "auto"):
        clf = CrumbClassifier(
            model=LogisticRegression(), features=features, **FEW | {"n_clusters": 20}
        )
        plan = clf.fit(X[100:], y[100:]).plan(X[:100])
        pairs = zip(plan.labels, X[:100], strict=True)
        near = [np.abs(X[100:][plan.contexts[k]] - x)[:, [3, 7]].mean() for k, x in pairs]
        apart[features] = np.mean(near)
    assert apart["auto"] < 0.8 * apart[None]


def test_a_small_pool_has_plain_columns() -> None:
    X, y = needles(100)
    plain, auto = (
        CrumbClassifier(model=LogisticRegression(), features=features, **FEW).fit(X, y).pool_
        for features in (None, "auto")
    )
    assert auto.space.weights is None
    assert auto.fingerprint == plain.fingerprint
    assert select_contexts(X, X[:9], features="auto", n_clusters=1, context_size=10).sizes == 10


def test_few_rows_of_a_large_or_wide_table_are_looked_at() -> None:
    assert len(relevance_rows(100, 5, 0)) == 0
    assert len(relevance_rows(10**6, 5, 0)) == 20_000
    assert len(relevance_rows(10**6, 1_000, 0)) == 2_000
    rows = relevance_rows(30_000, 5, 1)
    assert (np.diff(rows) > 0).all()
    assert not np.array_equal(rows, relevance_rows(30_000, 5, 2))


def test_a_saved_estimator_keeps_its_weights(tmp_path, monkeypatch) -> None:
    X, y = needles(300)
    clf = CrumbClassifier(n_clusters=2, context_size=50, device="cpu").fit(X, y)
    clf.save(tmp_path / "clf.crumb")
    # Another version of scikit-learn may grow other trees.
    monkeypatch.setattr("crumb.table.space.column_weights", None)
    again = load(tmp_path / "clf.crumb", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(X[:20]), clf.predict_proba(X[:20]))
    assert again.features == "auto"
    own = CrumbClassifier(features=np.arange(1.0, 13.0), **FEW).fit(X, y)
    own.save(tmp_path / "own.crumb")
    again = load(tmp_path / "own.crumb", device="cpu")
    np.testing.assert_array_equal(again.pool_.space.weights, np.arange(1.0, 13.0))


@pytest.mark.parametrize("bad", [[1.0, 2.0], [0.0] * 12, [np.nan] * 12, ["a"] * 12, [[1.0]]])
def test_weights_that_do_not_fit_are_refused(bad) -> None:
    X, y = needles()
    with pytest.raises(InvalidInput, match="one for each of the 12 columns"):
        CrumbRegressor(model=LinearRegression(), features=bad, **FEW).fit(X, y)
