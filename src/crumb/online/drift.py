"""Whether the queries have left the plan.

Two statistics compare the recent queries with those that the plan was made for: MMD² between them,
and the distance to the plan's kind of centroids. Without drift both sets of queries come from one
distribution, so exchanging their rows changes nothing. How large the statistics get when rows are
exchanged at random is the spread that drift has to exceed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import cdist

from crumb.herding.greedy import Rbf
from crumb.rng import generator
from crumb.selection.base import cluster

SAMPLE = 512  # rows of each side: the test costs (2 · SAMPLE)² kernel values
EXCHANGES = 500  # random exchanges behind the spread
LEAST_A_CLUSTER = 5  # queries behind a centroid to which distances are taken
ROUNDING = 1e-12  # statistics below this are zero: equal queries have no spread


@dataclass(frozen=True)
class Drift:
    """What a look for drift found.

    Parameters
    ----------
    score : float
        The larger of the two statistics, in units of what chance explains: above 1 is drift.
    mmd2 : float
        MMD² between the recent queries and those behind the plan.
    distance : float
        Mean distance of the recent queries to the centroids, in units of that at plan time.

    Examples
    --------
    >>> Drift(score=1.7, mmd2=0.03, distance=1.2).found
    True
    """

    score: float
    mmd2: float
    distance: float

    @property
    def found(self) -> bool:
        """Whether the queries have left the plan."""
        return self.score > 1.0


@dataclass(frozen=True)
class Baseline:
    """A sample of the queries behind a plan, and how far such queries are from such centroids.

    Centroids are near the queries that made them. New queries of the same kind are farther away
    (by 6 % with 512 queries and 20 clusters) and would pass for drift. So one half of the queries
    behind the plan makes centroids, as many as the plan has. The other half and the recent queries
    are both new to these.
    """

    points: np.ndarray
    centroids: np.ndarray
    distances: np.ndarray
    bandwidth: float

    @classmethod
    def of(cls, points: np.ndarray, n_clusters: int, bandwidth: float, seed: int) -> Baseline:
        order = generator(seed, "baseline").permutation(len(points))
        points = points[order[: 2 * SAMPLE]]
        half = (len(points) + 1) // 2
        most = max(1, half // LEAST_A_CLUSTER)
        _, centroids = cluster(points[:half], min(n_clusters, most), seed)
        unseen = points[half:] if len(points) > 1 else points
        return cls(points[:SAMPLE], centroids, _nearest_distance(unseen, centroids), bandwidth)

    def compare(self, recent: np.ndarray, significance: float, seed: int) -> Drift:
        """Whether the recent queries (the latest ``SAMPLE``) look like those behind the plan.

        ``significance``: the probability of an alarm without drift, half for each statistic.
        """
        recent, rng = recent[-SAMPLE:], generator(seed, "drift")
        gaps = _exchanged(len(self.points), len(recent), rng)
        mmd2 = _mmd2(np.concatenate([self.points, recent]), self.bandwidth, gaps)
        now = _nearest_distance(recent, self.centroids)
        distances = np.concatenate([self.distances, now])
        farther = distances @ _exchanged(len(self.distances), len(recent), rng)
        scale = max(1.0, float(distances.max()))
        score = max(_excess(mmd2, significance / 2, 1.0), _excess(farther, significance / 2, scale))
        usual = max(float(self.distances.mean()), np.finfo(float).tiny)
        return Drift(score, float(mmd2[0]), float(now.mean()) / usual)


def _nearest_distance(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    return cdist(points, centroids).min(axis=1)


def _exchanged(before: int, after: int, rng: np.random.Generator) -> np.ndarray:
    """Weights (rows, 1 + EXCHANGES) of "mean after less mean before".

    The first column: as the rows came; the others: with rows exchanged.
    """
    weights = np.concatenate([np.full(before, -1.0 / before), np.full(after, 1.0 / after)])
    shuffled = rng.permuted(np.tile(weights, (EXCHANGES, 1)), axis=1)
    return np.concatenate([weights[:, None], shuffled.T], axis=1)


def _mmd2(points: np.ndarray, bandwidth: float, weights: np.ndarray) -> np.ndarray:
    """MMD² for each column of weights: wᵀ K w."""
    rows = torch.from_numpy(np.asarray(points, dtype=np.float64))
    kernel = Rbf(bandwidth)(rows, rows).numpy()
    return np.einsum("ij,ij->j", weights, kernel @ weights)


def _excess(statistics: np.ndarray, significance: float, scale: float) -> float:
    """The first statistic, in units of what the others exceed with probability ``significance``."""
    limit = float(np.quantile(statistics[1:], 1.0 - significance, method="higher"))
    return max(0.0, float(statistics[0]) / max(limit, ROUNDING * scale))
