"""Columns of a training table as a contract: kinds, missing values, examples, tables."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.serve.limits import Refusal
from crumb.serve.schema import Schema
from crumb.table.encoder import texts

N = 12


def frame() -> pd.DataFrame:
    days = pd.date_range("2024-01-01", periods=N)
    return pd.DataFrame(
        {
            "whole": range(N),
            "real": np.linspace(0, 1, N),
            "gap": [np.nan, *range(1, N)],
            "flag": [True, False] * (N // 2),
            "maybe": [True, None] * (N // 2),
            "town": ["Rome", "Oslo"] * (N // 2),
            "person": [f"name {i}" for i in range(N)],
            "grade": pd.Categorical([1, 2] * (N // 2)),
            "kind": pd.Categorical(["a", "b"] * (N // 2)),
            "when": days,
            "zone": days.tz_localize("Europe/Rome"),
            "day": [datetime.date(2024, 1, 1)] * N,
            "span": pd.to_timedelta(range(N), unit="D"),
            "void": [None] * N,
        }
    )


def test_kinds_missing_values_and_examples():
    found = {column.name: column for column in Schema.of(frame()).columns}
    assert {name: column.kind for name, column in found.items()} == {
        "whole": "number", "real": "number", "gap": "number", "flag": "boolean",
        "maybe": "boolean", "town": "text", "person": "text", "grade": "number", "kind": "text",
        "when": "datetime", "zone": "datetime", "day": "datetime", "span": "number", "void": "any",
    }  # fmt: skip
    assert [name for name, column in found.items() if column.missing] == ["gap", "maybe", "void"]
    assert found["town"].example in ("Rome", "Oslo")
    assert found["person"].example == "text"  # a name that one row holds is nobody's business
    assert found["when"].example == "2024-01-06T00:00:00Z"
    assert (found["real"].example, found["gap"].example, found["void"].example) == (0.5, 6, None)
    assert isinstance(found["gap"].example, int)


def test_the_example_is_valid_and_null_can_be_allowed_everywhere():
    schema = Schema.of(frame())
    schema.read([schema.example()])
    with pytest.raises(Refusal, match="Column 'real' is missing in record 1"):
        schema.read([schema.example(), {**schema.example(), "real": None}])
    open_to_all = Schema.of(frame(), allow_missing=True)
    open_to_all.read([dict.fromkeys(open_to_all.names)])
    described = open_to_all.records.json_schema()["$defs"]["Record"]["properties"].values()
    assert all({"type": "null"} in column["anyOf"] for column in described)


def test_it_survives_a_file():
    schema = Schema.of(frame())
    assert Schema.from_json(schema.to_json()) == schema


def test_requests_mean_what_the_training_table_means():
    """A row of the training table, said in JSON, is encoded like that row."""
    X = frame().drop(columns="person")
    model = CrumbClassifier(n_clusters=1, context_size=5).fit(X, np.arange(N) % 2)
    schema = Schema.of(X)
    said = [
        {
            "whole": i, "real": float(X.real[i]), "gap": None if i == 0 else i, "flag": i % 2 == 0,
            "maybe": True if i % 2 == 0 else None, "town": X.town[i], "grade": 1 + i % 2,
            "kind": X.kind[i], "when": X.when[i].isoformat(), "zone": X.zone[i].isoformat(),
            "day": "2024-01-01T00:00:00Z", "span": i, "void": None,
        }
        for i in range(N)
    ]  # fmt: skip
    read = schema.read(said)
    table = schema.table(read + read, model.pool_.columns)
    rows, points = model.encode(table)
    wanted_rows, wanted_points = model.encode(X)
    np.testing.assert_allclose(points, np.concatenate([wanted_points] * 2))
    for name in X.columns:
        assert texts(rows[name][:N], None).tolist() == texts(wanted_rows[name], None).tolist(), name


def test_written_dates_are_dates_unless_they_are_categories():
    X = pd.DataFrame(
        {"day": ["2024-01-01", "2024-01-03T00:00:00Z", "2024-01-02"] * 4, "x": range(N)}
    )
    schema = Schema.of(X)
    assert (schema.columns[0].kind, schema.columns[0].example) == (
        "datetime",
        "2024-01-02T00:00:00Z",
    )
    model = CrumbClassifier(n_clusters=1, context_size=5).fit(X, np.arange(N) % 2)
    schema.check(model)
    (read,) = schema.read([{"day": "2024-01-03", "x": 1}])
    np.testing.assert_array_equal(model.encode_row(schema.row(read))[1], model.pool_.points[1:2])
    with pytest.raises(Refusal, match="Column 'day' of record 0: Input should be a date and time"):
        schema.read([{"day": "soon", "x": 1}])
    declared = CrumbClassifier(n_clusters=1, context_size=5, categorical_features=["day"])
    words = Schema.of(X, categories=declared.fit(X, np.arange(N) % 2).pool_.encoder.declared())
    words.check(declared)
    assert words.columns[0].kind == "text"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", True, "Column 'whole' of record 0: Input should be a valid number"),
        ("flag", 1, "Column 'flag' of record 0: Input should be a valid boolean"),
        ("town", 3, "Column 'town' of record 0: Input should be a valid string"),
        ("when", "soon", "Column 'when' of record 0: Input should be a date and time such as"),
        ("when", 3, "Column 'when' of record 0: Input should be a valid string"),
        ("when", "0001-01-01T00:00:00+14:00", "Input should be a date and time such as"),
        ("town", "x" * 10_001, "Column 'town' of record 0: String should have at most 10000 char"),
    ],
)
def test_wrong_values(name, value, said):
    schema = Schema.of(frame())
    with pytest.raises(Refusal, match=said) as refused:
        schema.read([{**schema.example(), name: value}])
    assert refused.value.status_code == 422


def test_a_column_that_the_training_table_says_nothing_about_takes_anything():
    schema = Schema.of(frame())
    for value in (None, 3, 2**60, 1.5, "text"):
        assert schema.read([{**schema.example(), "void": value}])[0]["void"] is value
    for wrong in ({}, [1], "x" * 10_001):
        with pytest.raises(Refusal, match="void"):
            schema.read([{**schema.example(), "void": wrong}])


def test_an_empty_column_of_an_array_takes_numbers():
    """Rows of an array are numbers, whatever the pool holds."""
    schema = Schema.of(np.array([[1.0, np.nan]] * 4))
    assert schema.row(schema.read([{"0": 1, "1": None}])[0]).tolist()[0] == 1.0
    assert schema.row(schema.read([{"0": 1, "1": 2}])[0]).tolist() == [1.0, 2.0]
    with pytest.raises(Refusal, match="1"):
        schema.read([{"0": 1, "1": "text"}])


def test_arrays_have_columns_by_number():
    schema = Schema.of(np.arange(6.0).reshape(3, 2))
    assert schema.names == ["0", "1"]
    read = schema.read([{"0": 1, "1": 2}, {"1": 4, "0": 3}])
    np.testing.assert_array_equal(schema.table(read, [0, 1]), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(schema.row(schema.read([{"0": 5, "1": 10**400}])[0]), [5, np.inf])


def test_names_that_are_the_same_as_text():
    with pytest.raises(InvalidInput, match="same name"):
        Schema.of(pd.DataFrame([[1, 2]], columns=[1, "1"]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | st.integers() | st.floats(allow_nan=False), min_size=1, max_size=5))
def test_numbers_of_any_size(values):
    schema = Schema.of(pd.DataFrame({"x": [1.0, None]}))
    found = schema.table(schema.read([{"x": value} for value in values]), ["x"])["x"]
    for value, number in zip(values, found, strict=True):
        if value is None:
            assert np.isnan(number)
        elif abs(value) <= 1e308:
            assert number == float(value)
        else:
            assert abs(number) >= 1e308
            assert (number > 0) == (value > 0)
