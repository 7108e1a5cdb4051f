"""The paper's formulas, written as plainly as possible in float64: the oracle of the tests."""

from __future__ import annotations

import numpy as np


def rbf(a: np.ndarray, b: np.ndarray, sigma: float) -> np.ndarray:
    squared = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-squared / (2 * sigma**2))


def mmd2(context: np.ndarray, queries: np.ndarray, sigma: float) -> float:
    """MMD² between two samples, the biased estimate."""
    return float(
        rbf(context, context, sigma).mean()
        - 2 * rbf(context, queries, sigma).mean()
        + rbf(queries, queries, sigma).mean()
    )


def greedy(
    pool: np.ndarray, queries: np.ndarray, n: int, sigma: float, batch: int = 1
) -> list[int]:
    """Eq. (greedy score), one loop for each symbol."""
    cross = rbf(pool, queries, sigma).mean(axis=1)
    among = rbf(pool, pool, sigma)
    chosen: list[int] = []
    while len(chosen) < n:
        redundancy = among[:, chosen].sum(axis=1)
        score = -2 * cross + 2 / (len(chosen) + 1) * redundancy
        score[chosen] = np.inf
        chosen += np.argsort(score, kind="stable")[: min(batch, n - len(chosen))].tolist()
    return chosen


def standardise(pool: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = pool.mean(axis=0), pool.std(axis=0)
    scale[scale == 0] = 1.0
    return (pool - mean) / scale, (queries - mean) / scale
