"""Contexts as CRUMB makes them: queries from one region of a large pool, rows that were chosen for
these queries.

Nearest rows are what k-NN strategies take. Herding takes rows that are distributed as the queries
are; drawing rows with weights that fall with the distance from the queries does nearly the same,
for many tables at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.draw import Draw
from pretraining.functions import standardise

MOST_ROWS = 100_000  # of a pool
MOST_CELLS = 3_000_000  # of all pools of a group


def pool_rows(tables: int, rows: int, features: int, draw: Draw) -> int:
    """Rows of the pools from which tables of ``rows`` rows are chosen."""
    affordable = MOST_CELLS // (tables * (features + 8))
    return max(2 * rows, min(MOST_ROWS, affordable, int(rows * draw.log_between(2, 64))))


def choose(X: Tensor, y: Tensor, context: int, queries: int, classes: int, draw: Draw) -> Tensor:
    """(G, context + queries) rows of pools X (G, P, d) with targets y (G, P), the context first."""
    space = standardise(X).clamp(-4, 4)
    tables, pool = y.shape
    centre = space.gather(1, draw.integers(pool, tables, 1, 1).expand(-1, -1, X.shape[2]))
    far = _distance(space, centre)
    region = min(pool - context, max(2 * queries, int(pool * draw.log_between(0.02, 0.5))))
    inside = far.topk(region, dim=1, largest=False).indices
    asked = inside.gather(1, draw.subset(tables, region, queries))
    width = far.gather(1, asked).mean(1, keepdim=True).clamp_min(1e-3)
    if draw.chance(0.3):  # the queries have moved on since the pool was collected
        other = space.gather(1, draw.integers(pool, tables, 1, 1).expand(-1, -1, X.shape[2]))
        far = _distance(space, centre + draw.between(0.1, 0.6) * (other - centre))
    score = -far / width * draw.log_between(0.3, 5)
    if draw.chance(0.6):
        score = score + draw.gumbel(tables, pool)  # drawn by weight; otherwise the nearest
    if classes and draw.chance(0.25):
        score = score.masked_fill(_thinned(y, draw), -1e9)
    score = score.scatter(1, asked, -torch.inf)
    return torch.cat([score.topk(context, dim=1).indices, asked], dim=1)


def _distance(space: Tensor, centre: Tensor) -> Tensor:
    return (space - centre).square().mean(2)


def _thinned(y: Tensor, draw: Draw) -> Tensor:
    """(G, P) most rows of one class: the context has fewer of it than the pool."""
    tables, pool = y.shape
    rare = y.gather(1, draw.integers(pool, tables, 1))
    return (y == rare) & (draw.uniform(tables, pool) < draw.between(0.2, 0.9))
