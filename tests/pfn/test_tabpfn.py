"""TabPFN back-end: the answers of the package, from one network for all contexts."""

from __future__ import annotations

import pickle
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("tabpfn")

from checkpoints import later_tabpfn, tabpfn_v2_5_regressor
from checkpoints import tabpfn_classifier as write_classifier
from small_tables import QUANTILES, classes, frame, numbers, table, targets
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.architectures.tabpfn_v2 import TabPFNV2
from tabpfn.checkpoint import save_as_safetensors

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import BackendUnavailable, InvalidCheckpoint, InvalidInput
from crumb.pfn import models

# What the packages say about a column of the tables used here, from any caller.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The following categorical columns have a cardinality above 40",
    "ignore:These columns look like free text",
    "ignore:n_quantiles",
)


def official(path: Path, n_estimators: int = 1, **options: Any) -> TabPFNClassifier:
    return TabPFNClassifier(
        model_path=path, n_estimators=n_estimators, random_state=0, device="cpu", **options
    )


def ours(path: Path, n_estimators: int = 1, **options: Any) -> CrumbClassifier:
    return CrumbClassifier(
        model=path, strategy="full", n_estimators=n_estimators, device="cpu", model_options=options
    )


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(ours, axis=0).max() > 1e-3, "answers that do not vary prove nothing"


@pytest.mark.parametrize("n_estimators", [1, 2, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_classifier_equals_the_package(
    kind: str, n_estimators: int, tabpfn_classifier: Path
) -> None:
    X, y, queries = table(kind, 120, 1), classes(120, 2), table(kind, 20, 3)
    assert_same(
        ours(tabpfn_classifier, n_estimators).fit(X, y).predict_proba(queries),
        official(tabpfn_classifier, n_estimators).fit(X, y).predict_proba(queries),
    )


@pytest.mark.parametrize("n_estimators", [1, 2, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_regressor_equals_the_package(kind: str, n_estimators: int, tabpfn_regressor: Path) -> None:
    X, y, queries = table(kind, 120, 1), targets(120, 2), table(kind, 20, 3)
    crumb = CrumbRegressor(
        model=tabpfn_regressor, strategy="full", n_estimators=n_estimators, device="cpu"
    ).fit(X, y)
    package = TabPFNRegressor(
        model_path=tabpfn_regressor, n_estimators=n_estimators, random_state=0, device="cpu"
    ).fit(X, y)
    for output in ("mean", "median"):
        assert_same(
            crumb.predict(queries, output_type=output), package.predict(queries, output_type=output)
        )
    assert_same(
        crumb.predict(queries, output_type="quantiles", quantiles=QUANTILES),
        np.stack(package.predict(queries, output_type="quantiles", quantiles=QUANTILES), axis=1),
    )


def test_types_that_the_package_refuses_are_encoded(tabpfn_classifier: Path) -> None:
    X, queries = frame(60, 1)[["number"]], frame(15, 2)[["number"]]
    encoded_X, encoded_queries = X.copy(), queries.copy()
    for seed, (rows, encoded) in enumerate([(X, encoded_X), (queries, encoded_queries)]):
        rng = np.random.default_rng(seed)
        encoded["flag"] = rng.integers(0, 2, len(rows)).astype(float)
        encoded["day"] = rng.integers(10_000, 20_000, len(rows)).astype(float)
        rows["flag"] = encoded["flag"].astype(bool)
        rows["day"] = pd.Timestamp("1970-01-01") + pd.to_timedelta(encoded["day"], unit="D")
    y = classes(60, 3)
    assert_same(
        ours(tabpfn_classifier).fit(X, y).predict_proba(queries),
        official(tabpfn_classifier).fit(encoded_X, y).predict_proba(encoded_queries),
    )


@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_declared_categories(kind: str, tabpfn_classifier: Path) -> None:
    """Columns that look like numbers are categories to the package if the user says so."""
    rng = np.random.default_rng(0)
    X, queries = (
        rng.integers(0, 8, (90, 3)).astype(float),
        rng.integers(0, 8, (20, 3)).astype(float),
    )
    if kind == "frame":
        X, queries = (
            pd.DataFrame(X, columns=list("abc")),
            pd.DataFrame(queries, columns=list("abc")),
        )
    y = classes(90, 1)
    crumb = CrumbClassifier(
        model=tabpfn_classifier, strategy="full", device="cpu", categorical_features=[0, 2]
    )
    answer = crumb.fit(X, y).predict_proba(queries)
    package = official(tabpfn_classifier, categorical_features_indices=[0, 2])
    assert_same(answer, package.fit(X, y).predict_proba(queries))
    assert not np.allclose(
        answer, official(tabpfn_classifier).fit(X, y).predict_proba(queries), atol=1e-5
    )


def test_network_is_loaded_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_classifier(tmp_path / "fresh.ckpt")
    counts = {"file": 0, "network": 0}

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(torch, "load", counted("file", torch.load))
    monkeypatch.setattr(TabPFNV2, "__init__", counted("network", TabPFNV2.__init__))
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(30, 3)
    for strategy in ("mmd", "uniform"):
        crumb = CrumbClassifier(
            model=path, strategy=strategy, n_clusters=5, context_size=20, device="cpu"
        )
        plan = crumb.fit(X, y).plan(queries)
        assert len({context.tobytes() for context in plan.contexts}) == 5
        crumb.predict_proba(queries)
    assert counts == {
        "file": 2,
        "network": 1,
    }  # once to see what the file holds, once by the package


def test_precision_of_one_estimator_is_not_that_of_another(tabpfn_classifier: Path) -> None:
    """The package casts the network in place."""
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    plain = ours(tabpfn_classifier).fit(X, y)
    before = plain.predict_proba(queries)
    double = ours(tabpfn_classifier, inference_precision=torch.float64).fit(X, y)
    assert_same(
        double.predict_proba(queries),
        official(tabpfn_classifier, inference_precision=torch.float64)
        .fit(X, y)
        .predict_proba(queries),
    )
    np.testing.assert_array_equal(plain.predict_proba(queries), before)


def test_more_classes_than_the_network_has(tabpfn_classifier: Path) -> None:
    with pytest.raises(InvalidInput, match=r"15 classes, but the model .* takes at most 10"):
        ours(tabpfn_classifier).fit(numbers(90, 1), classes(90, 2, count=15))


@pytest.mark.parametrize(
    "options",
    [
        {"softmax_temperature": 0.3},
        {"inference_config": {"FINGERPRINT_FEATURE": False}},
        {"average_before_softmax": True, "n_estimators": 3},
    ],
)
def test_options_reach_the_package(options: dict[str, Any], tabpfn_classifier: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    answer = ours(tabpfn_classifier, **options).fit(X, y).predict_proba(queries)
    assert_same(
        answer,
        official(tabpfn_classifier, **{"n_estimators": 1, **options})
        .fit(X, y)
        .predict_proba(queries),
    )
    assert not np.allclose(
        answer, ours(tabpfn_classifier).fit(X, y).predict_proba(queries), atol=1e-5
    )


@pytest.mark.parametrize("option", ["sofmax_temperature", "model_path"])
def test_option_that_the_package_does_not_have(option: str, tabpfn_classifier: Path) -> None:
    with pytest.raises(
        InvalidInput, match=f"no option '{option}'; it has .*n_estimators.*softmax_temperature"
    ):
        ours(tabpfn_classifier, **{option: 1}).fit(numbers(20, 1), classes(20, 2))


def test_limits_of_the_package(tabpfn_classifier: Path) -> None:
    X, y, queries = numbers(30, 1, columns=501), classes(30, 2), numbers(3, 3, columns=501)
    with pytest.raises(
        InvalidInput, match=r"model_options.*features `501`.*ignore_pretraining_limits=True"
    ):
        ours(tabpfn_classifier).fit(X, y).predict_proba(queries)
    options = {"ignore_pretraining_limits": True}
    assert_same(
        ours(tabpfn_classifier, **options).fit(X, y).predict_proba(queries),
        official(tabpfn_classifier, **options).fit(X, y).predict_proba(queries),
    )


@pytest.mark.parametrize("rows", [300, 1_100])
def test_large_contexts_on_a_cpu_need_no_permission(rows: int, tabpfn_classifier: Path) -> None:
    X, y, queries = numbers(rows, 1, columns=2), classes(rows, 2), numbers(5, 3, columns=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = ours(tabpfn_classifier).fit(X, y).predict_proba(queries)
    package = official(tabpfn_classifier, ignore_pretraining_limits=True)
    assert_same(answer, package.fit(X, y).predict_proba(queries))


def test_window_is_that_of_the_network(tabpfn_classifier: Path) -> None:
    assert ours(tabpfn_classifier).fit(numbers(20, 1), classes(20, 2)).backend_.window == 10_000


def test_estimator_of_the_package_as_model(
    tabpfn_classifier: Path, tabpfn_regressor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings, and one network for all contexts, which share passes on a GPU."""
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    package = official(tabpfn_classifier, 2, softmax_temperature=0.5)
    crumb = CrumbClassifier(model=package, strategy="full").fit(X, y)
    assert_same(crumb.predict_proba(queries), package.fit(X, y).predict_proba(queries))
    regressor = TabPFNRegressor(model_path=tabpfn_regressor, n_estimators=1, device="cpu")
    crumb = CrumbRegressor(model=regressor, strategy="full").fit(X, targets(60, 2))
    assert_same(crumb.predict(queries), regressor.fit(X, targets(60, 2)).predict(queries))
    usual = TabPFNClassifier(model_path=tabpfn_classifier)
    crumb = CrumbClassifier(model=usual, n_clusters=3, context_size=20, device="cpu").fit(X, y)
    assert crumb.backend_.settings.options == {"n_estimators": "auto", "random_state": 0}
    crumb.backend_.settings = replace(crumb.backend_.settings, device="cuda")
    assert crumb.backend_.batched
    crumb.backend_.settings = replace(crumb.backend_.settings, device="cpu")
    monkeypatch.setattr(TabPFNV2, "__init__", lambda *args, **kwargs: pytest.fail("built again"))
    crumb.predict_proba(queries)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_safetensors(
    task: str, tabpfn_classifier: Path, tabpfn_regressor: Path, tmp_path: Path
) -> None:
    source = tabpfn_classifier if task == "classification" else tabpfn_regressor
    path = tmp_path / "network.safetensors"
    save_as_safetensors(torch.load(source, weights_only=True), path)
    X, queries = numbers(60, 1), numbers(10, 3)
    if task == "classification":
        y = classes(60, 2)
        assert_same(
            ours(path).fit(X, y).predict_proba(queries),
            official(source).fit(X, y).predict_proba(queries),
        )
    else:
        y = targets(60, 2)
        crumb, same = (
            CrumbRegressor(model=file, strategy="full", device="cpu") for file in (path, source)
        )
        assert_same(crumb.fit(X, y).predict(queries), same.fit(X, y).predict(queries))


def test_damaged_safetensors(tabpfn_classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "network.safetensors"
    save_as_safetensors(torch.load(tabpfn_classifier, weights_only=True), path)
    path.write_bytes(path.read_bytes()[:3_000])
    with pytest.raises(InvalidCheckpoint, match="truncated"):
        ours(path).fit(numbers(20, 1), classes(20, 2))


def test_weights_that_do_not_fit_are_refused_at_fit(
    tabpfn_classifier: Path, tmp_path: Path
) -> None:
    content = torch.load(tabpfn_classifier, weights_only=True)
    for name, change in {"wider": {"emsize": 32}, "nonsense": {"nlayers": "many"}}.items():
        torch.save(
            {**content, "config": {**content["config"], **change}}, tmp_path / f"{name}.ckpt"
        )
        with pytest.raises(InvalidCheckpoint, match="do not fit the network"):
            ours(tmp_path / f"{name}.ckpt").fit(numbers(20, 1), classes(20, 2))


def test_later_network_of_the_same_package(tmp_path: Path) -> None:
    """TabPFN 2.5 by path."""
    path = tabpfn_v2_5_regressor(tmp_path / "tabpfn-v2.5-regressor.ckpt")
    X, y, queries = numbers(60, 1), targets(60, 2), numbers(10, 3)
    crumb = CrumbRegressor(model=path, strategy="full", device="cpu").fit(X, y)
    package = TabPFNRegressor(model_path=path, n_estimators=1, random_state=0, device="cpu").fit(
        X, y
    )
    assert_same(crumb.predict(queries), package.predict(queries))
    assert crumb.backend_.window == 50_000


LATER = [card for card in models.CARDS if card.family == "tabpfn" and card.name != "tabpfn-v2"]


@pytest.mark.parametrize("card", LATER, ids=lambda card: f"{card.name} {card.task}")
def test_every_later_network_by_name(
    card: models.ModelCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tiny one in its place: the answers of the package, within the window of the name."""
    version = card.name.removeprefix("tabpfn-").removesuffix("-fast")
    path = later_tabpfn(tmp_path / card.file, version, card.task)
    known = replace(card, sha256=models.checksum(path))
    monkeypatch.setattr(models, "CARDS", (known,))
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    regression = card.task == "regression"
    X, queries, y = numbers(60, 1), numbers(10, 3), (targets if regression else classes)(60, 2)
    kinds = (CrumbRegressor, TabPFNRegressor) if regression else (CrumbClassifier, TabPFNClassifier)
    crumb: Any = kinds[0](model=card.name, strategy="full", device="cpu").fit(X, y)
    package: Any = kinds[1](model_path=path, n_estimators=1, random_state=0, device="cpu").fit(X, y)
    ask = "predict" if regression else "predict_proba"
    assert_same(getattr(crumb, ask)(queries), getattr(package, ask)(queries))
    assert crumb.backend_.window == card.window
    assert crumb.backend_.work(500, 50, 20) > crumb.backend_.work(250, 50, 20) > 0


def test_names_are_those_of_the_package() -> None:
    """A version that the package adds is one more card here."""
    from tabpfn.constants import ModelVersion

    names = {card.name for card in models.CARDS if card.family == "tabpfn"}
    assert names == {f"tabpfn-{version.value}" for version in ModelVersion}


def test_pickle_holds_no_network(tabpfn_classifier: Path) -> None:
    X, y, queries = numbers(60, 1), classes(60, 2), numbers(10, 3)
    crumb = CrumbClassifier(
        model=tabpfn_classifier, n_clusters=2, context_size=20, device="cpu"
    ).fit(X, y)
    answer = crumb.predict_proba(queries)
    content = pickle.dumps(crumb)
    assert len(content) < 30_000 < tabpfn_classifier.stat().st_size
    np.testing.assert_array_equal(pickle.loads(content).predict_proba(queries), answer)


def test_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is downloaded."""
    monkeypatch.setitem(sys.modules, "tabpfn", None)
    monkeypatch.delitem(sys.modules, "crumb.pfn.tabpfn")
    monkeypatch.setattr(models, "fetch", lambda card: pytest.fail("fetched"))
    with pytest.raises(BackendUnavailable, match="pip install 'crumb-pfn"):
        CrumbClassifier(model="tabpfn-v2").fit(numbers(20, 1), classes(20, 2))
