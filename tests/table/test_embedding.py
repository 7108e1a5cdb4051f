"""The selection space with the network's row embeddings: those of the package, and of use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from checkpoints import tabicl_v1_classifier, tabicl_v2_classifier, tabicl_v2_regressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

import crumb
from crumb import CrumbClassifier, CrumbRegressor, select_contexts
from crumb.cli import main
from crumb.errors import InvalidInput, PlanMismatch
from crumb.pfn import BackendSettings, ContextTask, resolve_backend
from crumb.pfn.base import TargetScale
from crumb.table.embedding import COMPONENTS

SMALL = {"n_clusters": 3, "context_size": 30, "device": "cpu"}


def table(rows: int, seed: int = 0, noise: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """The first column decides, the others are noise."""
    X = np.random.default_rng(seed).normal(size=(rows, 1 + noise))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize("make", [tabicl_v1_classifier, tabicl_v2_classifier, tabicl_v2_regressor])
def test_embeddings_are_those_of_the_package(make: Any, tmp_path: Path) -> None:
    task = "regression" if make is tabicl_v2_regressor else "classification"
    backend: Any = resolve_backend(
        make(tmp_path / "net.ckpt"), task, BackendSettings(2, {}, "cpu", 0, None)
    )
    X, y = table(40)
    target = X[:, 0] * 100 if task == "regression" else y
    seen_as = TargetScale.of(target).scaled(target) if task == "regression" else y
    one = ContextTask.of(X, seen_as, X[:7] + 0.1)
    estimator = backend.estimator().fit(X, target)
    seen: list[torch.Tensor] = []
    hook = estimator.model_.row_interactor.register_forward_hook(
        lambda module, given, rows: seen.append(rows)
    )
    estimator.predict(one.queries)
    hook.remove()
    np.testing.assert_allclose(backend.embed(one), seen[0][0, 40:].detach().numpy(), atol=1e-5)


def test_contexts_are_closer_in_the_column_that_decides() -> None:
    X, y = table(600)
    queries = table(60, seed=1)[0]

    def apart(features: str | None) -> float:
        clf = CrumbClassifier(features=features, n_clusters=10, context_size=40, device="cpu").fit(
            X, y
        )
        plan = clf.plan(queries)
        means = np.array([X[context, 0].mean() for context in plan.contexts])
        return float(np.abs(means[plan.labels] - queries[:, 0]).mean())

    assert apart("embedding") < 0.7 * apart(None)


def test_the_same_rows_get_the_same_points_in_any_batch_and_after_a_trip_through_a_file(
    tmp_path: Path,
) -> None:
    X, y = table(120)
    frame = pd.DataFrame(X, columns=list("abcdefg")).assign(kind=np.where(y, "red", "blue"))
    clf = CrumbClassifier(features="embedding", **SMALL).fit(frame, y)
    points = clf.encode(frame[:50])[1]
    assert points.shape[1] == clf.pool_.points.shape[1] <= 9 + COMPONENTS
    np.testing.assert_allclose(clf.encode(frame[7:8])[1][0], points[7], atol=1e-4)
    np.testing.assert_allclose(clf.pool_.points[:50], points, atol=1e-4)
    clf.save(tmp_path / "clf.crumb")
    again = crumb.load(tmp_path / "clf.crumb")
    np.testing.assert_array_equal(again.predict_proba(frame[:20]), clf.predict_proba(frame[:20]))
    plan = clf.plan(frame[:20])
    other = CrumbClassifier(features="embedding", random_state=1, **SMALL).fit(frame, y)
    with pytest.raises(
        PlanMismatch
    ):  # another seed draws another context, and so makes another space
        other.predict_proba(frame[:20], plan=plan)


def test_many_classes_regression_and_columns_that_say_nothing() -> None:
    X, _ = table(150)
    many = CrumbClassifier(features="embedding", min_per_class=0, **SMALL).fit(
        X, np.arange(150) % 14
    )
    assert many.predict_proba(X[:5]).shape == (5, 14)
    assert CrumbRegressor(features="embedding", **SMALL).fit(X, X[:, 0]).predict(X[:5]).shape == (
        5,
    )
    flat = CrumbClassifier(features="embedding", **SMALL).fit(np.ones((60, 2)), np.arange(60) % 2)
    assert np.isfinite(flat.predict_proba(np.ones((3, 2)))).all()


def test_models_without_embeddings_and_misspelt_names_are_refused() -> None:
    X, y = table(60)
    with pytest.raises(InvalidInput, match="no row embeddings"):
        CrumbClassifier(model=KNeighborsClassifier(), features="embedding").fit(X, y)
    with pytest.raises(InvalidInput, match="features must be 'auto', 'embedding', None"):
        CrumbClassifier(features="embeddings").fit(X, y)
    with pytest.raises(InvalidInput, match="needs a model"):
        select_contexts(X, X[:5], features="embedding")


def test_a_transformer_may_learn_from_the_labels() -> None:
    X, y = table(200)
    clf = CrumbClassifier(features=LinearDiscriminantAnalysis(), **SMALL).fit(X, y)
    assert abs(np.corrcoef(clf.pool_.points[:, 0], X[:, 0])[0, 1]) > 0.95
    plan = select_contexts(
        X, X[:9], y_pool=y, features=LinearDiscriminantAnalysis(), context_size=10
    )
    assert plan.sizes.max() == 10


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = table(60)
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    frame.assign(y=y).to_csv(tmp_path / "train.csv", index=False)
    frame[:4].to_csv(tmp_path / "queries.csv", index=False)
    arguments = [
        "--train",
        str(tmp_path / "train.csv"),
        "--test",
        str(tmp_path / "queries.csv"),
        "--target",
        "y",
    ]
    arguments += ["--out", str(tmp_path / "answers.csv"), "--features", "embedding", "--quiet"]
    assert main(["predict", *arguments]) == 0, capsys.readouterr().err
    assert len(pd.read_csv(tmp_path / "answers.csv")) == 4
