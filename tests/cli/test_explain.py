"""crumb explain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tables import FAST, PNG

from crumb import CrumbRegressor, explain


def explain_args(target, *more):
    tables = ["--train", "train.csv", "--test", "test.csv", "--target", target]
    return ["explain", *tables, "--out", "values.csv", "--background", "3", *FAST, *more]


def test_the_values_are_the_librarys(crumb, folder):
    status, out, _ = crumb(*explain_args("price", "--first", "4", "--picture", "bars.png"))
    assert status == 0
    found = pd.read_csv("values.csv")
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv").head(4)
    model = CrumbRegressor(context_size=60, n_clusters=3).fit(train, "price")
    expected = explain(model, test.drop(columns="price"), background=3)
    assert list(found.columns) == ["row", "column", "value", "shapley", "error", "base"]
    np.testing.assert_allclose(found["shapley"], expected.values.ravel(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found["base"][::4], expected.base_values, rtol=1e-3)
    assert found["value"][2] == test["city"][0]
    assert out.split()[:4] == ["column", "mean_shapley", "b", out.split()[3]]  # price = 3 b + a
    assert Path("bars.png").read_bytes().startswith(PNG)


def test_classes_and_the_rows_that_mattered(crumb, folder):
    more = "--first", "2", "--influence", "rows.csv", "--json"
    status, out, _ = crumb(*explain_args("animal", *more))
    assert status == 0
    found = pd.read_csv("values.csv")
    assert set(found["class"]) == {"cat", "dog"}
    assert len(found) == 2 * 2 * 4
    sums = found.groupby(["row", "column"])["shapley"].sum()
    assert sums.abs().max() < 1e-4  # what one class gains, the other loses
    rows = pd.read_csv("rows.csv")
    assert list(rows.columns[:5]) == ["query", "row", "distance", "influence", "target"]
    assert rows["query"].value_counts().tolist() == [20, 20]
    assert rows["a"][0] == pytest.approx(pd.read_csv("train.csv")["a"][rows["row"][0]])
    assert json.loads(out)["influence"] == "rows.csv"
