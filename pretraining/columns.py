"""From variables to the columns of a table as people keep them: categories, skew, gaps, useless and
doubled columns."""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.draw import Draw
from pretraining.functions import standardise


def useless_and_doubled(X: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    """Some columns become noisy copies or mixtures of others, some become noise. Which are noise:
    (G, 1, d)."""
    tables, rows, width = X.shape
    if width > 1 and draw.chance(0.3):
        other = X.gather(2, draw.integers(width, tables, 1, width).expand(-1, rows, -1))
        mixed = standardise(
            other + draw.between(0, 0.8) * X + draw.between(0, 0.3) * draw.normal(*X.shape)
        )
        X = torch.where(draw.uniform(tables, 1, width) < draw.between(0, 0.6), mixed, X)
    useless = draw.uniform(tables, 1, width) < (
        draw.between(0, 0.8) if width > 1 and draw.chance(0.4) else 0.0
    )
    return torch.where(useless, draw.normal(*X.shape), X), useless


def skew(X: Tensor, draw: Draw) -> Tensor:
    """Heavy tails, bounded scales, rounded values and piles of zeros, in some of the columns."""
    tables, _, width = X.shape
    for _ in range(draw.whole(0, 3)):
        kind = draw.whole(0, 6)
        if kind == 0:
            warped = torch.exp(draw.log_between(0.3, 1.5) * X.clamp(-5, 5))
        elif kind == 1:
            warped = X.sign() * X.abs() ** draw.log_between(0.4, 3)
        elif kind == 2:
            warped = torch.erf(X)
        elif kind == 3:
            step = draw.log_between(0.05, 1)
            warped = torch.round(X / step) * step
        elif kind == 4:
            warped = (X - draw.between(-0.5, 1)).clamp_min(0)
        elif kind == 5:
            warped = X.clamp(
                draw.between(-2, -0.5), draw.between(0.5, 2)
            )  # readings at the end of a scale
        else:
            warped = torch.exp(X.clamp(-5, 5)).round()  # counts
        X = torch.where(draw.uniform(tables, 1, width) < draw.between(0, 1), standardise(warped), X)
    return X


def ratios(X: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
    """The table as it is stored and as it acts: columns with tails so heavy that most of a column
    is one spot.

    A quotient of two amounts, or an amount on a log scale. What matters is where in the crowd a
    value lies.
    """
    tables, rows, width = X.shape
    powers = torch.exp(draw.between(1, 4) * X.clamp(-4, 4)) * torch.where(
        draw.uniform(tables, 1, width) < 0.3, -1, 1
    )
    below = draw.normal(tables, rows, width).abs() + draw.log_between(1e-3, 0.3)
    quotients = (
        X * below.reciprocal()
        if draw.chance(0.5)
        else X.sign() * torch.expm1(draw.between(1, 4) * X.abs())
    )
    heavy = torch.where(draw.uniform(tables, 1, width) < draw.between(0, 1), powers, quotients)
    chosen = draw.uniform(tables, 1, width) < draw.between(0.4, 1)
    return torch.where(chosen, heavy, X), X


def categories(X: Tensor, draw: Draw, kind: str = "plain") -> tuple[Tensor, Tensor, Tensor]:
    """The table as it is stored and as it acts: in some columns, integer codes and the effects of
    the categories.

    Which columns these are comes third (G, 1, d). The codes of some are in the order of the values
    that they stand for, as grades are; the rest are shuffled. Worlds of ``rules`` have few other
    columns; ``identifiers`` have hundreds or thousands of categories.
    """
    tables, rows, width = X.shape
    chosen = draw.uniform(tables, 1, width) < draw.one_of(
        (0.8, 1.0) if kind == "rules" else (0.2, 0.5, 0.8, 1.0)
    )
    if (kind == "plain" and not draw.chance(0.6)) or (
        kind in ("sparse", "steps", "collinear") and not draw.chance(0.2)
    ):
        return X, X, torch.zeros_like(chosen)
    most = draw.one_of((2, 3, 5, 8, 12, 30, 60), (2, 1.5, 2, 2, 2, 1, 0.7))
    if kind == "identifiers":
        most = draw.one_of((100, 300, 1_000, 3_000))
    sizes = 2 + draw.integers(most - 1, tables, width, 1)  # categories of every column
    place = torch.arange(most, device=X.device)
    # Cuts at the values of random rows: categories of very different frequency.
    cuts = X.gather(1, draw.integers(rows, tables, most - 1, width)).transpose(
        1, 2
    )  # (G, d, most − 1)
    cuts = cuts.masked_fill(place[1:] >= sizes, torch.inf).sort(2).values
    which = torch.searchsorted(cuts.contiguous(), X.transpose(1, 2).contiguous())  # (G, d, n)
    shuffled = (
        draw.uniform(tables, width, most).masked_fill(place >= sizes, 2.0).argsort(2).argsort(2)
    )
    ordered = draw.uniform(tables, width, 1) < 0.4
    codes = torch.where(ordered, which, shuffled.gather(2, which)).transpose(1, 2).float()
    effects = draw.normal(tables, width, most).gather(2, which).transpose(1, 2)
    effects = torch.where(ordered.transpose(1, 2), codes, effects)
    return torch.where(chosen, codes, X), torch.where(chosen, standardise(effects), X), chosen


def gaps(X: Tensor, categorical: Tensor, train: int, draw: Draw) -> Tensor:
    """Missing cells as the package fills them: numbers with the mean of the known training cells,
    categories by −1."""
    if not draw.chance(0.25):
        return X
    tables, rows, width = X.shape
    rate = draw.uniform(tables, 1, width) ** 2 * draw.between(0, 0.9)
    rate = rate * (draw.uniform(tables, 1, width) < draw.between(0.1, 1))
    if draw.chance(0.4):  # large (or small) values are missing more often
        rate = rate * torch.sigmoid(draw.between(-3, 3) * standardise(X)) * 2
    missing = draw.uniform(tables, rows, width) < rate
    known = ~missing[:, :train]
    mean = (X[:, :train] * known).sum(1, keepdim=True) / known.sum(1, keepdim=True).clamp_min(1)
    return torch.where(missing, torch.where(categorical, -1.0, mean), X)


def as_the_package_sees(X: Tensor, train: int, draw: Draw) -> Tensor:
    """tabicl's preparation, fitted on the first ``train`` rows: standardised, outliers drawn in."""
    known = X[:, :train]
    mean, spread = known.mean(1, keepdim=True), known.std(1, keepdim=True, correction=0)
    # The package drops columns that are constant in the training rows; here tables keep their
    # width, so noise it is.
    X = torch.where(spread < 1e-5, draw.normal(*X.shape), (X - mean) / (spread + 1e-6)).clamp(
        -100, 100
    )
    known = X[:, :train]
    mean, spread = known.mean(1, keepdim=True), known.std(1, keepdim=True)
    usual = ((known - mean).abs() <= 4 * spread).float()
    count = usual.sum(1, keepdim=True).clamp_min(2)
    mean = (known * usual).sum(1, keepdim=True) / count
    spread = (
        (((known - mean).square() * usual).sum(1, keepdim=True) / (count - 1))
        .sqrt()
        .clamp_min(1e-6)
    )
    X = torch.maximum(X, mean - 4 * spread - X.abs().log1p())
    return torch.minimum(X, mean + 4 * spread + X.abs().log1p())
