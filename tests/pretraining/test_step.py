"""The losses, against what tabicl makes of the same network's answers."""

import numpy as np
import pytest
import torch
from tabicl import TabICLClassifier

from crumb.pfn.forward import MOST_DENSE
from pretraining.draw import Draw
from pretraining.network import build, configuration
from pretraining.prior import Batch, Shape, sample
from pretraining.step import compiled_block, loss_of
from pretraining.variants import CHOSEN, VARIANTS


def test_classes_are_learnt_at_the_temperature_at_which_tabicl_reads_them():
    network = build(configuration("classification", "smoke"), 1)
    batch = sample("classification", Shape(3, 40, 4, 30), Draw("cpu", 5))
    loss = float(loss_of(network, batch, torch.float32).detach())
    with torch.no_grad():
        logits = network(batch.X.clone(), batch.y[:, :30])
    proba = torch.softmax(logits / TabICLClassifier().softmax_temperature, dim=-1)
    hit = proba.gather(2, batch.y[:, 30:].long().unsqueeze(2)).squeeze(2)
    assert loss == pytest.approx(float(-(hit.log() * batch.weight).sum()), rel=1e-4)


def test_numbers_are_learnt_by_the_pinball_loss():
    network = build(configuration("regression", "smoke"), 1)
    batch = sample("regression", Shape(2, 30, 3, 20), Draw("cpu", 6))
    with torch.no_grad():
        quantiles = network(batch.X.clone(), batch.y[:, :20]).double().numpy()
    levels = np.arange(1, 20) / 20
    error = batch.y[:, 20:, None].double().numpy() - quantiles
    pinball = np.where(error > 0, levels * error, (levels - 1) * error).mean(2)
    expected = (pinball * batch.weight.double().numpy()).sum()
    assert float(loss_of(network, batch, torch.float32).detach()) == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_even_tables_count_by_the_logarithm_of_their_loss(task):
    network = build(configuration(task, "smoke"), 1)
    batch = sample(task, Shape(3, 40, 4, 30), Draw("cpu", 6))
    alone = []
    for i in range(3):
        weight = batch.weight[i : i + 1] / batch.weight[i].sum()
        one = Batch(batch.X[i : i + 1], batch.y[i : i + 1], weight)
        alone.append(float(loss_of(network, one, torch.float32).detach()))
    share = batch.weight.sum(1).numpy()
    found = float(loss_of(network, batch, torch.float32, even=0.05).detach())
    assert found == pytest.approx((share * np.log(np.array(alone) + 0.05)).sum(), rel=1e-4)


def test_a_table_without_a_query_that_counts_is_no_danger_to_even_tables():
    network = build(configuration("regression", "smoke"), 1)
    batch = sample("regression", Shape(2, 40, 4, 30), Draw("cpu", 7))
    weight = batch.weight.clone()
    weight[0] = 0
    loss = loss_of(network, Batch(batch.X, batch.y, weight), torch.float32, even=0.05)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


def test_one_compilation_serves_all_shapes(monkeypatch):
    """Fifty shapes may not cost fifty compilations, nor two equal blocks two of them."""
    torch.compiler.reset()
    # Attention is written out for as many tokens as on the GPUs that networks are trained on.
    monkeypatch.setattr("crumb.pfn.forward.CPU_DENSE", MOST_DENSE)
    seen = []

    def count(graph, inputs):
        seen.append(graph)
        return graph.forward

    block = compiled_block(count)
    two = {"col_num_blocks": 2, "row_num_blocks": 2}
    parts = VARIANTS[CHOSEN].parts
    network = build(configuration("classification", "smoke", two, parts), 1)
    # As many tables as columns, one column, many columns: none of this is a kind of its own.
    for shape in (Shape(2, 40, 2, 25), Shape(3, 60, 1, 45), Shape(2, 30, 140, 20)):
        batch = sample("classification", shape, Draw("cpu", 5))
        compiled = loss_of(network, batch, torch.bfloat16, block)
        compiled.backward()
        plain = loss_of(network, batch, torch.bfloat16)
        torch.testing.assert_close(compiled, plain, rtol=0.02, atol=0.02)
    # Points to rows, rows to points, cells to cells, tokens to cells, rows to rows, queries to rows
    assert len(seen) == 6
    torch.compiler.reset()
