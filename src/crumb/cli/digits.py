"""The table of the demo: scikit-learn's handwritten digits, tilted a little. No download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import load_digits

from crumb.errors import InvalidInput

SIDE = 8  # images are 8 × 8 pixels
DARKEST = 16.0
TILTS = (0, 5, -5, 10, -10, 15, -15)  # degrees
QUERIES = 300


@dataclass(frozen=True)
class Digits:
    X_pool: np.ndarray
    y_pool: np.ndarray
    X_queries: np.ndarray
    y_queries: np.ndarray


def tilted_digits(n_rows: int, seed: int = 0) -> Digits:
    """``n_rows`` labelled images and 300 queries; no query is a tilted copy of a pool row."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    queries, originals = order[:QUERIES], order[QUERIES:]
    largest = len(originals) * len(TILTS)
    if not 100 <= n_rows <= largest:
        raise InvalidInput(f"--rows must be between 100 and {largest:,}, got {n_rows:,}.")
    copies = rng.permutation(largest)[:n_rows]
    source = originals[copies % len(originals)]
    return Digits(
        X_pool=_tilted(images[source], copies // len(originals)),
        y_pool=labels[source],
        X_queries=_tilted(images[queries], rng.integers(len(TILTS), size=QUERIES)),
        y_queries=labels[queries],
    )


def _tilted(rows: np.ndarray, tilts: np.ndarray) -> np.ndarray:
    """Each image turned about its middle, still in whole levels of grey."""
    images = rows.reshape(-1, SIDE, SIDE)
    turned = np.empty_like(images)
    for index, degrees in enumerate(TILTS):
        mine = tilts == index
        turned[mine] = rotate(images[mine], degrees, axes=(1, 2), reshape=False, order=1)
    return turned.round().clip(0, DARKEST).reshape(len(rows), -1)
