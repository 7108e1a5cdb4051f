"""Odd tables: the same values in other types, on other paths, are the same rows.

A table is made of columns of plain Python values. The frame of their usual types is the measure:
every other way to say the same table (other types of pool or queries, lists, Parquet, files that
stay on disk, single rows, JSON, a saved estimator) must give the same cells and the same points.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from tabicl import TabICLClassifier

from crumb import CrumbClassifier
from crumb.options import Options
from crumb.persistence import pack_rows, unpack_rows
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import FilePool
from crumb.scale.source import count_rows, open_source
from crumb.serve.schema import Schema
from crumb.table.cells import word_of
from crumb.table.encoder import texts
from crumb.table.row import stack

POOL, QUERIES = 12, 5
ID = 2**60
UTC = dt.timezone.utc
EXTREME = [math.inf, -math.inf, -3.4e38, 3.4028234663852886e38, 1e30, 1e300, 0.0, -0.0, 1e-300]


def series(dtype: Any) -> Callable[[list], pd.Series]:
    return lambda values: pd.Series(values, dtype=dtype)


def each(change: Callable[[Any], Any], dtype: Any = object) -> Callable[[list], pd.Series]:
    """A column of changed values; missing ones stay."""
    return lambda values: pd.Series([None if v is None else change(v) for v in values], dtype=dtype)


def category(change: Callable[[Any], Any]) -> Callable[[list], pd.Series]:
    return lambda values: each(change)(values).astype("category")


def arrow(kind: pa.DataType) -> Callable[[list], pd.Series]:
    return series(pd.ArrowDtype(kind))


def aware(value: dt.datetime, hours: int) -> dt.datetime:
    return value.replace(tzinfo=UTC).astimezone(dt.timezone(dt.timedelta(hours=hours)))


def alternating(values: list) -> pd.Series:
    """Dates with two different offsets."""
    column = [None if v is None else aware(v, 3 * (i % 2)) for i, v in enumerate(values)]
    return pd.Series(column, dtype=object)


def with_na(values: list) -> pd.Series:
    return pd.Series([pd.NA if v is None else v for v in values], dtype=object)


class Kind:
    """Values, and types that mean the same: of a pool (the first is usual), and of queries."""

    def __init__(
        self, values: Any, pool: list, queries: list | None = None, declared: bool = False
    ):
        self.values, self.pool, self.declared = values, pool, declared
        self.queries = [*pool, *(queries or [])]


numbers = st.floats(-1e6, 1e6) | st.sampled_from(EXTREME)
moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)
KINDS = {
    "number": Kind(
        numbers,
        [series("float64"), series("Float64"), with_na, arrow(pa.float64())],
        [each(repr), series(pd.SparseDtype(float)), category(float)],
    ),
    "whole": Kind(
        st.integers(-9, 9),
        [series("Int64"), series("float64"), series(object), arrow(pa.int16()), with_na],
        [each(str), each(np.int8), category(int)],
    ),
    "huge": Kind(
        st.integers(-(10**400), 10**400) | st.integers(-9, 9), [series(object)], [each(str)]
    ),
    "flag": Kind(
        st.booleans(),
        [series("boolean"), series(object), arrow(pa.bool_()), with_na],
        [each(str), each(int), each(float, "float64"), category(bool)],
    ),
    "word": Kind(
        st.sampled_from(["a", "b", "", "3", "007", "True", "nan", "2020-01-01", "é"]),
        [series(object), series("string"), arrow(pa.string()), with_na],
        [each(str.encode), category(str), arrow(pa.large_string())],
    ),
    "code": Kind(
        st.sampled_from([3, 10, -2, 7]),
        [category(int), category(float)],
        [series("Int64"), series("float64"), each(str), category(str), each(int), each(float)],
    ),
    "code as text": Kind(
        st.sampled_from(["3", "10", "-2", "2.5"]),
        [category(str)],
        [series(object), each(float), category(float), each(float, "float64")],
    ),
    "declared": Kind(
        st.sampled_from([3, 10, -2, 7]),
        [series("Int64"), series("float64"), category(int)],
        [each(str), category(str), arrow(pa.int64())],
        declared=True,
    ),
    "id": Kind(
        st.integers(ID, ID + 3),
        [series("Int64"), category(int), series(object), category(str), arrow(pa.int64())],
        [each(str), series("UInt64")],
        declared=True,
    ),
    "date": Kind(
        moments,
        [
            series("datetime64[us]"),
            series("datetime64[s]"),
            series("datetime64[ns, UTC]"),
            series(object),
            arrow(pa.timestamp("us")),
            alternating,
            each(dt.datetime.isoformat, "str"),
            each(lambda v: f"{v} " if v.hour else str(v)),
            each(lambda v: aware(v, 3).isoformat()),
        ],
        [each(dt.datetime.isoformat), each(lambda v: aware(v, -5).isoformat()), with_na],
    ),
    "lapse": Kind(
        st.integers(-(10**6), 10**6).map(lambda minutes: dt.timedelta(minutes=minutes)),
        [series("timedelta64[us]"), series(object), arrow(pa.duration("us")), with_na],
        [series("timedelta64[ns]")],
    ),
    "day as category": Kind(
        st.sampled_from([dt.datetime(2020, 1, 2), dt.datetime(2021, 5, 6, 12)]),
        [category(lambda v: v), category(str)],
        [series("datetime64[us]"), each(dt.datetime.isoformat), series(object)],
    ),
    "decimal": Kind(
        st.decimals(-(10**6), 10**6, places=2),
        [series(object), arrow(pa.decimal128(20, 2)), each(float, "float64")],
        [each(str), each(Fraction)],
    ),
    "month": Kind(
        st.integers(1900, 2100).map(lambda year: pd.Period(f"{year}-03", "M")),
        [series("period[M]"), series(object), each(pd.Period.to_timestamp, "datetime64[us]")],
        [each(lambda period: period.start_time.isoformat())],
    ),
    "time": Kind(
        st.times().map(lambda time: time.replace(microsecond=0)),
        [series(object), arrow(pa.time64("us")), category(str)],
        [each(str), category(lambda time: time)],
    ),
    "anything": Kind(
        # No truth values: typed, True is 1 where the pool has no "True"; as text it is not.
        st.sampled_from(
            [1, "1", 2.5, "x", b"y", dt.date(2020, 1, 1), dt.timedelta(1), -0.0, "0", 10**40]
        ),
        [series(object), each(word_of), each(word_of, "string")],
        [with_na, category(word_of)],
    ),
    "empty": Kind(st.none(), [series(object), series("float64"), series("datetime64[us]")]),
}


FIRST = {"anything": "x", "word": "a"}


class Table:
    """Columns by name: their kind, and their values in pool and queries."""

    def __init__(self, columns: dict[str, tuple[Kind, list, list]]):
        self.columns = columns
        self.y = np.arange(POOL) % 2

    def __repr__(self) -> str:
        return repr({name: values for name, (_, *values) in self.columns.items()})

    @property
    def declared(self) -> list[str]:
        return [name for name, (kind, *_) in self.columns.items() if kind.declared]

    def pool(self, choice: int = 0) -> pd.DataFrame:
        return self._frame(1, lambda kind: kind.pool[choice % len(kind.pool)])

    def queries(self, choice: int = 0) -> pd.DataFrame:
        return self._frame(2, lambda kind: kind.queries[choice % len(kind.queries)])

    def _frame(self, part: int, chosen: Callable[[Kind], Callable]) -> pd.DataFrame:
        return pd.DataFrame(
            {n: chosen(column[0])(column[part]) for n, column in self.columns.items()}
        )

    def fitted(self, X: Any) -> CrumbClassifier:
        clf = CrumbClassifier(
            model=DummyClassifier(), strategy="full", categorical_features=self.declared or None
        )
        return clf.fit(X, self.y)


@st.composite
def tables(draw: st.DrawFn, names: tuple[str, ...] = tuple(KINDS)) -> Table:
    columns = {}
    for i, name in enumerate(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))):
        kind = KINDS[name]
        cell = kind.values if draw(st.booleans()) else st.none() | kind.values
        pool = draw(st.lists(cell, min_size=POOL, max_size=POOL))
        if name != "empty":
            # Text that is all dates is a column of dates.
            pool[0] = FIRST.get(name) or draw(kind.values)
        queries = draw(st.lists(cell, min_size=QUERIES, max_size=QUERIES))
        columns[f"{name} {i}"] = kind, pool, queries
    return Table(columns)


def assert_same(got: tuple[Any, np.ndarray], expected: tuple[Any, np.ndarray]) -> None:
    """The same cells, by their text, and the same points."""
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-9, atol=1e-9)
    if got[0] is None:
        return
    mine, theirs = (pd.DataFrame(rows) for rows in (got[0], expected[0]))
    for j in range(theirs.shape[1]):
        name = theirs.columns[j]
        if theirs.iloc[:, j].dtype.kind in "fiu":
            np.testing.assert_allclose(
                mine.iloc[:, j].to_numpy(dtype=float), theirs.iloc[:, j].astype(float), err_msg=name
            )
        else:
            found = texts(mine.iloc[:, j], None).tolist()
            assert found == texts(theirs.iloc[:, j], None).tolist(), name


odd = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@odd
@given(tables(), st.integers(0, 50))
def test_types_of_the_queries(table: Table, choice: int) -> None:
    clf = table.fitted(table.pool())
    assert_same(clf.encode(table.queries(choice)), clf.encode(table.queries()))


@odd
@given(tables(), st.integers(0, 50))
def test_types_of_the_pool(table: Table, choice: int) -> None:
    clf, usual = table.fitted(table.pool(choice)), table.fitted(table.pool())
    assert clf.pool_.encoder.numeric_indices == usual.pool_.encoder.numeric_indices
    for asked in (table.pool(), table.queries(), table.queries(choice)):
        assert_same((None, clf.encode(asked)[1]), (None, usual.encode(asked)[1]))


@odd
@given(tables(), st.integers(0, 50))
def test_single_rows(table: Table, choice: int) -> None:
    clf, asked = table.fitted(table.pool()), table.queries(choice)
    expected = clf.encode(table.queries())
    records = [{name: asked[name].tolist()[i] for name in asked} for i in range(QUERIES)]
    for rows in (records, [list(record.values()) for record in records]):
        read = [clf.encode_row(row) for row in rows]
        points = np.concatenate([point for _, point in read])
        assert_same((stack([piece for piece, _ in read]), points), expected)


@odd
@given(tables())
def test_lists_of_rows(table: Table) -> None:
    clf = table.fitted(table.pool())
    pool, queries = (
        [
            list(row)
            for row in zip(*(column[part] for column in table.columns.values()), strict=True)
        ]
        for part in (1, 2)
    )
    listed = CrumbClassifier(
        model=DummyClassifier(),
        strategy="full",
        categorical_features=[list(table.columns).index(name) for name in table.declared] or None,
    ).fit(pool, table.y)
    kinds = clf.pool_.encoder.categorical_indices, listed.pool_.encoder.categorical_indices
    # A list does not say what is a category: text is, numbers are if they are declared.
    assume(kinds[0] == kinds[1])
    assert_same((None, listed.encode(queries)[1]), (None, clf.encode(table.queries())[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        assert_same(clf.encode(queries), clf.encode(table.queries()))


@odd
@given(tables(("number", "whole", "flag")), st.integers(0, 50), st.sampled_from(["f4", "f8"]))
def test_arrays(table: Table, choice: int, dtype: str) -> None:
    """Arrays have no empty columns: the pool's first row is known here."""
    with np.errstate(over="ignore"):
        pool, queries = (
            frame.to_numpy(dtype="f8", na_value=np.nan).astype(dtype)
            for frame in (table.pool(), table.queries())
        )
    clf = table.fitted(pool)
    by_frame = table.fitted(pd.DataFrame(pool, columns=list(table.columns)))
    expected = clf.encode(queries)
    assert_same((None, expected[1]), (None, by_frame.encode(queries_of(table, queries))[1]))
    assert_same(clf.encode(queries.tolist()), expected)
    single = np.concatenate([clf.encode_row(row)[1] for row in queries])
    np.testing.assert_array_equal(single, expected[1])
    if dtype == "f8":
        assert_same(clf.encode(table.queries(choice)), expected)


def queries_of(table: Table, array: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(array, columns=list(table.columns))


CSV = tuple(name for name in KINDS if name not in ("lapse", "huge", "month", "anything"))


@odd
@given(tables(CSV), st.integers(0, 50))
def test_queries_in_a_csv_file(table: Table, choice: int) -> None:
    """A CSV file forgets all types; whole numbers beside missing ones are floats to pandas."""
    for name, (_, pool, queries) in table.columns.items():
        assume(not {"", "nan"} & {v for v in queries if isinstance(v, str)})
        assume(not (name.startswith("id") and None in queries and pool))
    clf, file = table.fitted(table.pool(choice)), io.StringIO()
    table.queries().to_csv(file, index=False)
    file.seek(0)
    read = pd.read_csv(file)
    assert_same((None, clf.encode(read)[1]), clf.encode(table.queries()))


FILES = tuple(n for n in KINDS if n not in ("huge", "day as category", "month", "anything"))


@settings(odd, max_examples=20)
@given(tables(FILES), st.integers(0, 50))
def test_files(tmp_path_factory, table: Table, choice: int) -> None:
    """Read whole, and left on disk."""
    folder = tmp_path_factory.mktemp("odd")
    frame = table.pool(choice)
    dates = [n for n in frame if n.startswith("date") and not isinstance(frame[n][0], str)]
    written = frame.assign(**table.pool()[dates], target=table.y)  # Parquet has one offset a column
    pq.write_table(pa.Table.from_pandas(written), folder / "pool.parquet", row_group_size=5)
    # Parquet forgets that a column of numbers was a category.
    categories = [name for name in frame if name.startswith(("declared", "id", "code"))] or None
    clf = CrumbClassifier(model=DummyClassifier(), strategy="full", categorical_features=categories)
    usual = clone(clf).fit(frame, table.y)
    whole = clf.fit(folder / "pool.parquet", "target")
    source = count_rows(open_source(folder / "pool.parquet", "target"), LocalEngine(1))
    kept = FilePool(
        *(source, LocalEngine(1), Options.of(n_jobs=1)),
        classify=True,
        categorical_features=categories,
    )
    for asked in (table.pool(), table.queries(), table.queries(choice)):
        expected = (None, usual.encode(asked)[1])
        assert_same((None, whole.encode(asked)[1]), expected)
        assert_same((None, kept.encode(asked)[1]), expected)


def in_json(value: Any) -> Any:
    if isinstance(value, dt.timedelta):
        return value / dt.timedelta(days=1)
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, (dt.datetime, dt.time)) else value


JSON = (
    *("number", "whole", "flag", "word", "code", "declared", "id", "date", "lapse", "empty"),
    *("decimal", "time"),
)


@odd
@given(tables(JSON))
def test_json(table: Table) -> None:
    clf = table.fitted(table.pool())
    values = [column[2] for column in table.columns.values()]
    for kind, _, asked in table.columns.values():
        assume(kind is not KINDS["number"] or all(v is None or math.isfinite(v) for v in asked))
    rows = zip(*values, strict=True)
    said = [dict(zip(table.columns, map(in_json, row), strict=True)) for row in rows]
    schema = Schema.of(table.pool(), allow_missing=True)
    records = schema.read(json.loads(json.dumps(said)))
    expected = clf.encode(table.queries())
    assert_same(clf.encode(schema.table(records, clf.pool_.columns)), expected)
    points = [clf.encode_row(schema.row(record))[1] for record in records]
    assert_same((None, np.concatenate(points)), expected)


@odd
@given(tables(), st.integers(0, 50))
def test_a_trip_through_a_file(table: Table, choice: int) -> None:
    """What ``save`` and ``load`` do to the pool."""
    clf = table.fitted(table.pool(choice))
    rows, encoder = clf.pool_.rows, clf.pool_.encoder
    assume(isinstance(rows, pd.DataFrame))
    packed: dict[str, bytes] = {}
    pack_rows("rows", rows, {}, packed)
    unpacked = unpack_rows("rows", {}, packed, list(rows.columns), encoder.kinds_)
    again = table.fitted(unpacked)
    assert again.pool_.fingerprint == clf.pool_.fingerprint
    assert_same(again.encode(table.queries(choice)), clf.encode(table.queries(choice)))


PLAIN = ("number", "whole", "word", "code", "code as text")


@settings(odd, max_examples=8)
@given(tables(PLAIN))
def test_a_full_context_gives_the_package_s_answers(tabicl_classifier, table: Table) -> None:
    """The package sees the same table in the types that it knows, infinite values at the bounds."""
    pool, queries = table.pool(), table.queries()
    ours = CrumbClassifier(model=tabicl_classifier, strategy="full", device="cpu")
    answers = ours.fit(table.pool(1), table.y).predict_proba(table.queries(2))
    for name, (kind, *_) in table.columns.items():
        if kind is KINDS["number"]:
            known = pool[name][pool[name].abs() < 1e30]
            low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
            for frame in (pool, queries):
                far = frame[name].abs() >= 1e30
                frame.loc[far, name] = np.where(frame[name][far] > 0, high, low)
        if kind is KINDS["whole"]:
            pool[name], queries[name] = pool[name].astype(float), queries[name].astype(float)
        if kind is KINDS["word"]:
            pool[name], queries[name] = pool[name].fillna(np.nan), queries[name].fillna(np.nan)
    assume(any(pool[name].nunique(dropna=False) > 1 for name in pool))
    package = TabICLClassifier(
        model_path=tabicl_classifier, n_estimators=1, random_state=0, device="cpu"
    )
    theirs = package.fit(pool, table.y).predict_proba(queries)
    np.testing.assert_allclose(answers, theirs, rtol=1e-5, atol=1e-5)
