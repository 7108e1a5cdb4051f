"""The forward pass that trains is the forward pass of tabicl."""

import numpy as np
import pytest
import torch
from tabicl import TabICLClassifier, TabICLRegressor

from crumb.pretrain.network import attention_block, build, configuration, forward
from crumb.pretrain.state import export

TASKS = ("classification", "regression")


def labels(task: str, tables: int, train: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    if task == "regression":
        return torch.randn(tables, train, generator=generator)
    y = torch.randint(4, (tables, train), generator=generator).float()
    y[:, :4] = torch.arange(4)  # all classes are there
    return y


def shaken(task: str, size: str = "smoke"):
    """A network none of whose parameters is zero."""
    network = build(configuration(task, size), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return network


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", ["smoke", "small"])
@pytest.mark.parametrize(("tables", "rows", "features", "train"), [(3, 40, 7, 25), (1, 20, 1, 12), (2, 30, 2, 28)])
def test_equals_tabicl(task, size, tables, rows, features, train):
    network = shaken(task, size)
    X = torch.randn(tables, rows, features, generator=torch.Generator().manual_seed(3))
    y = labels(task, tables, train)
    torch.testing.assert_close(forward(network, X, y), network(X.clone(), y), rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("task", TASKS)
def test_gradients_equal_tabicls(task):
    network = shaken(task)
    X = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(3))
    y = labels(task, 2, 20)
    learnt = [p for p in network.parameters() if p.requires_grad]
    ours = torch.autograd.grad(forward(network, X, y).square().sum(), learnt)
    theirs = torch.autograd.grad(network(X.clone(), y).square().sum(), learnt)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_half_precision_stays_close():
    network = shaken("regression")
    X = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(3))
    y = labels("regression", 2, 20)
    exact, half = forward(network, X, y), forward(network, X, y, torch.bfloat16)
    assert half.dtype == torch.float32
    assert 0 < (exact - half).norm() < 0.05 * exact.norm()


def test_one_compilation_serves_all_shapes():
    """Shapes are symbols to the compiler, so that fifty shapes do not cost fifty compilations."""
    import torch._dynamo

    torch._dynamo.reset()
    seen = []

    def count(graph, inputs):
        seen.append(graph)
        return graph.forward

    block = torch.compile(attention_block, dynamic=True, backend=count)
    network = shaken("classification")
    for tables, rows, features, train in ((3, 40, 7, 25), (5, 60, 3, 45), (4, 30, 12, 20)):
        X = torch.randn(tables, rows, features)
        y = labels("classification", tables, train)
        with torch.no_grad():
            torch.testing.assert_close(forward(network, X, y, block=block), forward(network, X, y))
    assert len(seen) == 4  # rows to points, points to rows, tokens to cells, rows to rows
    torch._dynamo.reset()


@pytest.mark.parametrize("task", TASKS)
def test_an_exported_network_is_read_by_tabicl(task, tmp_path):
    network = shaken(task)
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
