"""CRUMB as a model of AutoGluon. Needs an environment of its own: ``make autogluon``."""

from __future__ import annotations

import json
import subprocess
import sys
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
    thirds = pd.cut(signal, [-np.inf, 0.1, 0.9, np.inf], labels=[*"xyz"]).astype(str)
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
    asked = table(200, 1, task)
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
    asked = table(200, 1, "multiclass")
    truth = asked.pop("target")
    answers = predictor.predict(asked, model="CRUMB_BAG_L2")
    assert (answers == truth).mean() > 0.8


def test_settings_reach_the_estimator(tmp_path: Path) -> None:
    model = fitted(tmp_path, "regression", {**SMALL, "random_state": 7}).model
    assert isinstance(model, CrumbRegressor)
    asked = {"n_clusters": 2, "context_size": 60, "random_state": 7, "device": "cpu"}
    assert model.get_params().items() >= asked.items()
    assert isinstance(fitted(tmp_path, "binary", SMALL).model, CrumbClassifier)


def test_short_time_limit_becomes_a_budget(tmp_path: Path) -> None:
    assert 0.1 <= fitted(tmp_path, "binary", {}, time_limit=60).model.budget <= 30
    for none in ({}, {"time_limit": 3_600}):  # an hour leaves the defaults
        assert fitted(tmp_path, "binary", {}, **none).model.budget is None
    for fixed in (SMALL, {"plan_at": "fit"}):
        assert fitted(tmp_path, "binary", fixed, time_limit=60).model.budget is None
    assert fitted(tmp_path, "binary", {"budget": "9s"}, time_limit=60).model.budget == "9s"


def memory(rows: int, columns: int, **how: Any) -> float:
    """Gigabytes that AutoGluon is told."""
    X = pd.DataFrame(np.zeros((rows, columns), np.float32)).add_prefix("x")
    y = pd.Series(np.zeros(rows))
    return CrumbModel.estimate_memory_usage_static(X=X, y=y, problem_type="regression", **how) / 1e9


# Rows and columns of a table, and the gigabytes that its fit and a prediction took on two cores:
# blood-transfusion, qsar-biodeg, MIC, polish_companies_bankruptcy, GiveMeSomeCredit, Diabetes130US.
MEASURED = [(498, 4, 0.27), (904, 41, 0.30), (1_487, 111, 0.43), (5_810, 64, 0.57),
            (149_900, 10, 0.50), (71_418, 47, 1.48)]  # fmt: skip


@pytest.mark.parametrize(("rows", "columns", "taken"), MEASURED)
def test_memory_is_what_was_measured(rows: int, columns: int, taken: float) -> None:
    assert 0.8 * taken < memory(rows, columns, num_cpus=2) < 2 * taken


def test_memory_grows_with_cores_and_the_model() -> None:
    small = memory(1_000, 20)
    assert small < memory(1_000, 20, num_cpus=8)
    large = [memory(1_000, 20, hyperparameters={"model": one}) for one in ("tabicl-v2", "a.ckpt")]
    assert small < min(large)


def test_tabarena_entry(tmp_path: Path) -> None:
    """TabArena finds it by name, and builds its default configuration bagged in eight folds."""
    pytest.importorskip("tabarena", reason="extra tabarena")
    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle
    from tabarena.models import register_model_info
    from tabarena.models.utils import get_model_info_from_name

    from crumb.integrations.tabarena import crumb_info

    register_model_info(crumb_info)
    assert get_model_info_from_name("CRUMB") is crumb_info
    bundle = TabArenaV0pt1ExperimentBundle(models=[("CRUMB", 0)], verbosity=0)
    (experiment,) = bundle.build_experiments(num_cpus=1, num_gpus=0)
    assert experiment.name == crumb_info.method_metadata.config_default
    assert experiment.method_kwargs["fit_kwargs"]["num_bag_folds"] == 8


def test_tabarenas_runner(tmp_path: Path) -> None:
    """benchmarks/arena.py, on a small table: a run takes what the runner and the results have."""
    pytest.importorskip("tabarena", reason="extra tabarena")
    data = table(90, 0, "binary")
    data.to_parquet(tmp_path / "made.parquet")
    about = {"name": "made", "file": "made.parquet", "task": "binary", "target": "target"}
    about |= {"n_rows": 90, "n_features": 2, "tabarena": True}
    (tmp_path / "index.json").write_text(json.dumps([about]))
    script = Path(__file__).parents[2] / "benchmarks" / "arena.py"

    def run(out: str, *words: str) -> list[dict[str, Any]]:
        work = ["--data", tmp_path, "--work", tmp_path / "work", "--cores", 1]
        command = [sys.executable, script, *work, "--out", tmp_path / out, *words]
        subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=600)
        return json.loads((tmp_path / out).read_text())["records"]

    found = run("first.json", "--ways", "CRUMB", "RandomForest")
    assert [one["way"] for one in found] == ["CRUMB", "RandomForest"]
    assert run("second.json", "--ways", "CRUMB", "RandomForest") == found
    marked = [{**one, "error": 0.25} for one in found]
    (tmp_path / "second.json").write_text(json.dumps({"records": marked}))
    again = run("second.json", "--ways", "CRUMB", "RandomForest", "--again", "CRUMB")
    assert again == [marked[1], found[0]]  # the forest's record stays
    assert all(0 <= one["error"] < 0.3 and one["train_s"] > 0 for one in found)
