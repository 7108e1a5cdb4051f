"""What the network sees is what the package would have shown it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from small_tables import frame
from tabicl._sklearn.preprocessing import EnsembleGenerator, TransformToNumerical

from crumb.pfn.preprocess import Member, Rowset, Scale, encode, members, standardised

pytestmark = pytest.mark.filterwarnings(
    "ignore:The following categorical columns",
    "ignore:n_quantiles",
    "ignore:Mean of empty slice",  # below a threshold of 1, all values can be outliers
    "ignore:Degrees of freedom",
    "ignore:overflow encountered",
)


def ensemble(classification: bool = True, n_estimators: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "classification": classification,
        "n_estimators": n_estimators,
        "norm_methods": ("none", "power"),
        "feat_shuffle_method": "latin",
        "class_shuffle_method": "shift",
        "outlier_threshold": 4.0,
        "random_state": 0,
        **more,
    }


def awkward(rows: int, seed: int) -> np.ndarray:
    """Heavy tails, holes, constants, large offsets and scales, few values, one outlier."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            rng.normal(size=rows),
            rng.standard_cauchy(rows),
            1e9 + rng.normal(size=rows),
            1e-9 * rng.normal(size=rows),
            1e30 * rng.normal(size=rows),
            rng.integers(0, 2, rows),
            np.full(rows, 0.1),
            np.where(np.arange(rows) == rows // 2, 1e6, 0.0),
            np.exp(3 * rng.normal(size=rows)),
        ]
    )
    X[rng.random(X.shape) < 0.05] = np.nan
    return X


def packages_numbers(
    X: np.ndarray | pd.DataFrame, queries: np.ndarray | pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    encoder = TransformToNumerical().fit(X)
    return encoder.transform(X), encoder.transform(queries)


@pytest.mark.parametrize("threshold", [4.0, 0.5, 1.5])
@pytest.mark.parametrize("rows", [1, 2, 3, 40, 700])
def test_standardised_equals_the_package(rows: int, threshold: float) -> None:
    X, queries = awkward(rows, 1), awkward(25, 2)
    encoded = encode(X, queries)
    assert encoded is not None
    theirs = EnsembleGenerator(**ensemble(norm_methods=("none",), outlier_threshold=threshold))
    numbers, asked = packages_numbers(X, queries)
    (expected, _), *_ = theirs.fit(numbers, np.arange(rows) % 2).transform(asked).values()
    stack = torch.from_numpy(np.concatenate(encoded))[None]
    ours = standardised(stack, rows, torch.tensor([rows]), threshold)
    assert ours.dtype == torch.float32
    np.testing.assert_allclose(ours[0], expected[0].astype(np.float32), rtol=1e-5, atol=1e-5)


def test_contexts_of_different_sizes_are_standardised_alone() -> None:
    sizes, most, asked = (60, 1, 25, 2), 60, 5
    X = np.zeros((len(sizes), most + asked, 4))
    expected = []
    for i, size in enumerate(sizes):
        X[i, :size], X[i, most:] = (
            awkward(size, i)[:, [0, 1, 2, 8]],
            awkward(asked, 9)[:, [0, 1, 2, 8]],
        )
        np.nan_to_num(X, copy=False)
        alone = torch.from_numpy(np.concatenate([X[i, :size], X[i, most:]]))[None]
        expected.append(standardised(alone, size, torch.tensor([size]), 4.0)[0])
    together = standardised(torch.from_numpy(X), most, torch.tensor(sizes), 4.0)
    for i, size in enumerate(sizes):
        torch.testing.assert_close(together[i, :size], expected[i][:size])
        torch.testing.assert_close(together[i, most:], expected[i][size:])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_encoded_as_by_the_package(dtype: type, order: str) -> None:
    X, queries = awkward(80, 3), awkward(20, 4)
    X[:, 0] = np.nan
    queries[:, 5] = np.nan
    if dtype == np.int64:
        X, queries = (np.nan_to_num(rows, nan=3.0).clip(-1e6, 1e6) for rows in (X, queries))
    X, queries = (np.asarray(rows.astype(dtype), order=order) for rows in (X, queries))
    compare_encoding(X, queries)


def test_frames_are_encoded_as_by_the_package() -> None:
    X, queries = frame(60, 1), frame(15, 2)
    X["always"], queries["always"] = "same", "other"
    compare_encoding(X, queries)


def compare_encoding(X: np.ndarray | pd.DataFrame, queries: np.ndarray | pd.DataFrame) -> None:
    encoded = encode(X, queries)
    numbers, asked = packages_numbers(X, queries)
    theirs = EnsembleGenerator(**ensemble(norm_methods=("none",)))
    theirs.fit(numbers, np.arange(len(X)) % 2)
    assert encoded is not None
    assert encoded.context.dtype == encoded.queries.dtype == np.float64
    np.testing.assert_array_equal(encoded.context, theirs.X_)
    np.testing.assert_array_equal(encoded.queries, theirs.unique_filter_.transform(asked))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 7.0])
@pytest.mark.parametrize("rows", [3, 7, 50, 1000])
def test_a_constant_with_holes_is_constant_when_the_package_thinks_so(
    value: float, rows: int
) -> None:
    """The mean of equal numbers can be another number, which then fills the holes."""
    X = np.random.default_rng(0).normal(size=(rows, 3))
    X[:, 1] = value
    X[::3, 1] = np.nan
    compare_encoding(X, X[:2])


def test_nothing_varies() -> None:
    compare_encoding(np.ones((5, 3)), np.zeros((2, 3)))
    compare_encoding(np.ones((1, 3)), np.zeros((2, 3)))


def test_what_the_package_refuses() -> None:
    X = np.random.default_rng(0).normal(size=(5, 3))
    assert encode(np.where(X[0, 0] == X, np.inf, X), X) is None
    assert encode(X, np.where(X[0, 0] == X, -np.inf, X)) is None
    assert (
        encode(pd.DataFrame({"day": pd.to_datetime(["2020-01-01"] * 2)}), pd.DataFrame({"day": []}))
        is None
    )


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize("n_estimators", [1, 2, 4, 8, 32])
def test_members_are_those_of_the_package(n_estimators: int, classification: bool) -> None:
    rng = np.random.default_rng(0)
    for columns, classes, shuffle, seed in product(
        (1, 2, 5, 12), (1, 2, 4), ("latin", "random", "shift"), (0, 7)
    ):
        one = ensemble(
            classification,
            n_estimators,
            norm_methods=("none", "robust"),  # shuffles do not depend on it; it is quick to fit
            feat_shuffle_method=shuffle,
            class_shuffle_method=shuffle,
            random_state=seed,
        )
        X, y = rng.normal(size=(20, columns)), np.arange(20) % classes
        theirs = EnsembleGenerator(**one).fit(X, y)
        expected = [
            (norm, list(columns), classes and list(classes))
            for norm, shuffles in theirs.ensemble_configs_.items()
            for columns, classes in shuffles
        ]
        ours = members(columns, classes, **one)
        assert [as_lists(member) for member in ours] == expected


def as_lists(member: Member) -> tuple[str, list[int], list[int] | None]:
    return member.norm, member.columns.tolist(), member.classes.tolist() or None


def test_one_member_is_not_normalised_further() -> None:
    """What is done in a batch is what one member gets."""
    assert as_lists(members(3, 2, **ensemble())[0]) == ("none", [0, 1, 2], [0, 1])


@pytest.mark.parametrize("norm", ["power", "quantile", "quantile_rtdl", "robust"])
def test_other_normalisations_are_the_packages(norm: str) -> None:
    rng = np.random.default_rng(0)
    rows = Rowset(rng.normal(size=(60, 3)) ** 3, rng.normal(size=(9, 3)) ** 3)
    one = ensemble(norm_methods=(norm,))
    (expected, _), *_ = (
        EnsembleGenerator(**one)
        .fit(rows.context, np.arange(60) % 2)
        .transform(rows.queries)
        .values()
    )
    ours = np.concatenate(rows.normalised(norm, one))
    np.testing.assert_allclose(
        ours, expected[0], atol=1e-6
    )  # the order of sums moves the optimum of a power a little


@pytest.mark.parametrize(
    "y",
    [
        np.random.default_rng(0).normal(size=50),
        1e7 + 100 * np.random.default_rng(1).normal(size=50),
        1e-20 * np.random.default_rng(1).normal(size=50),
        np.full(7, 0.1),
        np.full(2_001, 1e9 + 1e-3),
    ],
)
def test_targets_are_scaled_as_by_the_package(y: np.ndarray) -> None:
    theirs = StandardScaler()
    expected = theirs.fit_transform(y.astype(np.float32).reshape(-1, 1))
    scale = Scale.of(y)
    np.testing.assert_allclose(scale.scaled(y), expected[:, 0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        scale.unscaled(expected[:, 0]), theirs.inverse_transform(expected)[:, 0], rtol=1e-6
    )
    assert scale.scaled(y).dtype == scale.unscaled(expected).dtype == np.float32
