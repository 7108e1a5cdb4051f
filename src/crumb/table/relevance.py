"""How much each column tells about the target: weights for the selection space.

Rows help the network when they are like the query in what matters. In the plain space all columns
count alike, so a table of many weak columns hides the few that matter. A forest of shallow trees
says how much each column tells; distance² counts a column by that share. docs/defaults.md has the
measurements.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from crumb.rng import generator
from crumb.table.encoder import Rows, TableEncoder, column, number_column, texts

AUTO = "auto"
LEAST_POOL = 2_000  # rows; a smaller pool is a context by itself, and nothing is selected
MOST_ROWS = 20_000  # that the forest learns from
MOST_CELLS = 2_000_000
LEAST_SHARE = 0.05  # of an average column's: what a forest overlooks may matter to the network
FOREST = {"n_estimators": 30, "max_leaf_nodes": 500, "max_features": 0.5}


def relevance_rows(rows: int, columns: int, seed: int) -> np.ndarray:
    """Which rows the forest learns from, rising; none where nothing has to be selected."""
    if rows <= LEAST_POOL:
        return np.empty(0, dtype=np.int64)
    count = min(rows, MOST_ROWS, max(LEAST_POOL, MOST_CELLS // max(1, columns)))
    return np.sort(generator(seed, "relevance").choice(rows, count, replace=False))


def column_weights(
    rows: Rows, encoder: TableEncoder, y: np.ndarray, classify: bool, seed: int, jobs: int
) -> np.ndarray:
    """(columns,) the root of each column's share of what a forest learns, relative to the average.

    ``y``: labels of the rows, of any kind that can be sorted.
    """
    places = np.unique(y, return_inverse=True)[1]
    # Ranks: a few extreme targets would decide everything.
    target = places if classify else (places - places.mean()) / max(1.0, places.std())
    kind = RandomForestClassifier if classify else RandomForestRegressor
    forest = kind(**FOREST, random_state=seed % 2**32, n_jobs=jobs)
    shares = forest.fit(_codes(rows, encoder), target).feature_importances_
    if not shares.sum():  # one class, or nothing that tells
        return np.ones(len(shares))
    return np.sqrt(np.maximum(shares / shares.mean(), LEAST_SHARE))


def _codes(rows: Rows, encoder: TableEncoder) -> np.ndarray:
    """Numbers near 0, where float32 tells them apart; a category is the place of its word."""
    table = np.empty(rows.shape, dtype=np.float32)
    for j in encoder.numeric_indices:
        values = number_column(rows, j)
        table[:, j] = values - np.nanmean(values) if not np.isnan(values).all() else 0.0
    for j in encoder.categorical_indices:
        table[:, j] = np.unique(texts(column(rows, j), ""), return_inverse=True)[1]
    return table
