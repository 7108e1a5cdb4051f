"""Random numbers that belong to the rows of a pool: the same ones in memory, in files, and in any part of them."""

from __future__ import annotations

import numpy as np


def random_numbers(ids: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each row, by its own number and the seed (the mixing of splitmix64)."""
    x = ids.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
