"""Worlds: variables that depend on each other, and the columns that people made of them, in several
kinds.

``plain`` worlds have something of everything. Each other kind has much of what networks find hard.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pretraining import columns
from pretraining.draw import Draw
from pretraining.functions import Function, linear, rules, smooth, standardise, steps
from pretraining.graph import causal_graph, causes


@dataclass(frozen=True)
class World:
    """The columns of G tables of n rows, and what a target can depend on."""

    X: Tensor  # (G, n, d) as stored
    effects: Tensor  # (G, n, d) the columns as they act; those that do not are zero
    variables: Tensor  # (G, n, M) all variables of the graph
    hidden: Tensor  # (G, n, M − d) those that are not columns
    categorical: Tensor  # (G, 1, d)
    mechanism: Function | None = None  # that makes the target from the effects; None: any
    quiet: bool = False  # a target without noise


def make(
    kind: str, tables: int, rows: int, features: int, draw: Draw, smoothly: bool = False
) -> World:
    """Tables of one kind (``recipe.KINDS``); ``smoothly``: the target depends on all columns so."""
    variables = (
        _collinear(tables, rows, features + 1, draw)
        if kind == "collinear"
        else causal_graph(tables, rows, features + 1, draw)
    )
    X, hidden = observed(variables, features, draw)
    X, useless = columns.useless_and_doubled(X, draw) if kind != "collinear" else (X, None)
    if kind == "ratios":
        X, effects = columns.ratios(X, draw)
        categorical = torch.zeros(tables, 1, features, dtype=torch.bool, device=X.device)
    else:
        X = X if kind == "collinear" else columns.skew(X, draw)
        X, effects, categorical = columns.categories(X, draw, kind)
    if useless is not None:
        effects = effects * ~useless
    if kind in ("sparse", "steps"):
        effects = effects * _few(tables, features, draw)
    mechanism = {"rules": rules, "steps": steps, "collinear": linear}.get(kind)
    quiet = mechanism is not None and draw.chance(0.75)
    if smoothly:
        mechanism, quiet = smooth, draw.chance(0.5)
    return World(X, effects, variables, hidden, categorical, mechanism, quiet)


def observed(variables: Tensor, features: int, draw: Draw) -> tuple[Tensor, Tensor]:
    """The variables that someone wrote down, in any order, and the others, in the order of the
    graph."""
    tables, rows, count = variables.shape
    if draw.chance(0.3):  # what was measured together belongs together
        start = draw.integers(count - features + 1, tables, 1)
        chosen = start + draw.subset(tables, features, features)
    else:
        chosen = draw.subset(tables, count, features)
    written = torch.zeros(tables, count, dtype=torch.long, device=variables.device).scatter(
        1, chosen, 1
    )
    others = written.argsort(dim=1, stable=True)[:, : count - features]
    X, hidden = (
        variables.gather(2, which.unsqueeze(1).expand(-1, rows, -1)) for which in (chosen, others)
    )
    return X, hidden


def _collinear(tables: int, rows: int, width: int, draw: Draw) -> Tensor:
    """Many measurements of few things: linear mixtures of some causes, nearly without noise."""
    factors = causes(tables, rows, draw.whole(1, max(1, width // 2)), draw)
    mixed = factors @ draw.normal(tables, factors.shape[2], width)
    return standardise(mixed + draw.log_between(1e-3, 0.3) * draw.normal(tables, rows, width))


def _few(tables: int, features: int, draw: Draw) -> Tensor:
    """(G, 1, d) true for one to five columns, other ones in every table."""
    chosen = draw.subset(tables, features, min(features, draw.whole(1, 5)))
    none = torch.zeros(tables, features, dtype=torch.bool, device=chosen.device)
    return none.scatter(1, chosen, True).unsqueeze(1)
