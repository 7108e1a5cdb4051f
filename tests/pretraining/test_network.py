"""The networks that are trained: of the promised size, readable by tabicl, the same for the same
seed."""

import numpy as np
import pytest
import torch
from tabicl import TabICLClassifier, TabICLRegressor

from pretraining.network import build, configuration, fade
from pretraining.state import Progress, export
from pretraining.variants import CHOSEN, VARIANTS

TASKS = ("classification", "regression")


@pytest.mark.parametrize("task", TASKS)
def test_an_exported_network_is_read_by_tabicl(task, tmp_path):
    network = build(configuration(task, "smoke"), seed=1)
    progress = Progress(task, "smoke", "base", 1, configuration(task, "smoke"))
    export(tmp_path / "net.ckpt", progress, network.state_dict())
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(40, 3)), rng.normal(size=(7, 3))
    estimator = TabICLClassifier if task == "classification" else TabICLRegressor
    model = estimator(
        model_path=tmp_path / "net.ckpt", n_estimators=1, device="cpu", allow_auto_download=False
    )
    y = np.arange(40) % 3 if task == "classification" else rng.normal(size=40)
    assert np.isfinite(model.fit(X, y).predict(queries)).all()


@pytest.mark.parametrize("task", TASKS)
def test_the_networks_that_ship_fit_the_promised_size(task):
    chosen = VARIANTS[CHOSEN]
    network = build(configuration(task, "small", chosen.widths, chosen.parts))
    parameters = sum(p.numel() for p in network.parameters())
    assert 2 * parameters < 15_000_000


def test_weights_depend_on_the_seed_only():
    torch.manual_seed(0)
    first = build(configuration("classification", "smoke"), seed=4)
    torch.manual_seed(1)
    second = build(configuration("classification", "smoke"), seed=4)
    other = build(configuration("classification", "smoke"), seed=5)
    weight = "icl_predictor.decoder.0.weight"
    assert torch.equal(first.state_dict()[weight], second.state_dict()[weight])
    assert not torch.equal(first.state_dict()[weight], other.state_dict()[weight])


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_can_be_built(name):
    variant = VARIANTS[name]
    network = build(configuration("classification", "small", variant.widths, variant.parts))
    # A file of at most 15 MB, and a run's state can travel.
    assert sum(p.numel() for p in network.parameters()) < 5_200_000


def test_later_blocks_fade():
    config = configuration("classification", "smoke")
    plain, faded = build(config), build(config)
    pace = fade(faded, 0.5)
    assert sorted(pace.values()) == [0.5, 0.5, 1.0, 1.0]
    for name, factor in pace.items():
        assert torch.equal(faded.state_dict()[name], factor * plain.state_dict()[name])
