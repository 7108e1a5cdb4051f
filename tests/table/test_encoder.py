"""table.py: any table in, rows that a PFN understands out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from crumb.errors import InvalidInput
from crumb.table.encoder import TableEncoder, fingerprint, to_rows
from crumb.table.space import learn_space

pl = pytest.importorskip("polars")


def mixed() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "whole": [1, 2, 3, 4],
            "number": [1.0, np.inf, np.nan, -np.inf],
            "flag": [True, False, True, True],
            "flag_or_missing": pd.array([True, None, False, True], dtype="boolean"),
            "flag_as_object": [True, None, False, True],
            "text": ["a", "b", None, "a"],
            "category": pd.Categorical([3, 2, None, 10]),
            "day": pd.to_datetime(
                ["1970-01-02", None, "1970-01-03 12:00", "1970-01-01"], format="ISO8601"
            ),
            "instant": pd.to_datetime(["1970-01-02 01:00"] * 4).tz_localize("Europe/Paris"),
            "date": [dt.date(1970, 1, 11)] * 4,
            "lapse": pd.to_timedelta([12, 24, 36, 48], unit="h"),
            "month": pd.period_range("1970-01", periods=4, freq="M"),
            "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
            "decimal": [Decimal("0.5"), Decimal(1), None, Decimal(2)],
            "anything": [1, "x", None, 2.5],
            "nothing": [None] * 4,
            "same": [7] * 4,
        }
    )


def test_each_kind_of_column() -> None:
    encoder = TableEncoder()
    rows = encoder.fit_transform(to_rows(mixed()))
    kinds = dict(zip(encoder.columns_, encoder.kinds_, strict=True))
    assert kinds["nothing"] == "empty"
    assert {name for name, kind in kinds.items() if kind in ("text", "category")} == {
        "text",
        "category",
        "anything",
    }
    nan = np.nan
    expected = {
        "whole": [1, 2, 3, 4],
        "number": [1, 1, nan, 1],  # 1.0 is the only finite value of the pool, so both its bounds
        "flag": [1, 0, 1, 1],
        "flag_or_missing": [1, nan, 0, 1],
        "flag_as_object": [1, nan, 0, 1],
        "day": [1, nan, 2.5, 0],
        "instant": [1, 1, 1, 1],
        "date": [10, 10, 10, 10],
        "lapse": [0.5, 1, 1.5, 2],
        "month": [0, 31, 59, 90],
        "nullable": [1, nan, 3, 4],
        "decimal": [0.5, 1, nan, 2],
        "nothing": [nan] * 4,
        "same": [7] * 4,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(rows[name].to_numpy(dtype=float), values, err_msg=name)
    assert rows["text"].fillna("missing").tolist() == ["a", "b", "missing", "a"]
    assert rows["anything"].fillna("missing").tolist() == ["1", "x", "missing", "2.5"]
    assert isinstance(rows["text"][2], float), "NaN: None would be a category to the packages"
    assert rows["category"].astype(object).tolist()[0] == 3


def test_infinite_values_become_the_bounds_of_the_pool() -> None:
    pool = np.array([[0.0, 5.0], [2.0, np.inf], [1.0, -3.0]])
    encoder = TableEncoder()
    assert encoder.fit_transform(to_rows(pool)).tolist() == [[0, 5], [2, 5], [1, -3]]
    queries = encoder.transform(to_rows(np.array([[np.inf, -np.inf], [-1e300, np.nan]])))
    assert queries[0].tolist() == [2, -3]
    assert queries[1, 0] == 0  # beyond float32, so infinite to a network
    assert np.isnan(queries[1, 1])


def test_finite_arrays_pass_through_untouched() -> None:
    pool = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert TableEncoder().fit_transform(to_rows(pool)) is pool


def test_polars_and_pyarrow_are_frames_too() -> None:
    frame = pl.DataFrame(
        {
            "number": [1, 2, None],
            "text": ["x", None, "y"],
            "flag": [True, None, False],
            "day": [dt.date(1970, 1, 2)] * 3,
            "category": pl.Series(["q", "r", "q"], dtype=pl.Categorical),
        }
    )
    for table in (frame, frame.to_arrow()):
        encoder = TableEncoder()
        rows = encoder.fit_transform(to_rows(table))
        assert encoder.kinds_ == ["number", "text", "number", "number", "category"]
        assert rows["day"].tolist() == [1.0, 1.0, 1.0]
        assert rows["text"].fillna("missing").tolist() == ["x", "missing", "y"]


def test_object_arrays() -> None:
    numbers = to_rows(np.array([[1, 2.5], [None, 4]], dtype=object))
    assert numbers.dtype == np.float64
    assert np.isnan(numbers[1, 0])
    frame = to_rows(np.array([["a", 1], ["b", 2]], dtype=object))
    encoder = TableEncoder()
    encoder.fit_transform(frame)
    assert encoder.kinds_ == ["text", "number"]
    assert to_rows([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("features", [["code"], [1], [False, True, False]])
def test_declared_categories(features: list) -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5], "code": [1, 2], "z": [1, 1]})
    encoder = TableEncoder(features)
    rows = encoder.fit_transform(to_rows(frame))
    assert encoder.categorical_indices == [1]
    assert isinstance(rows["code"].dtype, pd.CategoricalDtype)
    array = TableEncoder([1] if features != [False, True, False] else features)
    assert isinstance(array.fit_transform(to_rows(frame.to_numpy(dtype=float))), np.ndarray)
    assert array.categorical_indices == [1]


def test_unknown_declared_categories_are_named() -> None:
    with pytest.raises(InvalidInput, match="'nope'"):
        TableEncoder(["nope"]).fit_transform(to_rows(mixed()))
    with pytest.raises(InvalidInput, match="mask of 2 values for 17"):
        TableEncoder([True, False]).fit_transform(to_rows(mixed()))


def test_queries_follow_the_pool() -> None:
    encoder = TableEncoder()
    encoder.fit_transform(
        to_rows(pd.DataFrame({"code": ["1", "2", "x"], "number": [1.0, 2.0, 3.0]}))
    )
    rows = encoder.transform(to_rows(pd.DataFrame({"code": [1, 2], "number": ["1.5", None]})))
    assert rows["code"].tolist() == ["1", "2"]  # a reader took the codes for numbers
    assert rows["number"].tolist()[0] == 1.5
    with pytest.raises(InvalidInput, match=r"'number' held numbers .* but row 1"):
        encoder.transform(to_rows(pd.DataFrame({"code": ["1", "2"], "number": ["1", "many"]})))


def test_a_column_that_is_empty_in_the_pool_stays_empty() -> None:
    encoder = TableEncoder()
    encoder.fit_transform(to_rows(pd.DataFrame({"x": [1.0, 2.0], "e": [None, None]})))
    rows = encoder.transform(to_rows(pd.DataFrame({"x": [1.0], "e": ["text"]})))
    assert np.isnan(rows["e"].to_numpy(dtype=float)).all()


def test_times_past_2262_and_arrow_types() -> None:
    end = dt.date(9999, 12, 31)
    frame = pd.DataFrame(
        {
            "us": pd.Series([np.datetime64("9999-12-31", "us"), np.datetime64("1970-01-02", "us")]),
            "date": [end, dt.date(1970, 1, 2)],
            "moment": [dt.datetime(9999, 12, 31), dt.datetime(1970, 1, 2)],
            "arrow_date": pd.Series([end, dt.date(1970, 1, 2)], dtype="date32[pyarrow]"),
            "arrow_flag": pd.Series([True, None], dtype="bool[pyarrow]"),
            "arrow_whole": pd.Series([7, None], dtype="int64[pyarrow]"),
            "arrow_text": pd.Series(["a", None], dtype="string[pyarrow]"),
        }
    )
    encoder = TableEncoder()
    rows = encoder.fit_transform(to_rows(frame))
    days = float((np.datetime64("9999-12-31") - np.datetime64("1970-01-01")).astype(int))
    for name in ("us", "date", "moment", "arrow_date"):
        assert rows[name].tolist() == [days, 1.0], name
    assert rows["arrow_flag"].tolist()[0] == 1.0
    assert rows["arrow_whole"].tolist()[0] == 7.0
    assert encoder.kinds_[-1] == "text"


@pytest.mark.parametrize(
    ("pool", "queries"),
    [
        (pd.Categorical([3, 10, 2]), [3, 10, 2]),
        (pd.Categorical([3, 10, 2]), [3.0, 10.0, 2.0]),
        (pd.Categorical([True, False, True]), [True, False, True]),
        (np.array([True, "x", 3], dtype=object), np.array([True, "x", 3], dtype=object)),
    ],
)
def test_a_category_is_the_same_in_whatever_type_it_comes(pool, queries) -> None:
    encoder = TableEncoder()
    rows = encoder.fit_transform(to_rows(pd.DataFrame({"c": pool})))
    space, points = learn_space(None, rows, encoder, None, None)
    again = space.transform(encoder.transform(to_rows(pd.DataFrame({"c": queries}))))
    np.testing.assert_array_equal(points, again)
    assert (points.sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        (sparse.csr_matrix(np.eye(3)), TypeError, "Sparse"),
        (np.arange(3.0), ValueError, "Reshape your data"),
        (pd.Series([1.0, 2.0]), ValueError, "Reshape your data"),
        (np.empty((0, 3)), ValueError, "0 sample"),
        (pd.DataFrame({"a": []}), ValueError, "0 sample"),
        (pd.DataFrame(index=[0, 1]), ValueError, "0 feature"),
        (np.zeros((3, 0)), ValueError, "0 feature"),
        (np.zeros((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "occur twice: a"),
    ],
)
def test_what_is_no_table_is_refused(table, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        to_rows(table)


def test_nested_and_complex_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="'x' holds nested values"):
        TableEncoder().fit_transform(to_rows(pd.DataFrame({"x": [[1], [2]]})))
    with pytest.raises(InvalidInput, match="complex"):
        TableEncoder().fit_transform(to_rows(pd.DataFrame({"x": [1j, 2j]})))


def test_fingerprints_tell_content_from_content() -> None:
    frame = mixed().drop(columns=["flag_as_object", "date", "decimal", "anything", "nothing"])
    assert fingerprint(frame) == fingerprint(frame.copy().set_index(pd.Index([9, 8, 7, 6])))
    changed = frame.copy()
    changed.loc[0, "whole"] = 99
    assert fingerprint(changed) != fingerprint(frame)
    assert fingerprint(frame.rename(columns={"whole": "w"})) != fingerprint(frame)
    array = np.arange(6.0).reshape(2, 3)
    assert fingerprint(array) != fingerprint(array.reshape(3, 2))
