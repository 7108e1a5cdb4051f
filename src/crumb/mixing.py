"""Answers mixed, and the share of the second of two that explains labels best."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from crumb.pfn.base import TargetScale

SHARES = np.linspace(0, 1, 21)  # that are looked at
LEAST = 1e-5  # a lower probability of the right class costs as much as this one
FAINT = 1e-7  # probabilities below it count as this one in a geometric mean


def mixture(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """Two answers as one; ``share`` is that of the second."""
    return blend((first, second), (1 - share, share))


def blend(answers: Iterable[np.ndarray], shares: Iterable[float]) -> np.ndarray:
    """Numbers (n,): their mean. Probabilities (n, C): their geometric mean. Shares sum to 1.

    Where one answer is certain and right, the geometric mean is nearly as certain.
    """
    total = np.zeros(())
    for one, share in zip(answers, shares, strict=True):
        if share:
            total = total + share * (one if one.ndim == 1 else np.log(np.maximum(one, FAINT)))
    if total.ndim == 1:
        return total
    likely = np.exp(total)
    return likely / likely.sum(axis=1, keepdims=True)


def averaged(answers: np.ndarray, who: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Several answers (P, …) to each query as one: their mean.

    ``who`` (P,), rising: whose answer it is. ``weights`` (P,) sum to 1 for each of them.
    """
    starts = np.flatnonzero(np.diff(who, prepend=-1))
    weights = weights.reshape(-1, *[1] * (answers.ndim - 1))
    return np.add.reduceat(weights * answers, starts, axis=0)


def pooled(proba: np.ndarray, who: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``averaged`` for probabilities (P, C): their geometric mean.

    Below 0: an answer says nothing of this class. Then those that do decide, and it counts as much
    as they do.
    """
    known = ~(proba < 0)
    logs = np.log(np.maximum(np.where(known, proba, 1.0), FAINT))
    total, mass = averaged(logs, who, weights), averaged(known.astype(float), who, weights)
    likely = mass * np.exp(total / np.where(mass > 0, mass, 1.0))
    return likely / likely.sum(axis=1, keepdims=True)


def losses(y: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Of the mixture with each of ``SHARES``; squared errors in units of the targets' variance."""
    if first.ndim == 1:  # squares of large numbers would overflow
        y, first, second = map(TargetScale.of(y).scaled, (y, first, second))
    return np.array([loss(y, mixture(first, second, share)).mean() for share in SHARES])


def loss(y: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Of each row: −log of the probability of its class, or the squared error."""
    if answers.ndim == 1:
        return (y - answers) ** 2
    return -np.log(np.clip(answers[np.arange(len(y)), y], LEAST, None))


def mean_share(found: np.ndarray, rows: int, squares: bool) -> tuple[int, float]:
    """Which pair of answers is the likeliest, and the mean share of its second, by likelihood.

    ``found`` (pairs, shares): mean losses over ``rows``, of −log of probabilities or of
    ``squares``, whose likelihood is that of errors with a normal distribution.
    """
    surprise = rows / 2 * np.log(np.maximum(found, 1e-300)) if squares else rows * found
    likelihood = np.exp(surprise.min() - surprise)
    pair = int(likelihood.sum(axis=1).argmax())
    return pair, round(float(np.average(SHARES, weights=likelihood[pair])), 2)
