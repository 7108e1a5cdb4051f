"""What the network sees is what the package would have shown it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from small_tables import frame
from tabicl._sklearn.preprocessing import EnsembleGenerator, TransformToNumerical

from crumb.pfn.base import ContextTask, TargetScale
from crumb.pfn.contexts import Numbers, Slice
from crumb.pfn.preprocess import (
    NORMS,
    Columns,
    Member,
    Rowset,
    columns_of,
    encoded,
    members,
    powered,
    sizes_of,
)
from crumb.table.encoder import Rows, TableEncoder, take

CPU = torch.device("cpu")
Column = Callable[[int, bool], pd.Series]  # rows, and whether they are queries

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


def compare_encoding(
    pool: Rows,
    queries: Rows,
    contexts: Sequence[np.ndarray] | None = None,
    asked: Sequence[np.ndarray] | None = None,
    threshold: float = 4.0,
    norm: str = "none",
) -> None:
    """Contexts of a pool in one stack against the package, one by one: all rows by default."""
    contexts = [np.arange(len(pool))] if contexts is None else contexts
    asked = [np.arange(len(queries))] * len(contexts) if asked is None else asked
    table = Numbers(pool)
    tasks = [
        (Slice(table, rows), Slice(Numbers(queries, table), some))
        for rows, some in zip(contexts, asked, strict=True)
    ]
    found = columns_of([context for context, _ in tasks], CPU)
    widths = [-1 if one is None else one.kept.size for one in found]
    for width in set(widths):
        some = [i for i, other in enumerate(widths) if other == width]
        compare_stack([tasks[i] for i in some], [found[i] for i in some], threshold, norm)


def compare_stack(
    tasks: list[tuple[Slice, Slice]],
    columns: list[Columns | None],
    threshold: float,
    norm: str = "none",
) -> None:
    kept = [one for one in columns if one is not None]
    assert len(kept) == len(tasks), "the package would not refuse them"
    most, asked = (max(map(len, slices)) for slices in zip(*tasks, strict=True))
    contexts, queries = ([task[i] for task in tasks] for i in (0, 1))
    X = encoded(contexts, queries, kept, most, asked, CPU)
    Z = NORMS[norm](X.clone(), most, sizes_of(contexts, CPU), threshold)
    assert X.dtype == torch.float64
    for i, ((context, some), one) in enumerate(zip(tasks, kept, strict=True)):
        rows = np.r_[: len(context), most : most + len(some)]
        numbers, theirs, expected = packages_own(context.rows(), some.rows(), threshold, norm)
        np.testing.assert_array_equal(
            one.kept, np.flatnonzero(theirs.unique_filter_.features_to_keep_)
        )
        categories = int((one.kept < context.table.shape[1]).sum())
        ours, numbers = X[i, rows].numpy(), numbers[:, one.kept]
        np.testing.assert_array_equal(ours[:, :categories], numbers[:, :categories])
        np.testing.assert_allclose(ours, numbers, rtol=1e-12)
        if one.stacked(norm):
            np.testing.assert_allclose(Z[i, rows], expected, rtol=1e-6, atol=1e-6)


def packages_own(
    X: Rows, queries: Rows, threshold: float, norm: str
) -> tuple[np.ndarray, EnsembleGenerator, np.ndarray]:
    """Numbers of the context and the queries, the fitted ensemble, and what the network sees."""
    encoder = TransformToNumerical().fit(X)
    numbers, asked = encoder.transform(X), encoder.transform(queries)
    theirs = EnsembleGenerator(**ensemble(norm_methods=(norm,), outlier_threshold=threshold))
    theirs.fit(numbers.astype(np.float64), np.arange(len(X)) % 2)
    (seen, _), *_ = theirs.transform(asked.astype(np.float64)).values()
    return np.concatenate([numbers, asked]), theirs, seen[0]


@pytest.mark.parametrize("threshold", [4.0, 0.5, 1.5])
@pytest.mark.parametrize("rows", [1, 2, 3, 40, 700])
def test_standardised_equals_the_package(rows: int, threshold: float) -> None:
    compare_encoding(awkward(rows, 1), awkward(25, 2), threshold=threshold)


ODD: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "far from zero": lambda rng, n: 1e6 + rng.normal(size=n),
    "narrow": lambda rng, n: 1e-5 * rng.normal(size=n),
    "huge": lambda rng, n: 1e30 * rng.normal(size=n),
    "skewed": lambda rng, n: np.exp(3 * rng.normal(size=n)),
    "skewed to the left": lambda rng, n: -np.exp(2 * rng.normal(size=n)),
    "no mean": lambda rng, n: rng.pareto(0.3, n),
    "two values": lambda rng, n: rng.integers(0, 2, n),
    "a rare value": lambda rng, n: rng.random(n) < 0.05,
    "one far outlier": lambda rng, n: np.where(np.arange(n) == n // 2, 1e6, 0.0),
    "counts": lambda rng, n: rng.poisson(1.5, n),
    "mostly zero": lambda rng, n: rng.exponential(size=n) * (rng.random(n) < 0.1),
    "two lumps": lambda rng, n: rng.integers(0, 2, n) + 0.01 * rng.normal(size=n),
    "at both ends": lambda rng, n: rng.beta(0.1, 0.1, n),
}


def odd(rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([make(rng, rows) for make in ODD.values()]).astype(float)


@pytest.mark.parametrize("threshold", [4.0, 1.5])
@pytest.mark.parametrize("rows", [2, 3, 5, 40, 700])
def test_powered_equals_the_package(rows: int, threshold: float) -> None:
    """Also where the likelihood is flat, or where it rises until the search has to stop."""
    X, queries = odd(rows, 1), odd(25, 2)
    queries[:3] *= 50
    (one,) = columns_of([Slice.whole(Numbers(X))], CPU)
    assert one is not None
    assert one.stacked("power")
    compare_encoding(X, queries, threshold=threshold, norm="power")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.integers(-3, 3), st.floats(-1e9, 1e9), st.floats(-1, 1)),
        min_size=3,
        max_size=30,
    ).filter(lambda cells: max(cells) > min(cells)),
    st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=2),
)
def test_any_column_is_powered_as_by_the_package(cells: list[float], asked: list[float]) -> None:
    X, queries = (np.array(some, dtype=float)[:, None] for some in (cells, asked))
    compare_encoding(X, queries, norm="power")


def test_what_hardly_varies_is_left_to_the_package() -> None:
    """Its queries can overflow, or the last bits of its mean count; and a constant has no power."""
    rng = np.random.default_rng(0)
    some = rng.normal(size=50)
    columns = [some, 1e-5 * some, 1e7 + some, 1e-7 * some, 1e12 + some, 1e-9 + 0 * some]
    found = columns_of([Slice.whole(Numbers(column[:, None])) for column in columns], CPU)
    assert [one is not None and one.stacked("power") for one in found] == [True] * 3 + [False] * 3
    (one,) = columns_of([Slice.whole(Numbers(np.column_stack(columns)[:, 2:4]))], CPU)
    assert one is not None
    assert [one.stacked(norm) for norm in ("none", "power", "robust")] == [True, False, False]


def test_constants_are_powered_as_by_the_package() -> None:
    """Though the package does that itself where contexts have them."""
    X, queries = np.column_stack([np.full(9, 0.1), odd(9, 1)[:, 0]]), np.array([[0.2, 0], [-7, 1]])
    expected = np.concatenate(Rowset(X, queries).normalised("power", ensemble()))
    ours = powered(torch.from_numpy(np.concatenate([X, queries]))[None], 9, torch.tensor([9]), 4.0)
    np.testing.assert_allclose(ours[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cells", [1, 700, 1 << 22])
def test_tables_and_columns_are_powered_in_parts(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, lengths = (
        torch.from_numpy(np.stack([odd(50, seed) for seed in range(4)])),
        torch.arange(9, 41, 10),
    )
    together = powered(X, 40, lengths, 4.0)
    monkeypatch.setattr("crumb.pfn.preprocess.POWER_CELLS", cells)
    torch.testing.assert_close(powered(X, 40, lengths, 4.0), together, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_contexts_of_different_sizes_are_normalised_alone(norm: str) -> None:
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
        expected.append(NORMS[norm](alone, size, torch.tensor([size]), 4.0)[0])
    together = NORMS[norm](torch.from_numpy(X), most, torch.tensor(sizes), 4.0)
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
    for norm in NORMS:
        compare_encoding(X, queries, norm=norm)
        compare_encoding(X, queries, SLICES, ASKED, norm=norm)


SIZES = (40, 25, 60, 7, 2, 1)
SLICES = [
    np.sort(np.random.default_rng(n).choice(60, n, replace=False)).astype(np.int64) for n in SIZES
]
ASKED = [np.random.default_rng(n).choice(15, 1 + n % 9) for n in SIZES]


def drawn(values: Any, dtype: Any = None, holes: float = 0.2, new: Any = None) -> Column:
    """A column that draws from values; ``new`` ones are for queries alone."""

    def make(rows: int, asked: bool) -> pd.Series:
        rng = np.random.default_rng(rows)
        among = list(values) + (list(new) if asked and new is not None else [])
        made = pd.Series([among[i] for i in rng.integers(0, len(among), rows)])
        missing = rng.random(rows) < holes
        made = made.where(~missing, None) if holes else made
        return made if dtype is None else made.astype(dtype)

    return make


NORMAL = np.random.default_rng(0).normal(size=30)
DAYS = pd.date_range("2020-01-01", periods=20)
KINDS: dict[str, Column] = {
    "float64": drawn(NORMAL, float),
    "float32": drawn(NORMAL, np.float32),
    "whole": drawn(range(9), np.int64, holes=0),
    "nullable whole": drawn(range(9), "Int64"),
    "bool": drawn([True, False], bool, holes=0),
    "nullable bool": drawn([True, False], "boolean"),
    "dates": drawn(DAYS),
    "text": drawn(["b", "a", "ä", "B"], object),
    "text, new in queries": drawn(["b", "c", "e"], object, new=["a", "d", "f"]),
    "category": drawn(["low", "high", "mid"], pd.CategoricalDtype(["mid", "low", "none", "high"])),
    "category of numbers": drawn([10, 9, 2.5], "category", new=[3, 11]),
    "declared category": drawn([30, 4, 100, -1], float, new=[5]),
    "many levels": drawn([f"n{i}" for i in range(300)], object, holes=0, new=["other"]),
    "all missing": drawn([None], float),
    "missing in queries alone": lambda rows, asked: pd.Series(
        np.where(asked & (np.arange(rows) % 2 > 0), np.nan, np.linspace(0, 1, rows))
    ),
    "missing in the pool alone": lambda rows, asked: pd.Series(
        np.where(asked | (np.arange(rows) % 2 > 0), np.linspace(0, 1, rows), np.nan)
    ),
    "constant": drawn([0.1], float, holes=0, new=[0.2]),
    "constant with holes": drawn([0.1], float),
    "constant text": drawn(["a"], object, holes=0, new=["b"]),
    "constant text with holes": drawn(["a"], object),
    "huge": drawn(1e30 * NORMAL, float),
    "far from zero": drawn(1e7 + NORMAL, float),
}


@pytest.mark.parametrize("beside", [True, False], ids=["beside a number", "alone"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_column(kind: str, beside: bool) -> None:
    """Stacks of contexts of unequal sizes, one of them a single row."""
    tables = []
    for rows, asked in ((60, False), (15, True)):
        columns = {"it": KINDS[kind](rows, asked)}
        if beside:
            columns["x"] = pd.Series(np.random.default_rng(rows).normal(size=rows))
        tables.append(pd.DataFrame(columns))
    encoder = TableEncoder(["it"] if kind == "declared category" else None)
    pool, queries = encoder.fit_transform(tables[0]), encoder.transform(tables[1])
    for norm in NORMS if beside else ("none",):
        compare_encoding(pool, queries, SLICES, ASKED, norm=norm)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_slices_of_an_array(dtype: type) -> None:
    compare_encoding(awkward(60, 1).astype(dtype), awkward(15, 2).astype(dtype), SLICES, ASKED)


def test_a_category_that_the_pool_does_not_know_stays_unknown() -> None:
    pool = Numbers(pd.DataFrame({"a": ["x", np.nan, "z"]}))
    asked = Numbers(pd.DataFrame({"a": ["y", "z", np.nan, 3]}), pool)
    np.testing.assert_array_equal(pool.take(np.arange(3))[:, 0], [0, np.nan, 1])
    np.testing.assert_array_equal(asked.take(np.arange(4))[:, 0], [-1, 1, np.nan, -1])


def test_numbers_do_not_travel() -> None:
    """A pickle has the rows; numbers are made again from them."""
    pool = Numbers(frame(60, 1))
    asked = Numbers(frame(15, 2), pool)
    expected = asked.take(np.arange(15))
    pool, asked = pickle.loads(pickle.dumps((pool, asked)))
    assert "columns" not in vars(pool)
    assert "columns" not in vars(asked)
    np.testing.assert_array_equal(asked.take(np.arange(15)), expected)


def test_a_task_travels_without_the_rest_of_the_pool() -> None:
    pool = Numbers(frame(5_000, 1))
    queries = Numbers(frame(3_000, 2), pool)
    some, asked = np.arange(7, 30), np.arange(5, 9)
    task = ContextTask(Slice(pool, some), np.arange(23) % 2, Slice(queries, asked), key=b"it")
    sent = pickle.dumps(task)
    assert len(sent) < 10_000
    there = pickle.loads(sent)
    pd.testing.assert_frame_equal(there.X, take(pool.rows, some))
    pd.testing.assert_frame_equal(there.queries, take(queries.rows, asked))
    np.testing.assert_array_equal(there.y, task.y)
    assert (there.key, there.keep) == (b"it", True)
    compare_stack(
        [(there.context, there.asked)], list(columns_of([there.context], CPU)), threshold=4.0
    )


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
    infinite = np.where(X[0, 0] == X, np.inf, X)
    assert columns_of([Slice.whole(Numbers(infinite))], CPU) == [None]
    assert not Numbers(infinite).finite
    assert Numbers(X).finite
    days = pd.DataFrame({"day": pd.to_datetime(["2020-01-01"] * 2)})
    assert columns_of([Slice.whole(Numbers(days))], CPU) == [None]


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
    """So what the package does to them itself changes nothing."""
    scale, expected = TargetScale.of(y), StandardScaler().fit_transform(y.reshape(-1, 1))
    np.testing.assert_allclose(scale.scaled(y), expected[:, 0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scale.unscaled(scale.scaled(y)), y, rtol=1e-12)
    again = StandardScaler().fit_transform(scale.scaled(y).astype(np.float32).reshape(-1, 1))
    np.testing.assert_allclose(again[:, 0], scale.scaled(y), rtol=1e-6, atol=1e-6)
    assert scale.unscaled(expected.astype(np.float32)).dtype == np.float64
