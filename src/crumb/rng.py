"""The one place where random numbers come from. Each purpose has numbers of its own.

``generator`` gives a numpy generator. ``row_numbers`` gives numbers that belong to the rows of a
pool: the same ones in memory, in files, and in any part of either.
"""

from __future__ import annotations

import zlib

import numpy as np


def generator(seed: int, purpose: str) -> np.random.Generator:
    """An independent generator for each purpose, the same one every time it is asked for."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def row_numbers(ids: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """A number in [0, 1) for each row, from its row number, seed and purpose (splitmix64)."""
    start = (seed << 32) + zlib.crc32(purpose.encode())
    x = ids.astype(np.uint64) + np.uint64((start * 0x9E3779B97F4A7C15) % 2**64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
