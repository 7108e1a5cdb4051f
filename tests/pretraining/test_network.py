"""The networks that are trained: of the promised size, readable by tabicl, the same for the same seed."""

import numpy as np
import pytest
import torch
from tabicl import TabICLClassifier, TabICLRegressor

from pretraining.network import build, configuration
from pretraining.state import export

TASKS = ("classification", "regression")


@pytest.mark.parametrize("task", TASKS)
def test_an_exported_network_is_read_by_tabicl(task, tmp_path):
    network = build(configuration(task, "smoke"), seed=1)
    export(tmp_path / "net.ckpt", configuration(task, "smoke"), network.state_dict())
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(40, 3)), rng.normal(size=(7, 3))
    estimator = TabICLClassifier if task == "classification" else TabICLRegressor
    model = estimator(model_path=tmp_path / "net.ckpt", n_estimators=1, device="cpu", allow_auto_download=False)
    y = np.arange(40) % 3 if task == "classification" else rng.normal(size=40)
    assert np.isfinite(model.fit(X, y).predict(queries)).all()


@pytest.mark.parametrize("task", TASKS)
def test_the_networks_that_ship_fit_the_promised_size(task):
    parameters = sum(p.numel() for p in build(configuration(task)).parameters())
    assert 2 * parameters < 10_000_000


def test_weights_depend_on_the_seed_only():
    torch.manual_seed(0)
    first = build(configuration("classification", "smoke"), seed=4)
    torch.manual_seed(1)
    second = build(configuration("classification", "smoke"), seed=4)
    other = build(configuration("classification", "smoke"), seed=5)
    weight = "icl_predictor.decoder.0.weight"
    assert torch.equal(first.state_dict()[weight], second.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])
