"""``min_per_class``: keep a few rows of every class in every context.

Herding looks at features alone, and so do all the baselines. A rare class that lies elsewhere drops
out of a context, and the PFN then gives it probability zero. So the least wanted rows of frequent
classes are swapped for the missing classes' rows nearest to the cluster. The size stays the same.
"""

from __future__ import annotations

import numpy as np


def keep_rare_classes(
    context: np.ndarray, centroid: np.ndarray, pool: np.ndarray, y: np.ndarray, min_per_class: int
) -> np.ndarray:
    """The context with at least ``min_per_class`` rows of each class, as far as there is room.

    ``y`` holds class codes 0 … C−1. Rows that stay keep their order; new rows come at the end.
    """
    in_pool = np.bincount(y)
    wanted = _affordable(in_pool, min_per_class, len(context))
    present = np.bincount(y[context], minlength=len(in_pool))
    missing = np.maximum(wanted - present, 0)
    if not missing.any():
        return context
    incoming = np.concatenate(
        [
            _nearest_of_class(c, missing[c], context, centroid, pool, y)
            for c in np.flatnonzero(missing).tolist()
        ]
    )
    leaving = _least_wanted(y[context], present - wanted, len(incoming))
    return np.concatenate([np.delete(context, leaving), incoming])


def _affordable(in_pool: np.ndarray, min_per_class: int, size: int) -> np.ndarray:
    """Rows wanted of each class: the largest minimum up to ``min_per_class`` that has room."""
    for minimum in range(min_per_class, 0, -1):
        wanted = np.minimum(in_pool, minimum)
        if wanted.sum() <= size:
            return wanted
    return np.zeros_like(in_pool)


def _nearest_of_class(
    label: int,
    count: int,
    context: np.ndarray,
    centroid: np.ndarray,
    pool: np.ndarray,
    y: np.ndarray,
) -> np.ndarray:
    rows = np.flatnonzero(y == label)
    rows = rows[~np.isin(rows, context)]
    distance = ((pool[rows] - centroid) ** 2).sum(axis=1)
    return rows[np.argsort(distance, kind="stable")[:count]]


def _least_wanted(labels: np.ndarray, surplus: np.ndarray, count: int) -> list[int]:
    """Positions of the last ``count`` rows whose class can spare them."""
    leaving: list[int] = []
    surplus = surplus.copy()
    for position in range(len(labels) - 1, -1, -1):
        if len(leaving) == count:
            break
        if surplus[labels[position]] > 0:
            surplus[labels[position]] -= 1
            leaving.append(position)
    return leaving
