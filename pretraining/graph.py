"""Structural causal models: variables that are noisy random functions of earlier variables."""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.draw import Draw
from pretraining.functions import random_function, standardise


def causes(tables: int, rows: int, width: int, draw: Draw) -> Tensor:
    """(G, n, width) exogenous variables: Gaussian, uniform, clustered, heavy-tailed, or a mixture
    over the rows."""
    kind = draw.whole(0, 4)
    if kind == 0:
        z = draw.normal(tables, rows, width)
    elif kind == 1:
        z = draw.uniform(tables, rows, width) * 2 - 1
    elif kind == 2:
        count = draw.whole(2, 12)
        centres = draw.normal(tables, count, width) * draw.between(1, 3)
        which = draw.skewed(count, draw.between(1, 2), tables, rows)
        z = centres.gather(1, which.unsqueeze(2).expand(-1, -1, width)) + draw.normal(
            tables, rows, width
        )
    elif kind == 3:  # Student's t: a Gaussian over the root of a few squared Gaussians
        spread = draw.normal(draw.whole(2, 5), tables, rows, width).square().sum(0)
        z = draw.normal(tables, rows, width) / (spread + 0.1).sqrt()
    else:  # a few rows are of another kind: outliers that come together
        odd = draw.uniform(tables, rows, 1) < draw.between(0, 0.2)
        z = draw.normal(tables, rows, width) * torch.where(odd, draw.between(2, 5), 1.0)
    if draw.chance(0.3):  # correlated causes
        z = z + draw.between(0, 2) * draw.normal(tables, rows, 1)
    return standardise(z)


def causal_graph(tables: int, rows: int, least: int, draw: Draw) -> Tensor:
    """(G, n, M ≥ least) the values of all variables of one graph, later ones to the right.

    All tables of a call share the graph; each has its own functions' parameters, causes and noise.
    """
    steps = draw.whole(1, 6)
    width = max(1, int(draw.log_between(1, 2 * least + 4)))
    layers = [causes(tables, rows, min(width, 64), draw)]
    noise = draw.log_between(1e-3, 0.7) if draw.chance(0.8) else 0.0
    missing = least - layers[0].shape[2]
    for step in range(steps):
        width = max(1, round(draw.between(0.5, 2) * max(missing, 1) / (steps - step)))
        if step == steps - 1:
            width = max(width, missing)
        parents = [layers[draw.whole(0, len(layers) - 1)] for _ in range(draw.whole(1, 3))]
        inputs = torch.cat(parents, dim=2) if len(parents) > 1 else parents[0]
        values = random_function(draw)(inputs, width, draw)
        if noise:
            values = values + noise * draw.normal(tables, rows, width) * draw.uniform(
                tables, 1, width
            )
        layers.append(values)
        missing -= width
    return torch.cat(layers, dim=2)
