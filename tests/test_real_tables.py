"""Real tables, where their folder is at hand: every kind of column and target goes through."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from crumb import CrumbClassifier, CrumbRegressor

FOLDER = Path(os.environ.get("CRUMB_DATASETS", Path(__file__).parents[2] / "shared" / "datasets"))
pytestmark = [
    pytest.mark.datasets,
    pytest.mark.skipif(
        not (FOLDER / "index.json").exists(), reason="no folder of real tables (set CRUMB_DATASETS)"
    ),
]


def table(name: str, rows: int, shuffle: bool = True) -> tuple[pd.DataFrame, pd.Series]:
    (about,) = [
        entry for entry in json.loads((FOLDER / "index.json").read_text()) if entry["name"] == name
    ]
    frame = pd.read_parquet(FOLDER / about["file"]).dropna(subset=[about["target"]])
    frame = frame.sample(min(rows, len(frame)), random_state=0) if shuffle else frame
    return frame.drop(columns=about["target"]), frame[about["target"]]


@pytest.mark.parametrize(
    "name",
    [
        "anneal",
        "adult",
        "Diabetes130US",
        "Amazon_employee_access",
        "kropt",
        "credit-g",
        "mushroom",
        "MIC",
    ],
)
def test_classification(name: str) -> None:
    X, y = table(name, 2_000)
    queries = 80
    clf = CrumbClassifier(n_clusters=3, context_size=200).fit(X[queries:], y[queries:])
    proba = clf.predict_proba(X[:queries])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    seen = y[:queries].isin(clf.classes_).to_numpy()
    codes = np.searchsorted(clf.classes_, y[:queries][seen].to_numpy())
    share = y[queries:].value_counts(normalize=True).reindex(clf.classes_).to_numpy()
    clipped = np.clip(proba[seen], 1e-6, None)
    loss = log_loss(
        codes, clipped / clipped.sum(axis=1, keepdims=True), labels=range(len(clf.classes_))
    )
    prior = log_loss(codes, np.tile(share, (len(codes), 1)), labels=range(len(clf.classes_)))
    assert loss < 1.1 * prior, "worse than always answering with the class frequencies"


@pytest.mark.parametrize(
    "name", ["airbnb_nyc_2019", "diamonds", "houses", "Food_Delivery_Time", "wine_quality"]
)
def test_regression(name: str) -> None:
    X, y = table(name, 2_000)
    reg = CrumbRegressor(n_clusters=3, context_size=200).fit(X[80:], y[80:])
    median = reg.predict(X[:80], output_type="median")
    assert np.abs(median - y[:80]).mean() < np.abs(y[80:].median() - y[:80]).mean()


def test_matched_contexts_beat_uniform_ones_on_a_table_with_local_structure() -> None:
    X, y = table("electricity", 6_000)
    loss = {}
    for strategy in ("mmd", "uniform"):
        clf = CrumbClassifier(strategy=strategy, context_size=300).fit(X[300:], y[300:])
        loss[strategy] = log_loss(y[:300], clf.predict_proba(X[:300]), labels=clf.classes_)
    assert loss["mmd"] < loss["uniform"]
