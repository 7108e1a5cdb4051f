"""CRUMB as a model of AutoGluon. Needs an environment of its own: ``make autogluon``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("autogluon.tabular", reason="extra autogluon")

from autogluon.tabular import TabularPredictor
from autogluon.tabular.testing import FitHelper

from crumb import CrumbClassifier, CrumbRegressor
from crumb.integrations.autogluon import CrumbModel

SMALL = {"n_clusters": 2, "context_size": 60}


def table(rows: int, seed: int, task: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.choice(["p", "q"], rows)})
    X.loc[::7, "a"] = np.nan
    signal = X["a"].fillna(0) + (X["b"] == "p") + 0.1 * rng.normal(size=rows)
    thirds = pd.qcut(signal, 3, labels=[*"xyz"]).astype(str)
    y = {"regression": signal, "binary": signal > 0.5, "multiclass": thirds}
    return X.assign(target=y[task])


def fitted(path: Path, task: str, settings: dict[str, Any], **how: Any) -> CrumbModel:
    made = CrumbModel(path=str(path), problem_type=task, hyperparameters=settings)
    data = table(300, 0, task)
    y = data.pop("target")
    y = y if task == "regression" else pd.Series(pd.factorize(y, sort=True)[0])
    return made.fit(X=data, y=y, num_gpus=0, **how)


def test_autogluons_own_checks() -> None:
    """All problem types, bagging, refitting, saving and loading; answers depend on the batch."""
    FitHelper.verify_model(
        CrumbModel, dict(SMALL), verify_single_prediction_equivalent_to_multi=False
    )


def test_answers_depend_on_the_row_alone_with_a_plan_made_at_fit() -> None:
    FitHelper.verify_model(CrumbModel, {**SMALL, "plan_at": "fit"}, bag=False, refit_full=False)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_predictor(task: str, tmp_path: Path) -> None:
    """CRUMB and a linear model, weighed together; saved and loaded."""
    predictor = TabularPredictor("target", path=str(tmp_path), problem_type=task, verbosity=0)
    given = {"hyperparameters": {CrumbModel: SMALL, "LR": {}}, "num_gpus": 0}
    predictor.fit(table(300, 0, task), **given)
    asked = table(40, 1, task)
    truth = asked.pop("target")
    answers = predictor.predict(asked, model="CRUMB")
    again = TabularPredictor.load(str(tmp_path)).predict(asked, model="CRUMB")
    pd.testing.assert_series_equal(answers, again)
    if task == "regression":
        assert np.corrcoef(answers, truth)[0, 1] > 0.9
    else:
        assert (answers.astype(str) == truth.astype(str)).mean() > 0.8


def test_bagged_and_stacked(tmp_path: Path) -> None:
    """In the second layer CRUMB sees the out-of-fold answers of the first."""
    predictor = TabularPredictor("target", path=str(tmp_path), verbosity=0)
    given = {"hyperparameters": {CrumbModel: SMALL, "LR": {}}, "num_gpus": 0}
    folds = {"num_bag_folds": 2, "num_stack_levels": 1, "dynamic_stacking": False}
    predictor.fit(table(300, 0, "multiclass"), **given, **folds)
    assert {"CRUMB_BAG_L1", "CRUMB_BAG_L2"} <= set(predictor.model_names())
    asked = table(40, 1, "multiclass")
    truth = asked.pop("target")
    answers = predictor.predict(asked, model="CRUMB_BAG_L2")
    assert (answers == truth).mean() > 0.8


def test_settings_reach_the_estimator(tmp_path: Path) -> None:
    model = fitted(tmp_path, "regression", {**SMALL, "random_state": 7}).model
    assert isinstance(model, CrumbRegressor)
    asked = {"n_clusters": 2, "context_size": 60, "random_state": 7, "device": "cpu"}
    assert model.get_params().items() >= asked.items()
    assert isinstance(fitted(tmp_path, "binary", SMALL).model, CrumbClassifier)


def test_time_limit_becomes_a_budget(tmp_path: Path) -> None:
    assert 0.1 <= fitted(tmp_path, "binary", {}, time_limit=60).model.budget <= 30
    assert fitted(tmp_path, "binary", {}).model.budget is None
    for fixed in (SMALL, {"plan_at": "fit"}):
        assert fitted(tmp_path, "binary", fixed, time_limit=60).model.budget is None
    assert fitted(tmp_path, "binary", {"budget": "9s"}, time_limit=60).model.budget == "9s"


def test_memory_grows_with_the_table() -> None:
    tables = [table(rows, 0, "regression") for rows in (100, 200_000)]
    small, large = (
        CrumbModel.estimate_memory_usage_static(
            X=one.drop(columns="target"), y=one["target"], problem_type="regression"
        )
        for one in tables
    )
    assert 1e9 < small < large < 1e10
