"""space.py: the selection space."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scale_tables import mixed
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from crumb import select_contexts
from crumb.errors import InvalidInput
from crumb.table import space as space_module
from crumb.table.encoder import TableEncoder, texts
from crumb.table.intake import to_rows
from crumb.table.space import MAX_CATEGORIES, MAX_INDICATORS, MISSING, Space, learn_space


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
