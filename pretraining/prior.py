"""The prior: tables drawn in batches from a synthetic world, on the device that trains.

One group of tables shares the *structure* of its world (the graph, kinds of functions, levels of noise), so that a
group costs a few hundred kernels however many tables it has; every table has its own parameters, rows, columns and
classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pretraining import columns, targets
from pretraining.draw import Draw
from pretraining.graph import causal_graph


@dataclass(frozen=True)
class Shape:
    """Tables that travel together have the same shape: the network takes neither padded rows nor padded columns."""

    tables: int
    rows: int
    features: int
    train: int  # the first rows are labelled, the rest are queries
    groups: int = 1


@dataclass(frozen=True)
class Batch:
    X: Tensor  # (B, n, d) as tabicl's preparation leaves it
    y: Tensor  # (B, n) class codes or standardised numbers, float32
    weight: Tensor  # (B, n − t) how much each query counts in the loss; sums to 1


def sample(task: str, shape: Shape, draw: Draw) -> Batch:
    """One batch of tables; the same ``draw`` gives the same tables."""
    sizes = [shape.tables // shape.groups + (i < shape.tables % shape.groups) for i in range(shape.groups)]
    groups = [_group(task, size, shape, draw) for size in sizes if size]
    X, y, usable = (torch.cat(parts) for parts in zip(*groups, strict=True))
    sound = torch.isfinite(X).flatten(1).all(1) & torch.isfinite(y).all(1)  # (B,)
    X = torch.nan_to_num(X, posinf=0, neginf=0)
    y = torch.nan_to_num(y, posinf=0, neginf=0)
    counts = (usable & sound.unsqueeze(1))[:, shape.train :].float()
    return Batch(X, y, counts / counts.sum().clamp_min(1))


def _group(task: str, tables: int, shape: Shape, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    variables = causal_graph(tables, shape.rows, shape.features + 1, draw)
    X, hidden = _observed(variables, shape.features, draw)
    X, useless = columns.useless_and_doubled(X, draw)
    X, effects, categorical = columns.categories(columns.skew(X, draw), draw)
    world = targets.World(effects * ~useless, variables, hidden)
    make = targets.classes if task == "classification" else targets.numbers
    y, usable = make(world, shape.train, draw)
    X = columns.gaps(X, categorical, shape.train, draw)
    return columns.as_the_package_sees(X, shape.train, draw), y, usable


def _observed(variables: Tensor, features: int, draw: Draw) -> tuple[Tensor, Tensor]:
    """The variables that someone wrote down, in any order, and the others, in the order of the graph."""
    tables, rows, count = variables.shape
    if draw.chance(0.3):  # what was measured together belongs together
        start = draw.integers(count - features + 1, tables, 1)
        chosen = start + draw.subset(tables, features, features)
    else:
        chosen = draw.subset(tables, count, features)
    written = torch.zeros(tables, count, dtype=torch.long, device=variables.device).scatter(1, chosen, 1)
    others = written.argsort(dim=1, stable=True)[:, : count - features]
    X, hidden = (variables.gather(2, which.unsqueeze(1).expand(-1, rows, -1)) for which in (chosen, others))
    return X, hidden
