"""``min_per_class``: keep a few rows of every class in every context.

Herding looks at features alone, and so do all the baselines. A rare class that lies elsewhere drops
out of a context, and the PFN then gives it probability zero. So the least wanted rows of frequent
classes are swapped for the missing classes' rows nearest to the cluster. The size stays the same.
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def keep_rare_classes(
    context: np.ndarray, centroid: np.ndarray, pool: np.ndarray, y: np.ndarray, min_per_class: int
) -> np.ndarray:
    """The context with at least ``min_per_class`` rows of each class, as far as there is room.

    ``y`` holds class codes 0 … C−1. Rows that stay keep their order; new rows come at the end.
    """
    in_pool = np.bincount(y)
    minima = (np.minimum(in_pool, minimum) for minimum in range(min_per_class, -1, -1))
    wanted = next(rows for rows in minima if rows.sum() <= len(context))  # the most with room
    present = np.bincount(y[context], minlength=len(in_pool))
    missing = np.maximum(wanted - present, 0)
    if not missing.any():
        return context
    incoming = []
    for label in np.flatnonzero(missing):
        rows = np.setdiff1d(np.flatnonzero(y == label), context)
        distance = ((pool[rows] - centroid) ** 2).sum(axis=1)
        incoming.append(rows[np.argsort(distance, kind="stable")[: missing[label]]])
    # The last rows of classes that can spare them go.
    backwards = y[context][::-1]
    later = pd.Series(backwards).groupby(backwards).cumcount().to_numpy()  # of the same class
    leaving = np.flatnonzero(later < (present - wanted)[backwards])[: missing.sum()]
    return np.concatenate([np.delete(context, len(context) - 1 - leaving), *incoming])
