"""Random functions, many tables at a time: x (G, n, p) → (G, n, width), other parameters for every
table.

These are the mechanisms of the synthetic world: smooth (networks, waves), piecewise constant
(trees, prototypes), additive (linear) and interacting (products). Each result is standardised over
the rows of its table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pretraining.draw import Draw

Function = Callable[[Tensor, int, Draw], Tensor]

ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    F.relu,
    lambda x: F.leaky_relu(x, 0.1),
    torch.sin,
    torch.abs,
    lambda x: x.clamp(-3, 3).square(),
    torch.sigmoid,
    lambda x: torch.exp(-x * x),
    F.softplus,
    torch.sign,
    F.elu,
    lambda x: x,
)

SMOOTH: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.tanh,
    torch.sin,
    torch.sigmoid,
    lambda x: x.clamp(-3, 3).square(),
    lambda x: torch.exp(-x * x),
    F.softplus,
)


def standardise(x: Tensor, rows: int = 1) -> Tensor:
    """Zero mean and unit spread along the rows of every table."""
    x = x - x.mean(rows, keepdim=True)
    return x / x.square().mean(rows, keepdim=True).sqrt().clamp_min(1e-4)


def _weights(inputs: int, width: int, tables: int, draw: Draw) -> Tensor:
    """(G, inputs, width), where inputs differ in how much they matter and some do not matter at
    all."""
    weights = draw.normal(tables, inputs, width)
    if draw.chance(0.5):  # the same inputs matter for all outputs
        weights = weights * draw.uniform(tables, inputs, 1) ** draw.between(0, 6)
    if draw.chance(0.5):  # other inputs for every output
        weights = weights * (draw.uniform(tables, inputs, width) > draw.between(0, 0.9))
    return weights / weights.square().sum(1, keepdim=True).sqrt().clamp_min(1e-3)


def linear(x: Tensor, width: int, draw: Draw) -> Tensor:
    return standardise(x @ _weights(x.shape[2], width, len(x), draw))


def mlp(x: Tensor, width: int, draw: Draw) -> Tensor:
    """A random network of one to three layers, one activation or two in a layer."""
    for layer in range(draw.whole(1, 3)):
        hidden = width if layer == 0 and draw.chance(0.5) else draw.whole(4, 48)
        x = standardise(x @ _weights(x.shape[2], hidden, len(x), draw))
        x = x * draw.log_between(0.5, 3) + draw.between(0, 1) * draw.normal(len(x), 1, hidden)
        cut = draw.whole(0, hidden) if draw.chance(0.4) else hidden
        first, second = draw.one_of(ACTIVATIONS), draw.one_of(ACTIVATIONS)
        x = (
            first(x)
            if cut == hidden
            else torch.cat([first(x[..., :cut]), second(x[..., cut:])], dim=2)
        )
    return standardise(x @ _weights(x.shape[2], width, len(x), draw))


def waves(x: Tensor, width: int, draw: Draw) -> Tensor:
    """A draw from (about) a Gaussian process: random Fourier features, from nearly linear to
    wiggly."""
    features = 64
    frequency = _weights(x.shape[2], features, len(x), draw) * draw.log_between(0.2, 3)
    if draw.chance(0.4):  # many length scales at once, as in rough processes
        frequency = frequency / draw.uniform(len(x), 1, features).clamp_min(0.1)
    basis = torch.cos(x @ frequency + 2 * math.pi * draw.uniform(len(x), 1, features))
    return standardise(basis @ draw.normal(len(x), features, width))


def products(x: Tensor, width: int, draw: Draw) -> Tensor:
    """Interactions: two linear maps multiplied, divided or gated by each other."""
    first = standardise(x @ _weights(x.shape[2], width, len(x), draw)) + draw.between(0, 1)
    second = standardise(x @ _weights(x.shape[2], width, len(x), draw)) + draw.between(0, 1)
    kind = draw.whole(0, 3)
    if kind == 0:
        return standardise(first * second)
    if kind == 1:
        return standardise(first / (0.3 + second.abs()))
    if kind == 2:
        return standardise(torch.where(second > 0, first, draw.between(-1, 1)))
    return standardise(torch.maximum(first, second))


def forest(x: Tensor, width: int, draw: Draw) -> Tensor:
    """A sum of random decision trees, each output with trees of its own."""
    depth = draw.whole(1, 6)
    trees = max(1, int(draw.log_between(1, 24) * min(1, 8 / width)))
    return standardise(_trees(x, width * trees, depth, draw).unflatten(2, (width, trees)).sum(3))


def _trees(x: Tensor, count: int, depth: int, draw: Draw) -> Tensor:
    """(G, n, count): trees that split at values of random rows; few features do most of the
    splitting."""
    tables, rows, _ = x.shape
    leaf = leaf_of(x, count, depth, draw)
    leaves = draw.normal(tables, count * 2**depth)
    if draw.chance(0.5):  # later trees correct earlier ones, as in boosting
        leaves = leaves * (1 - 0.7 * draw.uniform(tables, 1, 1)).expand(
            -1, count, 2**depth
        ).cumprod(1).flatten(1)
    at = (torch.arange(count, device=x.device) * 2**depth + leaf).flatten(1)
    return leaves.gather(1, at).view(tables, rows, count)


def leaf_of(
    x: Tensor, count: int, depth: int, draw: Draw, favoured: int = 0, share: float = 0.0
) -> Tensor:
    """(G, n, count): the leaf of every row in each of some random trees.

    A ``share`` of the splits is in the last ``favoured`` features.
    """
    tables, rows, inputs = x.shape
    nodes = 2**depth - 1
    feature = draw.skewed(inputs, draw.between(1, 3), tables, count * nodes)
    where = draw.integers(rows, tables, count * nodes)
    if favoured:
        chosen = inputs - favoured + draw.integers(favoured, tables, count * nodes)
        feature = torch.where(draw.uniform(tables, count * nodes) < share, chosen, feature)
    threshold = x.flatten(1).gather(1, where * inputs + feature)
    offset = torch.arange(count, device=x.device) * nodes  # where each tree begins
    node = torch.zeros(tables, rows, count, dtype=torch.long, device=x.device)
    for _ in range(depth):
        at = (offset + node).flatten(1)
        value = x.gather(2, feature.gather(1, at).view_as(node))
        node = 2 * node + 1 + (value > threshold.gather(1, at).view_as(node)).long()
    return node - nodes


def prototypes(x: Tensor, width: int, draw: Draw) -> Tensor:
    """Every row takes the values of the nearest of a few prototypes: latent groups."""
    tables, rows, inputs = x.shape
    count = draw.whole(2, 24)
    seeds = draw.integers(rows, tables, count)
    centres = x.gather(1, seeds.unsqueeze(2).expand(-1, -1, inputs))
    scale = draw.uniform(tables, 1, inputs) ** draw.between(0, 3)
    nearest = torch.cdist(x * scale, centres * scale).argmin(2)  # (G, n)
    values = draw.normal(tables, count, width)
    return standardise(values.gather(1, nearest.unsqueeze(2).expand(-1, -1, width)))


def steps(x: Tensor, width: int, draw: Draw) -> Tensor:
    """Many sharp steps along few axes: deep trees."""
    trees = max(1, int(draw.log_between(2, 16) * min(1, 4 / width)))
    return standardise(
        _trees(x, width * trees, draw.whole(4, 8), draw).unflatten(2, (width, trees)).sum(3)
    )


def rules(x: Tensor, width: int, draw: Draw) -> Tensor:
    """Exact rules: a small tree, how many of some conditions hold, or a table of all combinations
    of two or three."""
    tables, rows, inputs = x.shape
    kind = draw.whole(0, 2)
    if kind == 0:
        return standardise(_trees(x, width, draw.whole(2, 5), draw))
    few = draw.subset(tables, inputs, min(inputs, draw.whole(2, 3 if kind == 2 else 6)))
    x = x.gather(2, few.unsqueeze(1).expand(-1, rows, -1))
    if kind == 1:
        cuts = x.gather(1, draw.integers(rows, tables, width, x.shape[2]))  # (G, width, k)
        return standardise((x.unsqueeze(2) > cuts.unsqueeze(1)).float().sum(3))
    mixed = x.mul(64).round() @ draw.normal(
        tables, x.shape[2], width
    )  # another number for every combination
    return standardise(torch.sin(40 * mixed))


def smooth(x: Tensor, width: int, draw: Draw) -> Tensor:
    """A smooth function in which every input matters: small networks with dense weights."""
    for _ in range(draw.whole(1, 2)):
        tables, _, inputs = x.shape
        hidden = draw.whole(8, 48)
        x = standardise(x @ draw.normal(tables, inputs, hidden)) * draw.log_between(0.5, 2)
        x = draw.one_of(SMOOTH)(x + draw.between(0, 1) * draw.normal(tables, 1, hidden))
    return standardise(x @ draw.normal(len(x), x.shape[2], width))


FUNCTIONS: tuple[Function, ...] = (linear, mlp, waves, products, forest, prototypes)
WEIGHTS = (1.0, 3.0, 2.0, 1.0, 2.5, 0.8)


def random_function(draw: Draw, weights: tuple[float, ...] = WEIGHTS) -> Function:
    return draw.one_of(FUNCTIONS, weights)
