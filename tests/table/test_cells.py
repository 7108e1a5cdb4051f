"""table/cells.py: what a value means as a number and as a word; pool and queries that differ."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.table.cells import LARGEST, Words, from_arrow, number_of, word_of
from crumb.table.encoder import TableEncoder, stacked, to_rows

NEW_YORK = dt.timezone(dt.timedelta(hours=-5))
ID = 2**60


@pytest.mark.parametrize(
    ("value", "number", "word"),
    [
        (3, 3.0, "3"),
        (3.0, 3.0, "3"),
        (np.float32(0.5), 0.5, "0.5"),
        (Decimal("3.0"), 3.0, "3"),
        (Fraction(1, 2), 0.5, "0.5"),
        (True, 1.0, "True"),
        (np.bool_(False), 0.0, "False"),
        (ID + 1, float(ID), str(ID + 1)),
        (np.int64(ID + 1), float(ID), str(ID + 1)),
        (10**400, math.inf, str(10**400)),
        (-(10**400), -math.inf, str(-(10**400))),
        ("2.5", 2.5, "2.5"),
        (" 007 ", 7.0, " 007 "),
        ("true", 1.0, "true"),
        (b"7", 7.0, "7"),
        (dt.date(1970, 1, 3), 2.0, "1970-01-03"),
        (dt.datetime(1970, 1, 3, 12), 2.5, "1970-01-03 12:00:00"),
        (dt.datetime(1970, 1, 2, 19, tzinfo=NEW_YORK), 2.0, "1970-01-03"),
        (pd.Timestamp("1970-01-03", tz="UTC"), 2.0, "1970-01-03"),
        (np.datetime64("1970-01-03"), 2.0, "1970-01-03"),
        (pd.Period("1970-02", "M"), 31.0, "1970-02-01"),
        ("1970-01-03T12:00:00Z", 2.5, "1970-01-03T12:00:00Z"),
        (dt.timedelta(hours=36), 1.5, "1 days 12:00:00"),
        (np.timedelta64(36, "h"), 1.5, "1 days 12:00:00"),
    ],
)
def test_what_a_value_means(value, number, word) -> None:
    assert number_of(value) == number
    assert word_of(value) == word


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT")])
def test_what_is_missing(missing) -> None:
    assert math.isnan(number_of(missing))
    assert math.isnan(Words(["a"]).cell(missing))
    frame = pd.DataFrame({"n": [1.5, missing], "t": ["x", missing]}, dtype=object)
    rows = TableEncoder().fit_transform(to_rows(frame))
    assert rows.isna().to_numpy().tolist() == [[False, False], [True, True]]


@pytest.mark.parametrize("text", ["many", "", "1_000", "2020-13-45", b"\xff"])
def test_what_is_no_number(text) -> None:
    with pytest.raises(ValueError, match=r".*"):
        number_of(text)


@pytest.mark.parametrize(
    ("pool", "value", "cell"),
    [
        ([1, 2, 3], "3", 3.0),
        ([1, 2, 3], True, 1.0),
        (["1", "2", "3"], 3, "3"),
        (["1", "2", "3"], 3.0, "3"),
        (["007", "008"], 7, "007"),
        (["007", "7"], 7, "7"),
        (["007", "008"], "7", "7"),  # as text these are two codes
        (["1.50", "2.00"], 2, "2.00"),
        ([True, False], "True", "True"),
        ([True, False], 1, "True"),
        (["true", "false"], False, "false"),
        ([dt.date(2020, 1, 2)], "2020-01-02T00:00:00Z", "2020-01-02"),
        (["2020-01-02T00:00:00Z"], dt.date(2020, 1, 2), "2020-01-02T00:00:00Z"),
        ([ID + 1, ID + 2], ID + 2, str(ID + 2)),
        ([ID + 1, ID + 2], str(ID + 1), str(ID + 1)),
        ([str(ID + 1), str(ID + 2)], ID + 2, str(ID + 2)),
        ([dt.date(2020, 1, 2)], "2021-01-02 00:00:00", "2021-01-02"),
        (["a", "b"], "new", "new"),
        (["a", "b"], 5, "5"),
        ([1, 2], 5, 5.0),
    ],
)
def test_a_value_goes_to_the_category_that_it_means(pool, value, cell) -> None:
    assert Words(pool).cell(value) == cell


def test_new_categories_stay_finite() -> None:
    """OrdinalEncoder refuses infinite numbers."""
    assert Words([1, 2]).cell(math.inf) == LARGEST


COLOURS = np.arange(120) % 3
TYPES = {
    "category of ints": lambda codes: pd.Categorical(codes),
    "category of floats": lambda codes: pd.Categorical(codes.astype(float)),
    "category of text": lambda codes: pd.Categorical(codes.astype(str)),
    "text": lambda codes: pd.Series(codes.astype(str)),
    "ints": lambda codes: codes,
    "floats": lambda codes: codes.astype(float),
    "nullable": lambda codes: pd.array(codes, dtype="Int64"),
    "objects": lambda codes: pd.Series(list(codes), dtype=object),
    "arrow": lambda codes: pd.Series(codes, dtype="int64[pyarrow]"),
}


@pytest.mark.parametrize("queries", list(TYPES))
@pytest.mark.parametrize("pool", ["category of ints", "category of text", "text"])
def test_a_category_in_another_type_is_the_same_category(pool: str, queries: str) -> None:
    def table(kind: str) -> pd.DataFrame:
        return pd.DataFrame({"c": TYPES[kind](COLOURS), "x": np.linspace(0, 1, 120)})

    clf = CrumbClassifier(strategy="full").fit(table(pool), COLOURS)
    rows, points = clf.encode(table(queries))
    expected = clf.encode(table(pool))
    np.testing.assert_array_equal(points, expected[1])
    assert rows["c"].tolist() == expected[0]["c"].tolist()


def test_answers_do_not_depend_on_the_type_of_a_category() -> None:
    rng = np.random.default_rng(0)
    codes, x = rng.integers(0, 5, 160), rng.normal(size=160)
    y = np.isin(codes, [1, 4]).astype(int)
    for pool, queries in (("category of ints", "text"), ("text", "ints")):
        clf = CrumbClassifier(context_size=100, n_clusters=2)
        clf.fit(pd.DataFrame({"c": TYPES[pool](codes[:120]), "x": x[:120]}), y[:120])
        asked = pd.DataFrame({"c": TYPES[queries](codes[120:]), "x": x[120:]})
        assert clf.score(asked, y[120:]) == 1.0


def test_text_among_categories_of_numbers_is_named_at_once() -> None:
    encoder = TableEncoder()
    encoder.fit_transform(pd.DataFrame({"c": pd.Categorical([1, 2, 3])}))
    with pytest.raises(InvalidInput, match=r"Column 'c' held numbers .* row 1 of the queries"):
        encoder.transform(pd.DataFrame({"c": ["1", "blue"]}))


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", ["category", "declared", "nullable", "objects", "arrow", "list"])
def test_large_ids_stay_apart(kind: str, holes: bool) -> None:
    """As categories: in the space, in what reaches the network, and for single rows."""
    codes = [None if holes and i % 7 == 0 else ID + i % 4 for i in range(80)]
    column = {
        "category": lambda: pd.Categorical(pd.array(codes, dtype="Int64")),
        "declared": lambda: pd.array(codes, dtype="Int64"),
        "nullable": lambda: pd.array(codes, dtype="Int64"),
        "objects": lambda: pd.Series(codes, dtype=object),
        "arrow": lambda: pd.Series(codes, dtype="int64[pyarrow]"),
        "list": lambda: codes,
    }[kind]
    X = [[code, 0.5] for code in codes] if kind == "list" else pd.DataFrame({"c": column(), "x": 1})
    clf = CrumbClassifier(strategy="full", categorical_features=[0])
    clf.fit(X, np.arange(80) % 2)
    rows, points = clf.encode(X)
    wanted = 4 + holes
    assert len(np.unique(points, axis=0)) == wanted
    assert rows.iloc[:, 0].nunique(dropna=False) == wanted
    for i in range(8):
        one, point = clf.encode_row([codes[i], 0.5 if kind == "list" else 1])
        np.testing.assert_array_equal(point[0], points[i])
        assert one.values[0] == rows.iloc[i, 0] or codes[i] is None


def test_large_ids_in_an_array_of_whole_numbers() -> None:
    X = np.stack([ID + np.arange(40) % 4, np.arange(40)], axis=1)
    clf = CrumbClassifier(strategy="full", categorical_features=[0]).fit(X, np.arange(40) % 2)
    assert clf.pool_.rows[0].nunique() == 4
    assert len(np.unique(clf.encode(X)[1][:, -4:], axis=0)) == 4


@pytest.mark.parametrize("mark", [-3.4e38, -3.4028234663852886e38, 9.969209968386869e36, 1e30])
def test_marks_of_no_data_are_infinite_on_every_path(mark: float) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[3, 0] = mark
    edge = np.delete(X[:, 0], 3).max() if mark > 0 else np.delete(X[:, 0], 3).min()
    for table in (X, X.astype(np.float32), pd.DataFrame(X, columns=["a", "b"]), X.tolist()):
        clf = CrumbClassifier(strategy="full").fit(table, np.arange(40) % 2)
        rows = np.asarray(clf.encode(table)[0], dtype=np.float64)
        np.testing.assert_allclose(rows[3, 0], edge, rtol=1e-6)
        one = clf.encode_row([mark, 0.0])[0]
        read = one.values if hasattr(one, "values") else one[0]
        np.testing.assert_allclose(float(read[0]), edge, rtol=1e-6)


def days_of(column) -> list[float]:
    encoder = TableEncoder()
    rows = encoder.fit_transform(pd.DataFrame({"c": column}))
    assert encoder.kinds_ == ["number"]
    return rows["c"].tolist()


def test_dates_and_durations_in_whatever_type_are_days() -> None:
    lapse, moment = dt.timedelta(hours=36), dt.datetime(1970, 1, 3)
    assert days_of(pd.Series([lapse, None], dtype=object))[0] == 1.5
    assert days_of(pd.Series([lapse, None], dtype=pd.ArrowDtype(pa.duration("us"))))[0] == 1.5
    offsets = [moment.replace(tzinfo=dt.timezone.utc), dt.datetime(1970, 1, 3, tzinfo=NEW_YORK)]
    assert days_of(pd.Series(offsets, dtype=object)) == [2.0, 2 + 5 / 24]
    assert days_of(pd.Series([moment, dt.date(1970, 1, 2)], dtype=object)) == [2.0, 1.0]


@pytest.mark.parametrize("dtype", ["str", "string", object, pd.ArrowDtype(pa.string())])
def test_text_that_is_all_dates_is_days(dtype) -> None:
    written = ["1970-01-03", None, " 1970-01-02 ", "1970-01-03T12:00:00", "1970-01-03 05:00+05:00"]
    found = days_of(pd.Series([*written, "1970-01-02 19:00:00.000-05"], dtype=dtype))
    np.testing.assert_array_equal(found, [2.0, np.nan, 1.0, 2.5, 2.0, 2.0])


@pytest.mark.parametrize("other", ["soon", "2020-13-01", "2020", "3", ""])
def test_text_is_words_where_one_is_no_date(other: str) -> None:
    encoder = TableEncoder()
    rows = encoder.fit_transform(pd.DataFrame({"c": ["2020-01-01", other, "2020-01-02"]}))
    assert encoder.kinds_ == ["text"]
    assert rows["c"].tolist() == ["2020-01-01", other, "2020-01-02"]


def test_queries_of_a_column_of_written_dates() -> None:
    pool = pd.DataFrame({"c": ["1970-01-03", "1970-01-02"]})
    encoder = TableEncoder()
    encoder.fit_transform(pool)
    asked = pd.DataFrame({"c": [dt.date(1970, 1, 4), "1970-01-05", None]})
    np.testing.assert_array_equal(encoder.transform(asked)["c"], [3.0, 4.0, np.nan])
    with pytest.raises(InvalidInput, match=r"Column 'c' held numbers .* row 1 of the queries"):
        encoder.transform(pd.DataFrame({"c": ["1970-01-05", "soon"]}))
    declared = TableEncoder(["c"])
    assert declared.fit_transform(pool)["c"].tolist() == ["1970-01-03", "1970-01-02"]
    assert declared.transform(pd.DataFrame({"c": ["soon"]}))["c"].tolist() == ["soon"]


def test_missing_dates_in_arrays_are_missing() -> None:
    dates = np.array([["1970-01-03", "NaT"], ["1970-01-02", "1970-01-01"]], dtype="datetime64[D]")
    np.testing.assert_array_equal(stacked(to_rows(dates)), [[2.0, np.nan], [1.0, 0.0]])
    lapses = np.array([[36, "NaT"]], dtype="timedelta64[h]")
    np.testing.assert_array_equal(stacked(to_rows(lapses)), [[1.5, np.nan]])


def test_dates_in_an_array_may_be_words_to_the_pool() -> None:
    day = dt.date(2020, 1, 1)
    clf = CrumbClassifier(strategy="full").fit(pd.DataFrame({"a": [day, "x"] * 5}), [0, 1] * 5)
    for rows in ([[None], [day]], np.array([["NaT"], [day]], dtype="datetime64[D]")):
        with pytest.warns(UserWarning, match="names"):
            assert clf.encode(rows)[0]["a"].tolist()[1] == "2020-01-01"


def test_bytes_are_text_and_no_dates() -> None:
    encoder = TableEncoder()
    rows = encoder.fit_transform(pd.DataFrame({"c": [b"2020-01-01", b"x"]}))
    assert encoder.kinds_ == ["text"]
    assert rows["c"].tolist() == ["2020-01-01", "x"]


def test_text_that_is_no_unicode(tmp_path) -> None:
    """Half a surrogate pair, as broken JSON brings it: readable, and it can be saved."""
    frame = pd.DataFrame({"c": pd.Series(["a", "\ud800", "é"] * 10, dtype=object)})
    clf = CrumbClassifier(strategy="full").fit(frame, np.arange(30) % 2)
    assert clf.pool_.rows["c"].tolist()[:3] == ["a", "\\ud800", "é"]
    np.testing.assert_array_equal(clf.encode_row(["\ud800"])[1][0], clf.pool_.points[1])
    clf.save(tmp_path / "clf.crumb")


def test_whole_numbers_of_hundreds_of_digits() -> None:
    frame = pd.DataFrame({"c": [1, 10**400, 3, -(10**400)]}, dtype=object)
    assert TableEncoder().fit_transform(frame)["c"].tolist() == [1, 3, 3, 1]


def test_whole_decimals_of_databases() -> None:
    ids = pa.array([Decimal(ID + 1), None, Decimal(ID + 2)], pa.decimal128(38, 0))
    assert from_arrow(ids).dropna().tolist() == [ID + 1, ID + 2]
    huge = from_arrow(pa.array([Decimal(10) ** 30], pa.decimal128(38, 0)))
    assert huge.tolist() == [Decimal(10) ** 30]
    assert from_arrow(pa.array([Decimal("1.25")], pa.decimal128(9, 2))).tolist() == [1.25]


def test_a_category_column_without_values_is_empty() -> None:
    frame = pd.DataFrame({"c": pd.Categorical([None, None]), "d": [None, None], "x": [1, 2]})
    encoder = TableEncoder(["d"])
    encoder.fit_transform(frame)
    assert encoder.kinds_ == ["empty", "empty", "number"]
    rows = encoder.transform(pd.DataFrame({"c": ["a"], "d": ["b"], "x": [1]}))
    assert rows[["c", "d"]].isna().all(axis=None)


def test_categories_that_no_row_holds_decide_nothing() -> None:
    pool = pd.Categorical([1, 2, 1], categories=[1, 2, "x"])
    encoder = TableEncoder()
    assert encoder.fit_transform(pd.DataFrame({"c": pool}))["c"].tolist() == [1.0, 2.0, 1.0]
