"""The prior: tables drawn in batches from a synthetic world, on the device that trains.

One group of tables shares the *structure* of its world (the graph, kinds of functions, levels of
noise), so that a group costs a few hundred kernels however many tables it has; every table has its
own parameters, rows, columns and classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pretraining import columns, contexts, guide, targets, worlds
from pretraining.draw import Draw
from pretraining.recipe import EVERYTHING, KINDS, Recipe


@dataclass(frozen=True)
class Shape:
    """Tables that travel together have the same shape: the network takes neither padded rows nor
    padded columns."""

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


def sample(task: str, shape: Shape, draw: Draw, recipe: Recipe = EVERYTHING) -> Batch:
    """One batch of tables; the same ``draw`` gives the same tables."""
    sizes = [
        shape.tables // shape.groups + (i < shape.tables % shape.groups)
        for i in range(shape.groups)
    ]
    groups = [_group(task, size, shape, recipe, draw) for size in sizes if size]
    X, y, usable = (torch.cat(parts) for parts in zip(*groups, strict=True))
    sound = torch.isfinite(X).flatten(1).all(1) & torch.isfinite(y).all(1)  # (B,)
    X = torch.nan_to_num(X, posinf=0, neginf=0)
    y = torch.nan_to_num(y, posinf=0, neginf=0)
    counts = (usable & sound.unsqueeze(1))[:, shape.train :].float()
    return Batch(X, y, counts / counts.sum().clamp_min(1))


def _group(
    task: str, tables: int, shape: Shape, recipe: Recipe, draw: Draw
) -> tuple[Tensor, Tensor, Tensor]:
    kind, near = draw.one_of(KINDS, recipe.weights()), draw.chance(recipe.near)
    rows = contexts.pool_rows(tables, shape.rows, shape.features, draw) if near else shape.rows
    # A recipe without smooth worlds draws what it drew before there were any.
    smoothly = kind == "plain" and recipe.smooth > 0 and draw.chance(recipe.smooth)
    world = worlds.make(kind, tables, rows, shape.features, draw, smoothly)
    make = targets.classes if task == "classification" else targets.numbers
    target = make(world, draw, recipe)
    X, y, train = world.X, target.y, shape.train
    guided = (
        guide.predictions(world, target, shape.features - 1, draw)
        if draw.chance(recipe.guide)
        else None
    )
    if near:
        chosen = contexts.choose(X, y, train, shape.rows - train, target.classes, draw)
        X, y = _rows(X, chosen), y.gather(1, chosen)
        guided = None if guided is None else _rows(guided, chosen)
    X = columns.gaps(X, world.categorical, train, draw)
    if guided is not None:
        X = guide.put_in(X, guided, draw)
    y, usable = (
        targets.as_codes(y, train, target.classes)
        if target.classes
        else targets.as_scores(y, train)
    )
    return columns.as_the_package_sees(X, train, draw), y, usable


def _rows(X: Tensor, chosen: Tensor) -> Tensor:
    return X.gather(1, chosen.unsqueeze(2).expand(-1, -1, X.shape[2]))
