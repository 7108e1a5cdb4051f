"""How close rows are to clusters of queries: (K, b) for a block of b rows, the lower the closer.

Two measures: the squared distance to the centroid, and the cross-term by random Fourier features
with a minus sign. Plain numpy, in the precision of the rows: workers need not load torch.

Shapes: K clusters, b rows of a block, d columns, D random features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from crumb.herding.neighbours import squared_distances

FEATURE_CELLS = 1 << 15  # of a tile of random features
EPS32 = np.finfo(np.float32).eps


class Closeness(ABC):
    """Made once on the driver, used by every worker."""

    shares = False  # whether most of the work on a row serves all clusters

    @abstractmethod
    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b, d) → (K, b), for some clusters by number."""

    @abstractmethod
    def rounding(self, points: np.ndarray) -> np.ndarray:
        """(b,) how far two computations of the same closeness may differ.

        Products round differently for few rows and for many.
        """

    @abstractmethod
    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b,) closeness of each row to a cluster of its own, in float64.

        Each row has the same digits whatever other rows are there.
        """

    @abstractmethod
    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        """How close the queries of each cluster are to it: where their candidates should be."""


class Distance(Closeness):
    """Squared distance to the centroids."""

    def __init__(self, centroids: np.ndarray):
        self.centroids = np.ascontiguousarray(centroids, dtype=np.float64)
        self.size = float(_squares(self.centroids).max())

    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        return squared_distances(self.centroids[clusters].astype(points.dtype), points)

    def rounding(self, points: np.ndarray) -> np.ndarray:
        kind = points.dtype.type
        relative = kind(4.0 * points.shape[1] * np.finfo(points.dtype).eps)
        return relative * (_squares(points) + kind(self.size))

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        centroids, total = self.centroids[clusters], np.zeros(len(points))
        for j in range(points.shape[1]):  # by column: no digit depends on the shapes
            gap = points[:, j].astype(np.float64) - centroids[:, j]
            gap *= gap
            total += gap
        return total

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        # Queries lie closer to their own mean than other rows of the same kind do.
        return [
            ((some - some.mean(axis=0)) ** 2).sum(axis=1) * len(some) / max(1, len(some) - 1)
            for some in members
        ]


class RffCross(Closeness):
    """−⟨z(x), mean z of the cluster⟩: a product with Ω and one with the K means, whatever T is."""

    shares = True

    def __init__(self, omega: np.ndarray, phase: np.ndarray, members: list[np.ndarray]):
        self.omega, self.phase = omega.astype(np.float32), phase.astype(np.float32)
        # The factor √(2/D) of both sides is put into the means: a row's features then need none.
        scale = np.float32(-2.0 / len(phase))
        means = [self._features(some).mean(axis=1) * scale for some in members]
        self.target = np.stack(means)  # (K, D)
        # How much a closeness changes at most when every feature changes by 1, and when its row
        # does.
        self.weight = np.abs(self.target).sum(axis=1).max()
        self.slope = (np.abs(self.target) @ np.linalg.norm(self.omega, axis=0)).max()

    def _features(self, points: np.ndarray) -> np.ndarray:
        """(D, b): feature by feature, as the points lie in memory."""
        angles = self.omega.T @ points.T.astype(np.float32, copy=False)
        angles += self.phase[:, None]
        return np.cos(angles, out=angles)

    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        target = self.target[clusters]
        closeness = np.empty((len(target), len(points)), dtype=np.float32)
        step = max(64, FEATURE_CELLS // len(self.phase))
        for start in range(0, len(points), step):  # a tile of features stays in the cache
            some = slice(start, start + step)
            closeness[:, some] = target @ self._features(points[some])
        return closeness

    def rounding(self, points: np.ndarray) -> np.ndarray:
        # Sums of d and of D terms, and a cosine. A sum of m numbers is off by m/2 times the
        # precision at most.
        rows, features = self.omega.shape
        sizes = np.sqrt(_squares(points))
        return EPS32 * ((rows / 2 + 2) * self.slope * sizes + (features / 2 + 4) * self.weight)

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        angles = np.zeros((len(points), len(self.phase))) + self.phase
        for column, weights in zip(points.T.astype(np.float64), self.omega, strict=True):
            angles += column[:, None] * weights
        terms = np.cos(angles) * self.target[clusters]
        return terms.cumsum(axis=1)[:, -1]  # ``sum`` takes another order for another shape

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        found = []
        for k, some in enumerate(members):
            close, count = self(some, np.array([k]))[0], len(some)
            # To the other queries: κ(q, q) = 1 says nothing about other rows.
            found.append((close * count + 1.0) / (count - 1) if count > 1 else close)
        return found


def _squares(points: np.ndarray) -> np.ndarray:
    """‖x‖² of each row."""
    return np.einsum("ij,ij->i", points, points)
