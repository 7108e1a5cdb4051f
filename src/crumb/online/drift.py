"""Whether the queries have left the plan: MMD² to those that it was made for, and their distance to its centroids.

Both are held against what chance does. Without drift the queries of the window and those behind the plan are draws
from one distribution, so exchanging them changes nothing; how large the two statistics get when rows are exchanged at
random is the spread that drift has to exceed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import cdist

from crumb.kernel import Rbf

SAMPLE = 512  # rows of each side: the test costs as much as (2 · SAMPLE)² kernel values, whatever the stream
EXCHANGES = 500  # random exchanges behind the spread
ROUNDING = 1e-12  # statistics below this are zero: where all queries are equal there is no spread to compare with


@dataclass(frozen=True)
class Drift:
    """What a look at the window found. ``score``: the larger of the two statistics in units of what chance explains."""

    score: float
    mmd2: float
    distance: float  # mean distance of the window to its centroids, in units of that at plan time

    @property
    def found(self) -> bool:
        return self.score > 1.0


@dataclass(frozen=True)
class Baseline:
    """A sample of the queries behind a plan, and how far they were from their centroids."""

    points: np.ndarray
    distances: np.ndarray
    centroids: np.ndarray
    bandwidth: float

    @classmethod
    def of(cls, points: np.ndarray, labels: np.ndarray, centroids: np.ndarray, bandwidth: float, seed: int) -> Baseline:
        distances = unseen_distances(points, labels, centroids)
        if len(points) > SAMPLE:
            kept = np.sort(np.random.default_rng([seed, 1]).choice(len(points), SAMPLE, replace=False))
            points, distances = points[kept], distances[kept]
        return cls(points, distances, centroids, bandwidth)

    def compare(self, window: np.ndarray, significance: float, seed: int) -> Drift:
        """Whether the window (its latest ``SAMPLE`` rows) looks like the queries behind the plan.

        ``significance`` is the probability of an alarm without drift, halved between the two statistics.
        """
        window = window[-SAMPLE:]
        weights = _exchanged(len(self.points), len(window), np.random.default_rng([seed, 2]))
        mmd2 = _mmd2(np.concatenate([self.points, window]), self.bandwidth, weights)
        distances = np.concatenate([self.distances, cdist(window, self.centroids).min(axis=1)])
        farther = distances @ weights  # mean of the window less mean of the plan
        scale = max(1.0, float(distances.max()))
        score = max(_excess(mmd2, significance / 2, 1.0), _excess(farther, significance / 2, scale))
        usual = max(float(self.distances.mean()), np.finfo(float).tiny)
        return Drift(score, float(mmd2[0]), float(distances[len(self.points) :].mean()) / usual)


def unseen_distances(points: np.ndarray, labels: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """How far the queries behind a plan would have been from its centroids had they not made them.

    A centroid is the mean of its queries and therefore near to them; new queries of the same kind are farther away, and
    would pass for drift. Without query i, the mean of n queries moves away from it by the factor n / (n − 1), and the
    query falls to the next centroid if that is nearer.
    """
    distances = cdist(points, centroids)
    rows, sizes = np.arange(len(points)), np.bincount(labels, minlength=len(centroids))[labels]
    own = distances[rows, labels].copy()
    distances[rows, labels] = np.inf
    without = np.where(sizes > 1, own * sizes / np.maximum(1, sizes - 1), np.inf)  # alone, it had no centroid
    moved = np.minimum(without, distances.min(axis=1))
    return np.where(np.isfinite(moved), moved, own)  # one query, one centroid: nothing to compare with


def _exchanged(before: int, after: int, rng: np.random.Generator) -> np.ndarray:
    """Weights (rows, 1 + EXCHANGES) of "mean after less mean before": as the rows came, then with rows exchanged."""
    weights = np.concatenate([np.full(before, -1.0 / before), np.full(after, 1.0 / after)])
    shuffled = rng.permuted(np.tile(weights, (EXCHANGES, 1)), axis=1)
    return np.concatenate([weights[:, None], shuffled.T], axis=1)


def _mmd2(points: np.ndarray, bandwidth: float, weights: np.ndarray) -> np.ndarray:
    """MMD² for each column of weights: wᵀ K w."""
    rows = torch.from_numpy(np.asarray(points, dtype=np.float64))
    kernel = Rbf(bandwidth)(rows, rows).numpy()
    return np.einsum("ij,ij->j", weights, kernel @ weights)


def _excess(statistics: np.ndarray, significance: float, scale: float) -> float:
    """The first statistic in units of what chance, the others, exceeds with probability ``significance``."""
    limit = float(np.quantile(statistics[1:], 1.0 - significance, method="higher"))
    return max(0.0, float(statistics[0]) / max(limit, ROUNDING * scale))
