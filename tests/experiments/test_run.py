"""One run: the same again for the same seed, scores that scikit-learn and brute force confirm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from experiment_tables import TIMES
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from experiments.dataset import DatasetMissing
from experiments.methods import estimator_settings
from experiments.metrics import SCORES, scores
from experiments.protocol import Overrides, Run
from experiments.protocols import PROTOCOLS, plan_runs
from experiments.run import OUTCOME, execute, failure, group_mmd2, query_groups
from experiments.sources import collection
from experiments.split import split

SOURCES = {source.name: source for source in collection("synthetic")}


def small(protocol: str, dataset: str, **changes: Any) -> list[Run]:
    given = {"models": ("embedded",), "seeds": 1, "queries": 24, "max_rows": 150, **changes}
    return plan_runs(PROTOCOLS[protocol], [SOURCES[dataset]], Overrides(**given))


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in TIMES}


@pytest.fixture(scope="module")
def mains() -> dict[str, dict[str, dict[str, Any]]]:
    """What the five methods of ``main`` give on two tables."""
    return {
        name: {run.method: execute(run, SOURCES[name].load(), "cpu") for run in small("main", name)}
        for name in ("mixed", "slopes")
    }


@pytest.mark.parametrize("dataset", ["mixed", "slopes"])
def test_the_same_run_gives_the_same_row(mains: dict[str, Any], dataset: str) -> None:
    data = SOURCES[dataset].load()
    for method, first in mains[dataset].items():
        assert first["status"] == "ok"
        assert list(first) == list(OUTCOME)
        both = first["plan_seconds"] + first["pass_seconds"]
        assert first["seconds"] == pytest.approx(both, abs=1e-5)
        filled = (
            {"accuracy", "auc", "log_loss"} if data.task == "classification" else {"rmse", "r2"}
        )
        assert {name for name in SCORES if first[name] is not None} == filled
        if method in ("crumb", "micp", "uniform"):
            (run,) = small("main", dataset, methods=(method,))
            assert without_times(first) == without_times(execute(run, data, "cpu"))


def test_methods_use_the_rows_that_they_should() -> None:
    data = SOURCES["local-rules"].load()
    found = {run.method: execute(run, data, "cpu") for run in small("main", "local-rules")}
    assert {name: one["context_mean"] for name, one in found.items()} == {
        "full": 150, "knn": 15, "crumb": 15, "micp": 15, "uniform": 15,
    }  # fmt: skip
    assert (found["full"]["contexts"], found["uniform"]["contexts"]) == (1, 1)
    assert 20 <= found["knn"]["contexts"] <= 24
    assert found["crumb"]["contexts"] <= 20
    assert found["crumb"]["mmd2"] < found["uniform"]["mmd2"]  # on the same groups of queries


def test_scores_are_those_of_the_estimator_used_by_hand() -> None:
    data = SOURCES["rings"].load()
    (run,) = small("main", "rings", methods=("crumb",))
    found = execute(run, data, "cpu")
    rows = split(run, data)
    by_hand = CrumbClassifier(model="embedded", device="cpu", **estimator_settings(run))
    by_hand.fit(data.X.iloc[rows.pool], data.y[rows.pool])
    proba, truth = by_hand.predict_proba(data.X.iloc[rows.queries]), data.y[rows.queries]
    assert found["accuracy"] == pytest.approx(accuracy_score(truth, proba.argmax(axis=1)), abs=1e-7)
    clipped = np.clip(proba, 1e-6, None)
    clipped /= clipped.sum(axis=1, keepdims=True)
    assert found["log_loss"] == pytest.approx(log_loss(truth, clipped, labels=[0, 1, 2]), rel=1e-6)


def test_auc_and_r2_are_scikit_learn_s() -> None:
    rng = np.random.default_rng(0)
    truth, proba = rng.permutation(np.arange(60) % 3), rng.dirichlet(np.ones(3), 60)
    found = scores("classification", truth, proba)
    assert found["auc"] == pytest.approx(roc_auc_score(truth, proba, multi_class="ovr"), rel=1e-6)
    two = scores(
        "classification", truth % 2, proba[:, :2] / proba[:, :2].sum(axis=1, keepdims=True)
    )
    expected = roc_auc_score(truth % 2, proba[:, 1] / proba[:, :2].sum(axis=1))
    assert two["auc"] == pytest.approx(expected, rel=1e-6)
    assert (
        scores("classification", np.zeros(5, dtype=int), proba[:5])["auc"] is None
    )  # one class: no order to judge
    assert scores("classification", np.zeros(5, dtype=int), np.ones((5, 1)))["log_loss"] == 0.0
    numbers, guesses = rng.normal(size=(2, 30))
    found = scores("regression", numbers, guesses)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(numbers, guesses), rel=1e-6)
    assert found["r2"] == pytest.approx(r2_score(numbers, guesses), rel=1e-6)


def test_mmd2_is_measured_on_crumb_s_own_clusters() -> None:
    data = SOURCES["slopes"].load()
    run = next(one for one in small("rff", "slopes", max_rows=900) if one.method == "exact B=1")
    rows, model = split(run, data), CrumbClassifier(device="cpu", **estimator_settings(run))
    model.fit(data.X.iloc[rows.pool], (data.y[rows.pool] > 0).astype(int))
    plan = model.plan(data.X.iloc[rows.queries])
    groups = query_groups(plan.query_points, run)
    assert len({*zip(groups, plan.labels, strict=True)}) == plan.n_clusters == groups.max() + 1
    measured = group_mmd2(plan, groups)
    assert measured is not None
    of_group = [
        plan.final_mmd2[plan.labels[groups == group][0]] for group in range(plan.n_clusters)
    ]
    np.testing.assert_allclose(measured, of_group, rtol=1e-8, atol=1e-12)


def test_variants_of_stage_2_list_the_same_clusters() -> None:
    data = SOURCES["slopes"].load()
    runs = small("rff", "slopes", max_rows=900, methods=("exact B=1", "rff D=16 B=100", "centroid"))
    assert [(run.kernel, run.D, run.B) for run in runs] == [
        ("exact", None, 1),
        ("rff", 16, 100),
        (None, None, None),
    ]
    found = [execute(run, data, "cpu") for run in runs]
    assert len({tuple(one["cluster_queries"]) for one in found}) == 1
    for one in found:
        assert sum(one["cluster_queries"]) == 24
        weighted = np.average(one["cluster_mmd2"], weights=one["cluster_queries"])
        assert one["mmd2"] == pytest.approx(weighted, rel=1e-3)
        assert np.average(one["cluster_score"], weights=one["cluster_queries"]) == pytest.approx(
            -(one["rmse"] ** 2), rel=1e-4
        )
    assert found[0]["mmd2"] < found[1]["mmd2"]


@pytest.mark.parametrize(
    "protocol", ["consistency", "large", "drift", "clusters", "retrieval", "factorial"]
)
def test_every_protocol_runs(protocol: str) -> None:
    data = SOURCES["board"].load()
    runs = small(protocol, "board", max_rows=60, queries=6)
    for run in runs[:: max(1, len(runs) // 4)]:
        assert execute(run, data, "cpu")["status"] == "ok"


def test_a_class_that_the_pool_lacks_is_answered_wrong_and_not_refused() -> None:
    data = SOURCES["rings"].load()
    rare = data.y.copy()
    rare[:] = 0
    run = small("main", "rings", methods=("uniform",))[0]
    rare[split(run, data).queries[:5]] = 1
    found = execute(run, type(data)("rings", "classification", data.X, rare, "made"), "cpu")
    assert found["accuracy"] == pytest.approx(1 - 5 / 24)


def test_failures_are_one_sentence() -> None:
    assert failure(InvalidInput("a\nb"))["message"] == "a b"
    assert failure(InvalidInput("a"))["status"] == "error"
    assert failure(DatasetMissing("gone"))["status"] == "missing"
    assert failure(KeyError("x"))["message"] == "KeyError: 'x'"
    run = Run("main", "rings", "classification", "embedded", "full", 0)
    with pytest.raises(InvalidInput, match="was not known"):
        execute(run, SOURCES["rings"].load())
