"""The variant of TabICL: every way through the package and through CRUMB gives one answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from checkpoints import TINY, V2, shaken, write_tabicl
from small_tables import QUANTILES, classes, frame, numbers, stacked_cells, stacked_labels, targets
from tabicl._model.inference_config import InferenceConfig

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint
from crumb.pfn import ContextTask, Output
from crumb.pfn.architecture import VARIANT, build
from crumb.pfn.base import TargetScale
from crumb.pfn.forward import forward, places, quantiles, supports

TASKS = ("classification", "regression")


def configured(task: str, parts: dict[str, Any]) -> dict[str, Any]:
    head = {"max_classes": 10} if task == "classification" else {"max_classes": 0}
    return {**head, "num_quantiles": 19, **TINY, **V2, "variant": parts}


@pytest.fixture(scope="module", params=TASKS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An estimator without settings, on a variant from a file."""
    path = write_tabicl(
        tmp_path_factory.mktemp("v") / "net.ckpt", configured(request.param, VARIANT)
    )
    kind = CrumbClassifier if request.param == "classification" else CrumbRegressor
    return lambda **given: kind(model=path, device="cpu", **given)


def answers(estimator: Any, queries: Any, **asked: Any) -> np.ndarray:
    if isinstance(estimator, CrumbClassifier):
        return estimator.predict_proba(queries, **asked)
    return estimator.predict(queries, output_type="quantiles", quantiles=QUANTILES, **asked)


def labels(estimator: Any, rows: int, count: int = 3) -> np.ndarray:
    kind = isinstance(estimator, CrumbClassifier)
    return classes(rows, 2, count) if kind else targets(rows, 2)


@pytest.mark.parametrize("task", TASKS)
def test_the_variant_equals_the_packages_passes(task):
    """Our pass, padded or not, and the package's: in training, in use, and from its cache."""
    torch.manual_seed(0)
    network = shaken(build(configured(task, VARIANT))).train()
    assert supports(network)
    X, y = stacked_cells(2, 50, 4).exp(), stacked_labels(task, 2, 30)  # heavy tails
    X[..., 1] = X[..., 1].round()  # and ties
    expected = forward(network, X, y)
    torch.testing.assert_close(network(X.clone(), y), expected, rtol=1e-4, atol=2e-5)
    padded = torch.cat([X[:, :30], torch.full((2, 7, 4), 9.0), X[:, 30:]], dim=1)
    lengths = torch.tensor([30, 30])
    filled = forward(network, padded, F.pad(y, (0, 7)), lengths=lengths)
    torch.testing.assert_close(filled, expected, rtol=1e-4, atol=2e-5)
    network.eval()
    exact = {"use_amp": False}
    config = InferenceConfig()
    for part in (config.COL_CONFIG, config.ROW_CONFIG, config.ICL_CONFIG):
        part.update(exact)
    with torch.no_grad():
        network.forward_with_cache(
            X_train=X[:, :30].clone(),
            y_train=y,
            use_cache=False,
            store_cache=True,
            inference_config=config,
        )
        cached = network.forward_with_cache(
            X_test=X[:, 30:].clone(), use_cache=True, store_cache=False, inference_config=config
        )
    torch.testing.assert_close(cached, expected[..., : cached.shape[-1]], rtol=1e-4, atol=2e-5)


def test_places_are_mid_ranks():
    column = torch.tensor([[0.0, 1, 1, 1, 5, 1000]])
    place = places(column, quantiles(column))
    assert -1 < place[0, 0] == -place[0, -1] < -0.8
    assert place[0, 1] == place[0, 2] == place[0, 3]
    assert (place[0, [0, 1, 4, 5]].diff() > 0).all()
    apart = places(torch.tensor([[-7.0, 3.0, 2000.0]]), quantiles(column))
    assert apart[0, 0] == -1
    assert place[0, 3] < apart[0, 1] < place[0, 4]
    assert apart[0, 2] == 1


@pytest.mark.parametrize("make", [numbers, frame])
@pytest.mark.parametrize("members", [1, 2])
def test_contexts_of_different_sizes_share_passes(model: Any, make: Any, members: int) -> None:
    """Holes, text, few rows and many: one by one or together, the answer is one."""
    backend = model(n_estimators=members).fit(make(40, 1), labels(model(), 40)).backend_
    proba = backend.task == "classification"
    output = Output("proba") if proba else Output("quantiles", tuple(QUANTILES))
    tasks = []
    for size in (40, 33, 37, 9, 40, 90):
        y = labels(model(), size)
        y = y if proba else TargetScale.of(y).scaled(y)
        tasks.append(ContextTask.of(make(size, size), y, make(9, 70 + size)))
    alone, together = ([], [])
    for backend.fuse, answers_to in ((False, alone), (True, together)):
        answers_to += backend.predict_contexts(tasks, output)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=1e-4 if not proba else 1e-5)
    assert np.ptp(alone[0], axis=0).max() > 1e-3


def test_contexts_that_are_kept(model: Any) -> None:
    X, queries = numbers(200, 1), numbers(40, 3)
    y = labels(model(), 200)
    plain = model(n_clusters=3, context_size=50, cache_size=0).fit(X, y)
    keeping = model(n_clusters=3, context_size=50).fit(X, y)
    plan = plain.plan(queries)
    for some in (queries, queries[:7], queries):
        np.testing.assert_allclose(
            answers(keeping, some, plan=plan), answers(plain, some, plan=plan), rtol=1e-4, atol=1e-5
        )
    assert len(keeping.backend_.contexts) == 3
    assert len(plain.backend_.contexts) == 0


def test_more_classes_than_the_network_has(tmp_path: Path) -> None:
    path = write_tabicl(tmp_path / "net.ckpt", configured("classification", VARIANT))
    X, y, queries = numbers(150, 1), classes(150, 2, count=14), numbers(10, 3)
    crumb = CrumbClassifier(model=path, strategy="full", device="cpu").fit(X, y)
    proba = crumb.predict_proba(queries)
    assert proba.shape == (10, 14)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    assert np.ptp(proba, axis=0).max() > 1e-3


def test_cost_counts_the_input_layer(tmp_path: Path) -> None:
    """And grows with rows, queries and columns."""
    costs = []
    for name, parts in (("plain", {}), ("chosen", VARIANT)):
        path = write_tabicl(tmp_path / f"{name}.ckpt", configured("classification", parts))
        crumb = CrumbClassifier(model=path, device="cpu").fit(numbers(40, 1), classes(40, 2))
        costs.append(crumb.backend_.work(100, 10, 4))
        for more in ((200, 10, 4), (100, 20, 4), (100, 10, 8)):
            assert crumb.backend_.work(*more) > costs[-1]
        assert 0 < crumb.backend_.bytes(100, 10, 4) < crumb.backend_.bytes(200, 10, 8)
    # 51 inputs of a cell more (3 places, 3 × 16 waves), each a product with 16 numbers.
    assert costs[1] - costs[0] == 2 * 51 * 16 * 4 * 110


def test_parts_that_no_network_has(tmp_path: Path) -> None:
    path = write_tabicl(tmp_path / "net.ckpt", configured("classification", {}))
    content = torch.load(path, weights_only=True)
    for parts in ({"wings": 2}, {"cells": "rbf"}, {"ranks": True}, VARIANT):
        torch.save({**content, "config": configured("classification", parts)}, path)
        with pytest.raises(InvalidCheckpoint, match="do not fit the network"):
            CrumbClassifier(model=path, device="cpu").fit(numbers(40, 1), classes(40, 2))
