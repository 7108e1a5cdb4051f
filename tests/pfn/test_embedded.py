"""The networks inside the package: as good as promised, in the range that is promised."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_wine,
    make_friedman1,
)
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from crumb import CrumbClassifier, CrumbRegressor
from crumb.pfn.models import card_for, checksum, locate
from pretraining.network import configuration
from pretraining.variants import VARIANTS


def classifier(**more) -> CrumbClassifier:
    return CrumbClassifier(strategy="full", device="cpu", random_state=0, **more)


def regressor(**more) -> CrumbRegressor:
    return CrumbRegressor(strategy="full", device="cpu", random_state=0, **more)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_files_are_what_the_training_code_makes(task):
    path = locate(card_for("embedded", task))
    assert path.stat().st_size <= 10_000_000
    content = torch.load(path, map_location="cpu", weights_only=True)
    assert content.keys() - {"training"} == {"config", "state_dict"}
    assert content["config"] == configuration(task, variant=VARIANTS["gentle-even"].parts)


@pytest.mark.parametrize("load", [load_wine, load_digits], ids=lambda f: f.__name__)
def test_classifier_has_a_better_log_loss_than_gradient_boosting(load):
    X, y = load(return_X_y=True)
    X, queries, y, truth = train_test_split(
        X, y, train_size=min(500, len(X) // 2), random_state=0, stratify=y
    )
    queries, truth = queries[:400], truth[:400]
    ours = log_loss(truth, classifier().fit(X, y).predict_proba(queries))
    theirs = log_loss(
        truth, HistGradientBoostingClassifier(random_state=0).fit(X, y).predict_proba(queries)
    )
    assert ours < theirs


def test_collinear_columns_are_a_weakness_but_not_a_failure():
    """Thirty measurements of ten properties, where a straight line is best (docs/model-card.md)."""
    X, y = load_breast_cancer(return_X_y=True)
    X, queries, y, truth = train_test_split(X, y, train_size=0.5, random_state=0, stratify=y)
    assert roc_auc_score(truth, classifier().fit(X, y).predict_proba(queries)[:, 1]) > 0.98


@pytest.mark.parametrize(
    "table",
    [load_diabetes(return_X_y=True), make_friedman1(800, noise=1.0, random_state=0)],
    ids=["diabetes", "friedman1"],
)
def test_regressor_has_a_smaller_error_than_gradient_boosting(table):
    X, queries, y, truth = train_test_split(*table, train_size=0.6, random_state=0)
    ours = root_mean_squared_error(truth, regressor().fit(X, y).predict(queries))
    theirs = root_mean_squared_error(
        truth, HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(queries)
    )
    assert ours < theirs


def test_larger_contexts_help():
    X, y = make_friedman1(3_300, noise=0.3, random_state=1)
    scores = [
        r2_score(y[3_000:], regressor().fit(X[:n], y[:n]).predict(X[3_000:])) for n in (500, 3_000)
    ]
    assert scores[1] > scores[0] > 0.95


@pytest.mark.parametrize(("rows", "features"), [(50, 1), (50, 100), (300, 100)])
def test_the_range_that_is_promised(rows, features):
    rng = np.random.default_rng(rows + features)
    X = rng.normal(size=(rows + 200, features))
    value = X[:, 0] + X[:, features // 2]
    y = value > 0
    proba = classifier().fit(X[:rows], y[:rows]).predict_proba(X[rows:])
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)
    least = (
        0.6 if (rows, features) == (50, 100) else 0.85
    )  # 50 rows say little about which 2 of 100 columns matter
    assert ((proba[:, 1] > 0.5) == y[rows:]).mean() > least
    predicted = regressor().fit(X[:rows], value[:rows]).predict(X[rows:])
    assert r2_score(value[rows:], predicted) > (0.2 if (rows, features) == (50, 100) else 0.85)


@pytest.mark.parametrize("count", [10, 15])
def test_ten_classes_and_more(count):
    """More than ten go through tabicl's hierarchy."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(count, 6)) * 3
    y = np.arange(900) % count
    X = centres[y] + rng.normal(size=(900, 6))
    proba = classifier().fit(X[:700], y[:700]).predict_proba(X[700:])
    assert proba.shape == (200, count)
    assert (proba.argmax(axis=1) == y[700:]).mean() > 0.9


def test_categories_and_missing_values():
    rng = np.random.default_rng(0)
    kind = rng.choice(["pear", "apple", "plum", "fig", "lime", "kiwi"], size=900)
    size = rng.normal(size=900)
    price = (
        pd.Series(kind)
        .map({"pear": 3, "apple": -2, "plum": 0, "fig": 2, "lime": -3, "kiwi": 1})
        .to_numpy()
        + size
    )
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(900) < 0.15, np.nan, size),
            "kind": kind,
            "noise": rng.random(900),
        }
    )
    frame.loc[rng.random(900) < 0.1, "kind"] = None
    scores = regressor().fit(frame[:700], price[:700]).score(frame[700:], price[700:])
    assert scores > 0.7  # a tenth of the kinds and a seventh of the sizes are gone
    assert classifier().fit(frame[:700], price[:700] > 0).score(frame[700:], price[700:] > 0) > 0.8


def test_probabilities_are_calibrated():
    """Labels drawn with known probabilities: the network is neither bolder nor shyer than these."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 4))
    chance = 1 / (1 + np.exp(-(1.2 * X[:, 0] - X[:, 1])))
    y = rng.random(3_000) < chance
    proba = classifier().fit(X[:1_000], y[:1_000]).predict_proba(X[1_000:])[:, 1]
    assert np.abs(proba - chance[1_000:]).mean() < 0.05
    logit = np.log(proba / (1 - proba))
    slope = np.polyfit(logit, np.log(chance / (1 - chance))[1_000:], 1)[0]
    assert slope == pytest.approx(1, abs=0.15)


def test_quantiles_cover_what_they_say():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=2_000)
    low, high = (
        regressor()
        .fit(X[:1_000], y[:1_000])
        .predict(X[1_000:], output_type="quantiles", quantiles=[0.1, 0.9])
        .T
    )
    inside = ((low < y[1_000:]) & (y[1_000:] < high)).mean()
    assert inside == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_networks_of_a_version_keep_their_name(task: str) -> None:
    """Results that name them can be repeated when ``"embedded"`` has become another network."""
    old = card_for("embedded-0.1", task)
    assert (
        old.sha256
        == {
            "classification": "392992aee240cb4192eb61be6ae9873b8f35ec5c6b68a661ac2899debdef7175",
            "regression": "37feecc12f518a52844d2ed042eb8ae1bda22db5cf2118a57f3bfa5655edea38",
        }[task]
    )
    path = locate(old)
    assert path is not None
    assert checksum(path) == old.sha256
    kind = CrumbClassifier if task == "classification" else CrumbRegressor
    X, y = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2
    by_name, by_path = (kind(model=model).fit(X, y).predict(X) for model in (old.name, path))
    np.testing.assert_array_equal(by_name, by_path)
