"""From variables to a target: classes of any balance, or numbers with the noise and shapes of real
measurements."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pretraining.draw import Draw
from pretraining.functions import linear, random_function, standardise
from pretraining.recipe import EVERYTHING, Recipe
from pretraining.worlds import World

WEIGHTS = (
    1.0,
    3.0,
    2.0,
    0.7,
    3.0,
    0.5,
)  # of the functions: a target is a tree more often than a variable is


class Target(NamedTuple):
    """The target of G tables of n rows, not yet prepared for a network."""

    y: Tensor  # (G, n) names of classes, from 0 on, or numbers
    clean: Tensor  # (G, n, w) the signal behind it, without noise
    classes: int  # how many there can be; 0: numbers


def signal(world: World, width: int, draw: Draw, recipe: Recipe = EVERYTHING) -> Tensor:
    """(G, n, width) a function of the columns, of all variables of the graph, a variable that is no
    column, any variable, or an early one, on which the columns depend."""
    if world.mechanism is not None:
        return world.mechanism(world.effects, width, draw)
    rest = 1 - recipe.itself - recipe.causes
    kind = draw.one_of(
        ("columns", "variables", "hidden", "itself", "causes"),
        (0.6 * rest, 0.2 * rest, 0.2 * rest, recipe.itself, recipe.causes),
    )
    source = world.hidden if kind == "hidden" else world.variables
    count = source.shape[2]
    if kind in ("hidden", "itself", "causes") and count >= width:
        return _some(source, width, kind == "causes", draw)
    source = world.effects if kind == "columns" else world.variables
    value = random_function(draw, WEIGHTS)(source, width, draw)
    if draw.chance(0.3):  # a simple trend with something more complicated on top
        value = standardise(value + draw.between(0.2, 2) * linear(source, width, draw))
    return value


def _some(variables: Tensor, width: int, early: bool, draw: Draw) -> Tensor:
    """A few of the variables: early or late ones in the order of the graph."""
    tables, rows, count = variables.shape
    share = draw.whole(2, 5) if early else draw.whole(1, 3)
    part = min(count, max(width, 1 + count // share))
    chosen = draw.subset(tables, part, width) + (0 if early else count - part)
    return variables.gather(2, chosen.unsqueeze(1).expand(-1, rows, -1))


def classes(world: World, draw: Draw, recipe: Recipe = EVERYTHING) -> Target:
    """Two to ten classes, of any balance."""
    tables, rows, _ = world.effects.shape
    count = draw.one_of((2, 3, 4, 5, 6, 7, 8, 10), (8, 2, 2, 2, 1, 1, 1, 2))
    kind = draw.one_of(("cuts", "scores", "blocks"), (0.45, 0.4, 0.15))
    if kind == "scores":
        clean = signal(world, count, draw, recipe)
        y = _highest_score(clean, world.quiet, draw)
    else:
        clean = signal(world, 1, draw, recipe)
        value = clean[..., 0]
        if not world.quiet and draw.chance(0.7):
            value = value + draw.log_between(0.01, 1.5) * draw.normal(tables, rows)
        y = _cut(value, count, draw) if kind == "cuts" else _blocks(value, count, draw)
    if not world.quiet and draw.chance(0.15):
        wrong = draw.uniform(tables, rows) < draw.between(0, 0.25)
        y = torch.where(wrong, draw.integers(count, tables, rows), y)
    y = draw.uniform(tables, count).argsort(1).gather(1, y)  # names have no order
    return Target(y, clean, count)


def _highest_score(scores: Tensor, quiet: bool, draw: Draw) -> Tensor:
    """The class with the highest score, some classes favoured; with noise, a softmax draw."""
    tables, _, count = scores.shape
    scores = scores + draw.between(0, 1.5) * draw.normal(tables, 1, count)
    if not quiet and draw.chance(0.7):
        scores = scores + draw.log_between(0.03, 1) * draw.gumbel(*scores.shape)
    return scores.argmax(2)


def _cut(value: Tensor, count: int, draw: Draw) -> Tensor:
    """Intervals of the value, from balanced to very unequal."""
    tables, rows = value.shape
    share = draw.uniform(tables, count).clamp_min(1e-3) ** draw.one_of((0.2, 1.0, 2.5, 5.0))
    share = share.clamp_min(0.005)
    ends = (share / share.sum(1, keepdim=True)).cumsum(1)[:, :-1]
    at = (ends * rows).long().clamp(1, rows - 2)
    return torch.searchsorted(value.sort(1).values.gather(1, at), value)


def _blocks(value: Tensor, count: int, draw: Draw) -> Tensor:
    """More intervals than classes: a class can lie on both sides of another."""
    tables, rows = value.shape
    pieces = count * draw.whole(2, 4)
    cuts = value.gather(1, draw.integers(rows, tables, pieces - 1)).sort(1).values
    return draw.integers(count, tables, pieces).gather(1, torch.searchsorted(cuts, value))


def as_codes(y: Tensor, train: int, count: int) -> tuple[Tensor, Tensor]:
    """Class codes (G, n), and which rows can be learnt from (G, n).

    As in a table that is handed to the package, the classes among the first ``train`` rows are 0 …
    C−1. A class that only later rows have cannot be predicted; those rows count for nothing, and
    neither do tables of a single class.
    """
    known = torch.nn.functional.one_hot(y[:, :train], count).amax(1)  # (G, count)
    codes = (known.cumsum(1) - 1).clamp_min(0).gather(1, y)
    usable = (known.gather(1, y) > 0) & (known.sum(1, keepdim=True) > 1)
    return codes.float(), usable


def numbers(world: World, draw: Draw, recipe: Recipe = EVERYTHING) -> Target:
    """Numbers with noise of several kinds, on scales of several kinds."""
    tables, rows, _ = world.effects.shape
    clean = signal(world, 1, draw, recipe)
    y = clean[..., 0]
    if not world.quiet and draw.chance(0.75):
        noise = draw.log_between(3e-3, 1.0) * draw.normal(tables, rows)
        if draw.chance(0.25):  # another spread here than there
            noise = noise * torch.exp(
                draw.between(0.3, 1)
                * random_function(draw)(world.effects, 1, draw)[..., 0].clamp(-3, 3)
            )
        if draw.chance(0.2):  # now and then far off
            noise = noise * torch.where(draw.uniform(tables, rows) < 0.05, 5.0, 1.0)
        y = y + noise
    return Target(_shape(standardise(y), draw), clean, 0)


def as_scores(y: Tensor, train: int) -> tuple[Tensor, Tensor]:
    """Numbers standardised by the first ``train`` rows as the package does, and which rows count
    (G, n)."""
    known = y[:, :train]
    mean, spread = known.mean(1, keepdim=True), known.std(1, keepdim=True, correction=0)
    y = ((y - mean) / spread.clamp_min(1e-6)).clamp(-30, 30)
    return y, (spread > 1e-4).expand_as(y)


def _shape(y: Tensor, draw: Draw) -> Tensor:
    """Prices are skewed, grades are whole numbers, claims are mostly zero."""
    kind = draw.one_of(
        ("plain", "skewed", "bounded", "whole", "piled"), (0.5, 0.25, 0.1, 0.1, 0.05)
    )
    if kind == "skewed":
        return torch.exp(draw.between(0.2, 1.2) * y.clamp(-4, 4))
    if kind == "bounded":
        return torch.sigmoid(draw.log_between(0.5, 3) * y)
    if kind == "whole":
        return torch.round(y * draw.log_between(0.7, 5))
    if kind == "piled":
        return (y - draw.between(-1, 0.5)).clamp_min(0)
    return y
