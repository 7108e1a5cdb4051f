"""The way through the network is another, the function is tabicl's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints import TINY, V1, V2, shaken
from small_tables import stacked_cells as table
from small_tables import stacked_labels as labels
from tabicl._model.inference_config import InferenceConfig
from tabicl._model.tabicl import TabICL

from crumb.pfn.forward import CPU_DENSE, forward, supports
from pretraining.network import build, configuration

TASKS = ("classification", "regression")
# The last one has more columns than attention is written out for on a CPU.
SHAPES = [(3, 40, 7, 25), (1, 20, 1, 12), (2, 30, 2, 28), (2, 12, CPU_DENSE, 8)]


def trained(task: str, size: str = "smoke") -> TabICL:
    return shaken(build(configuration(task, size), seed=1))


def first(**more: Any) -> TabICL:
    torch.manual_seed(0)
    return shaken(TabICL(**{"max_classes": 10, **TINY, **V1, "row_num_blocks": 2, **more})).train()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", ["smoke", "small"])
@pytest.mark.parametrize(("tables", "rows", "features", "train"), SHAPES)
def test_equals_tabicl(task, size, tables, rows, features, train):
    network = trained(task, size)
    X, y = table(tables, rows, features), labels(task, tables, train)
    torch.testing.assert_close(forward(network, X, y), network(X.clone(), y), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("tables", "rows", "features", "train"), SHAPES)
def test_equals_tabicl_of_the_first_version(task, tables, rows, features, train):
    network = first(max_classes=10 if task == "classification" else 0, num_quantiles=9)
    X, y = table(tables, rows, features), labels(task, tables, train)
    torch.testing.assert_close(forward(network, X, y), network(X.clone(), y), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    "more", [{"col_affine": False}, {"col_ssmax": "qassmax-mlp", "icl_ssmax": True}, {}]
)
@pytest.mark.parametrize("flags", [V1, {**V2, "bias_free_ln": True, "col_feature_group": True}])
def test_equals_tabicl_whatever_the_flags(flags, more):
    network = shaken(TabICL(**{"max_classes": 10, **TINY, **flags, **more})).train()
    X, y = table(2, 30, 5), labels("classification", 2, 20)
    assert supports(network)
    torch.testing.assert_close(forward(network, X, y), network(X.clone(), y), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    "make", [lambda: trained("classification"), lambda: trained("regression"), first]
)
@pytest.mark.parametrize("at_once", [None, 2])
def test_contexts_of_different_sizes(make, at_once):
    """Neither padded rows nor the other tables of the stack are looked at."""
    network = make()
    sizes, features, train, queries = (20, 13, 4), 5, 20, 6
    X = table(3, train + queries, features)
    y = labels("classification" if network.max_classes else "regression", 3, train)
    stacked = forward(network, X, y, lengths=torch.tensor(sizes), at_once=at_once)
    for i, size in enumerate(sizes):
        alone = torch.cat([X[i : i + 1, :size], X[i : i + 1, train:]], dim=1)
        torch.testing.assert_close(
            stacked[i : i + 1], network(alone, y[i : i + 1, :size]), rtol=1e-4, atol=2e-6
        )


def test_contexts_of_different_classes():
    """All logits come out, and each table takes those of its own classes; tabicl wants one set."""
    network = trained("classification").eval()
    config = InferenceConfig()
    off = {"use_amp": False, "use_fa3": False, "device": "cpu"}
    config.update_from_dict(dict.fromkeys(("COL_CONFIG", "ROW_CONFIG", "ICL_CONFIG"), off))
    X, y = table(2, 30, 4), torch.stack([torch.arange(20) % 2, torch.arange(20) % 5]).float()
    with torch.no_grad():
        stacked = forward(network, X, y)
        assert stacked.shape == (2, 10, 10)
        for i, classes in enumerate((2, 5)):
            alone = network(X[i : i + 1].clone(), y[i : i + 1], inference_config=config)
            torch.testing.assert_close(stacked[i : i + 1, :, :classes], alone, rtol=1e-4, atol=2e-6)


def test_cells_in_pieces():
    network = trained("classification")
    X, y = table(5, 30, 4), labels("classification", 5, 20)
    torch.testing.assert_close(forward(network, X, y, at_once=2), forward(network, X, y))


@pytest.mark.parametrize(
    "make", [lambda: trained("classification"), lambda: trained("regression"), first]
)
def test_gradients_equal_tabicls(make):
    network = make()
    X, y = table(2, 30, 5), labels("classification" if network.max_classes else "regression", 2, 20)
    learnt = [p for p in network.parameters() if p.requires_grad]
    ours = torch.autograd.grad(forward(network, X, y).square().sum(), learnt)
    theirs = torch.autograd.grad(network(X.clone(), y).square().sum(), learnt)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [lambda: trained("regression"), first])
def test_half_precision_stays_close(make, dtype):
    network = make()
    X, y = table(2, 30, 4), labels("classification" if network.max_classes else "regression", 2, 20)
    exact, half = forward(network, X, y), forward(network, X, y, dtype)
    assert half.dtype == torch.float32
    assert 0 < (exact - half).norm() < 0.05 * exact.norm()


def test_knows_what_it_does_not_know():
    for flags in (
        {"norm_first": False},
        {"activation": "relu"},
        {"icl_ssmax": "ssmax"},
        {"col_ssmax": "ssmax-mlp"},
        {"col_feature_group": "valid"},
        {
            "col_feature_group": False
        },  # labels in the columns, which tabicl takes from the first member for all of them
    ):
        assert not supports(TabICL(**{"max_classes": 10, **TINY, **V2, **flags})), flags


@pytest.mark.parametrize("lengths", [None, torch.tensor([20, 13, 4])])
@pytest.mark.parametrize("make", [lambda: trained("classification"), first])
def test_columns_and_rows_in_parts(make, lengths, monkeypatch):
    """As many as the caches of a CPU hold; the parts do not see each other."""
    network = make()
    X, y = table(3, 26, 7), labels("classification", 3, 20)
    whole = forward(network, X, y, lengths=lengths)
    monkeypatch.setattr("crumb.pfn.forward.CPU_BYTES", 3_000)
    torch.testing.assert_close(forward(network, X, y, lengths=lengths), whole, rtol=1e-5, atol=1e-6)
