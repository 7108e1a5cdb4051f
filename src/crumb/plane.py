"""The selection space in two dimensions, for people to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crumb.rng import generator

FITTED_ROWS = 5_000  # pool rows behind the two axes


@dataclass(frozen=True)
class Plane:
    """The two directions in which the pool varies most, and the share of its variance in each."""

    centre: np.ndarray  # (d,)
    directions: np.ndarray  # (d, 2)
    shares: np.ndarray  # (2,)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        at = (points - self.centre) @ self.directions
        if self.is_line:  # points on a line would hide each other
            at[:, 1] = generator(0, "picture").uniform(-1, 1, len(at))
        return at

    @property
    def is_line(self) -> bool:
        return bool(self.shares[1] < 1e-12)


def flatten(pool: np.ndarray) -> Plane:
    """Principal components of a sample of the pool; a space of one dimension has no second one."""
    sample = sampled(pool, FITTED_ROWS)
    centre = sample.mean(axis=0)
    _, spread, directions = np.linalg.svd(sample - centre, full_matrices=False)
    flat, shares = np.zeros((pool.shape[1], 2)), np.zeros(2)
    found = min(2, len(directions))
    flat[:, :found] = directions[:found].T
    shares[:found] = spread[:found] ** 2 / max(float((spread**2).sum()), np.finfo(float).tiny)
    return Plane(centre, flat, shares)


def sampled(rows: np.ndarray, limit: int) -> np.ndarray:
    """At most ``limit`` of these rows; the same ones every time."""
    if len(rows) <= limit:
        return rows
    return rows[generator(0, "picture").choice(len(rows), limit, replace=False)]
