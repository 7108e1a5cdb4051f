"""A column that predicts the target: what trees that were fitted to the whole pool say of a row
they did not see.

The predictions are those of real trees: random splits, and in every leaf the mean target of its
*other* rows. So they are right on average, err together where a leaf is too coarse, and are as good
as the splits: from useless (splits in any column) to near perfect (splits in the signal behind the
target). Sharpened, they are too sure of themselves.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pretraining.draw import Draw
from pretraining.functions import leaf_of, standardise
from pretraining.targets import Target
from pretraining.worlds import World

PRIOR = 2.0  # rows that a leaf begins with


def predictions(world: World, target: Target, most: int, draw: Draw) -> Tensor:
    """(G, n, k ≤ most): log-odds of one or of all classes, or predicted numbers."""
    trees, depth = draw.whole(4, 12), draw.whole(3, 7)
    clean = standardise(target.clean.float())
    clean = clean + draw.log_between(0.01, 1) * draw.normal(*clean.shape)
    inputs = torch.cat([world.effects, clean], dim=2)
    leaf = leaf_of(
        inputs, trees, depth, draw, favoured=clean.shape[2], share=draw.uniform_or(0.0, 1.0)
    )
    leaf = (leaf + torch.arange(trees, device=leaf.device) * 2**depth).flatten(1)  # (G, n · trees)
    means = [_others_mean(leaf, value, trees * 2**depth) for value in _values(target, most, draw)]
    mean = torch.stack(means, dim=2)  # (G, n, k)
    if not target.classes:
        return mean + draw.between(0, 0.2) * draw.normal(*mean.shape)
    odds = torch.logit(mean.clamp(1e-4, 1 - 1e-4)) * draw.log_between(0.8, 4)
    return odds + draw.between(0, 0.3) * draw.normal(*odds.shape)


def put_in(X: Tensor, values: Tensor, draw: Draw) -> Tensor:
    """Predictions (G, n, k) in the place of k of the columns, other ones in every table."""
    at = draw.subset(X.shape[0], X.shape[2], values.shape[2])
    return X.scatter(2, at.unsqueeze(1).expand_as(values), values)


def _values(target: Target, most: int, draw: Draw) -> list[Tensor]:
    if not target.classes:
        return [target.y]
    if target.classes == 2 or most < target.classes or draw.chance(0.3):
        return [(target.y == draw.whole(0, target.classes - 1)).float()]
    return list(F.one_hot(target.y, target.classes).float().unbind(2))


def _others_mean(leaf: Tensor, value: Tensor, leaves: int) -> Tensor:
    """(G, n): the mean over trees of the mean value of the other rows in a row's leaf."""
    tables, rows = value.shape
    each = value.unsqueeze(2).expand(-1, -1, leaf.shape[1] // rows).flatten(1)
    empty = value.new_zeros(tables, leaves)
    total = empty.scatter_add(1, leaf, each).gather(1, leaf) - each
    count = empty.scatter_add(1, leaf, torch.ones_like(each)).gather(1, leaf) - 1
    base = value.mean(1, keepdim=True)
    return ((total + PRIOR * base) / (count + PRIOR)).unflatten(1, (rows, -1)).mean(2)
