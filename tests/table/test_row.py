"""table/row.py: a row read alone is what the estimator makes of a table of one row, bit for bit;
single rows as tables, tables below each other.
"""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.table.row import gather, one_row, stack


def fitted(X, **more) -> CrumbClassifier:
    settings = {"model": LogisticRegression(), "n_clusters": 2, "context_size": 20, **more}
    return CrumbClassifier(**settings).fit(X, np.arange(len(X)) % 2)


def mixed(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": rng.normal(size=rows),
            "count": rng.integers(0, 9, rows),
            "flag": rng.random(rows) < 0.5,
            "text": rng.choice(["a", "b", "3", None], rows),
            "many": [
                f"word {i}" for i in rng.integers(0, 90, rows)
            ],  # the rare ones share an indicator
            "code": pd.Categorical(rng.choice([3, 10, 2], rows)),
            "holes": np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows)),
            "nothing": [None] * rows,
            "same": 1.0,
            "day": pd.date_range("2020-01-01", periods=rows),
        }
    )


FRAME = fitted(mixed())
ARRAYS = {
    dtype: fitted(np.random.default_rng(1).normal(size=(80, 3)).astype(dtype))
    for dtype in ("f4", "f8")
}
CODES = fitted(
    np.random.default_rng(1).integers(0, 4, (80, 3)).astype(float), categorical_features=[1]
)


def pandas_holds(value) -> bool:
    """Before version 3 pandas makes no column of whole numbers beyond the largest float."""
    try:
        return len(pd.Series([value])) == 1
    except OverflowError:
        return False


numbers = st.one_of(
    st.floats(),
    st.integers().filter(pandas_holds),
    st.booleans(),
    st.none(),
    st.sampled_from([np.int64(3), 1e300, *filter(pandas_holds, [10**400])]),
)
words = st.one_of(
    st.sampled_from(["a", "b", "3", "word 7", "word 1", 3, 3.0, 2.5, True]),
    st.none(),
    st.text(max_size=3),
)
anything = st.one_of(
    numbers, words, st.dates(), st.just(pd.NaT), st.just([1]), st.just(np.float32(0.1))
)


def the_long_way(clf, row):
    """Rows and points by the estimator; None where it refuses."""
    try:
        return clf.encode(one_row(row, clf.pool_.columns))
    except (ValueError, TypeError, OverflowError):
        return None


def same_values(got: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(got.columns) == list(expected.columns)
    for name in got.columns:
        assert isinstance(got[name].dtype, pd.CategoricalDtype) == isinstance(
            expected[name].dtype, pd.CategoricalDtype
        )
        ours, theirs = got[name].tolist()[0], expected[name].tolist()[0]
        if isinstance(theirs, int):  # a whole number of 64 bits, which no model sees as such
            theirs = float(theirs)
        assert (ours != ours and theirs != theirs) or (
            ours == theirs and isinstance(ours, str) == isinstance(theirs, str)
        )


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(numbers, numbers, numbers, words, words, words, numbers, anything, numbers, numbers)
)
@example((1.0, 2, True, "a", "word 7", 3, None, "x", np.inf, -np.inf))
@example((1.0, 2, True, 3.0, "new", "new", None, None, 0, 0.5))
@example((1.0, 2**53 + 1, True, 2**53 + 1, 2**53 + 1, 2**53 + 1, None, None, 0, 0.5))
def test_rows_of_a_frame(values) -> None:
    row = dict(zip(mixed(2).columns, values, strict=True))
    read, expected = FRAME.pool_.encode_row(row), the_long_way(FRAME, row)
    if expected is None:
        assert read is None  # the table says what is wrong
    elif read is not None:
        np.testing.assert_array_equal(read[1], expected[1])
        same_values(stack([read[0]]), expected[0])


@settings(max_examples=100, deadline=None)
@given(st.lists(anything, min_size=10, max_size=10))
def test_what_the_estimator_refuses_is_not_read(values) -> None:
    if the_long_way(FRAME, values) is None:
        assert FRAME.pool_.encode_row(values) is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(numbers, min_size=2, max_size=4),
    st.sampled_from(["f4", "f8", "i8", "?", None]),
    st.sampled_from(["f4", "f8"]),
)
def test_rows_of_an_array(values, dtype, pool) -> None:
    clf, row = ARRAYS[pool], values
    if dtype is not None:
        try:
            with np.errstate(all="ignore"):
                row = np.array(values, dtype=float).astype(dtype)
        except OverflowError:
            return
    read, expected = clf.pool_.encode_row(row), the_long_way(clf, row)
    assert expected is not None or read is None
    if read is not None:
        np.testing.assert_array_equal(read[1], expected[1])
        np.testing.assert_array_equal(read[0], expected[0])
        assert read[0].dtype == expected[0].dtype


def test_plain_rows_are_read_and_others_are_left_to_the_table() -> None:
    reader, rows = FRAME.pool_.encode_row, mixed(50).drop(columns="day").assign(day=3.0)
    for row in (rows.iloc[0], rows.iloc[0].to_dict(), rows.iloc[0].tolist()):
        assert reader(row) is not None
    for wrong in (
        rows.iloc[0].tolist()[:-1],
        {**rows.iloc[0].to_dict(), "more": 1},
        {**rows.iloc[0].drop("text").to_dict(), "texts": "a"},
        {**rows.iloc[0].to_dict(), "number": "many"},
        rows[:1],
        7,
    ):
        assert reader(wrong) is None


def test_dates_and_numbers_as_text_are_read_too() -> None:
    row = mixed(50).drop(columns="day").assign(day=3.0).iloc[0].to_dict()
    for more in ({"day": datetime.date(2020, 1, 1)}, {"number": "1.5"}, {"day": "2020-01-01"}):
        asked = {**row, **more}
        read, expected = FRAME.pool_.encode_row(asked), the_long_way(FRAME, asked)
        np.testing.assert_array_equal(read[1], expected[1])
        same_values(stack([read[0]]), expected[0])


def test_codes_in_an_array() -> None:
    reader = CODES.pool_.encode_row
    for row in ([0, 1, 2], [3.0, np.nan, 1.0], [0.0, 77.0, 0.0]):
        np.testing.assert_array_equal(reader(row)[1], CODES.encode([row])[1])


def test_a_row_that_was_read_is_a_copy() -> None:
    row = np.zeros(3)
    read = ARRAYS["f8"].pool_.encode_row(row)[0]
    row[:] = 1
    assert (read == 0).all()


def test_a_space_of_the_users_own_is_not_read() -> None:
    own = fitted(np.eye(20), features=StandardScaler())
    assert own.pool_.encode_row([0.0] * 20) is None


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_records_and_frames_below_each_other(order) -> None:
    rows, reader = mixed(4).assign(day=3.0), FRAME.pool_.encode_row
    encoded = FRAME.encode(rows)[0]
    pieces = [reader(rows.iloc[i])[0] if i % 2 else encoded[i : i + 1] for i in order]
    got = stack(pieces)
    expected = encoded.iloc[order].reset_index(drop=True)
    for name in got.columns:
        np.testing.assert_array_equal(
            got[name].astype(object).where(got[name].notna(), None),
            expected[name].astype(object).where(expected[name].notna(), None),
        )


def test_a_row_may_be_a_sequence_a_series_or_a_mapping() -> None:
    for row in ([1, 2], (1, 2), np.array([1, 2]), pd.Series([1, 2]), np.array([[1, 2]])):
        np.testing.assert_array_equal(np.asarray(one_row(row, None), dtype=float), [[1.0, 2.0]])
    named = one_row({"b": "x", "a": 1}, ["a", "b"])
    assert named.columns.tolist() == ["a", "b"]
    assert named.iloc[0].tolist() == [1, "x"]
    assert one_row(pd.Series({"b": 2, "a": 1}), ["a", "b"]).iloc[0].tolist() == [1, 2]


def test_what_is_no_row_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no value for 'b' and names 'c'"):
        one_row({"a": 1, "c": 2}, ["a", "b"])
    with pytest.raises(InvalidInput, match="no names"):
        one_row({"a": 1}, None)
    with pytest.raises(InvalidInput, match="got 2"):
        one_row(np.zeros((2, 3)), None)
    with pytest.raises(InvalidInput, match="A row is"):
        one_row(3, None)


def test_categories_of_single_rows_stay_categories() -> None:
    whole = pd.DataFrame(
        {
            "c": pd.Categorical(["b", None, "a", "b"]),
            "t": ["x", np.nan, "y", "x"],
            "n": [1, 2, 3, 4],
        }
    )
    pieces = [
        pd.DataFrame({"c": pd.Categorical([c]), "t": pd.Series([t], dtype=object), "n": [n]})
        for c, t, n in whole.itertuples(index=False)
    ]
    joined = stack(pieces)
    assert isinstance(joined["c"].dtype, pd.CategoricalDtype)
    assert joined["c"].astype(object).where(joined["c"].notna(), None).tolist() == [
        "b",
        None,
        "a",
        "b",
    ]
    pd.testing.assert_frame_equal(joined[["t", "n"]], whole[["t", "n"]].astype({"t": object}))


def test_rows_are_gathered_in_order() -> None:
    first, second = np.arange(6).reshape(3, 2), np.arange(10, 14).reshape(2, 2)
    got = gather([(first, 2), (first, 0), (second, 1), (first, 1)])
    np.testing.assert_array_equal(got, [[4, 5], [0, 1], [12, 13], [2, 3]])
