"""How close rows are to clusters of queries: (K, b) numbers for a block of b rows, the lower the closer.

Two measures: the squared distance to the centroid, and the cross-term by random Fourier features (with a minus sign).
Plain numpy, in the precision of the rows: workers need not load torch.

Shapes: K clusters (those that are asked for), b rows, d columns, D random features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from crumb.herding.neighbours import squared_distances

FEATURE_CELLS = 1 << 15  # of a tile of random features
EPS32 = np.finfo(np.float32).eps


class Closeness(ABC):
    """Made once on the driver, used by every worker."""

    shares = False  # whether what is worked out for a row serves all clusters, and costs most

    @abstractmethod
    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b, d) → (K, b), for some clusters by number."""

    @abstractmethod
    def rounding(self, points: np.ndarray) -> np.ndarray:
        """(b,) how far two computations of the same closeness may lie apart: products round differently for few rows
        and for many."""

    @abstractmethod
    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        """(b,) closeness of each row to a cluster of its own, in float64, with the same digits whatever comes along."""

    @abstractmethod
    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        """How close the queries of each cluster are to their own: where the rows should be that stand for them."""


class Distance(Closeness):
    """Squared distance to the centroids."""

    def __init__(self, centroids: np.ndarray):
        self.centroids = np.ascontiguousarray(centroids, dtype=np.float64)
        self.size = _largest(self.centroids)

    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        return squared_distances(self.centroids[clusters].astype(points.dtype), points)

    def rounding(self, points: np.ndarray) -> np.ndarray:
        return _rounding(points, self.size)

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        return _by_column(points, self.centroids[clusters])

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        # Queries lie closer to their own mean than other rows of the same kind do.
        return [
            ((some - some.mean(axis=0)) ** 2).sum(axis=1) * len(some) / max(1, len(some) - 1)
            for some in members
        ]


class RffCross(Closeness):
    """−⟨z(x), mean z of the cluster⟩: one product with Ω and one with the K means, whatever T is."""

    shares = True

    def __init__(self, omega: np.ndarray, phase: np.ndarray, members: list[np.ndarray]):
        self.omega, self.phase = omega.astype(np.float32), phase.astype(np.float32)
        # The factor √(2/D) of both sides is put into the means: a row's features then need none.
        scale = np.float32(-2.0 / len(phase))
        self.target = np.stack(
            [self._features(some).mean(axis=1) * scale for some in members]
        )  # (K, D)
        # What a closeness changes by, at most, when every feature changes by 1, and when its row does.
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
            closeness[:, start : start + step] = target @ self._features(
                points[start : start + step]
            )
        return closeness

    def rounding(self, points: np.ndarray) -> np.ndarray:
        """Sums of d and of D terms, and a cosine; a sum of m numbers is off by m/2 times the precision at most."""
        rows, features = self.omega.shape
        sizes = np.sqrt(np.einsum("ij,ij->i", points, points))
        return EPS32 * ((rows / 2 + 2) * self.slope * sizes + (features / 2 + 4) * self.weight)

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        angles = np.zeros((len(points), len(self.phase))) + self.phase
        for column, weights in zip(points.T.astype(np.float64), self.omega, strict=True):
            angles += column[:, None] * weights
        return _one_by_one(np.cos(angles) * self.target[clusters])

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        return [
            _without_itself(self(some, np.array([k]))[0], len(some))
            for k, some in enumerate(members)
        ]


def _by_column(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Squared distances in float64 along the last axis, column after column: no digit depends on the shapes."""
    total = np.zeros(np.broadcast_shapes(points.shape, others.shape)[:-1])
    for j in range(points.shape[-1]):
        gap = points[..., j].astype(np.float64) - others[..., j]
        gap *= gap
        total += gap
    return total


def _one_by_one(values: np.ndarray) -> np.ndarray:
    """Sums of rows, one number after the other: ``sum`` would take another order for another shape."""
    return values.cumsum(axis=1)[:, -1]


def _largest(some: np.ndarray) -> float:
    """‖x‖² of the row farthest from the origin."""
    return float(np.einsum("ij,ij->i", some, some).max())


def _rounding(points: np.ndarray, size: float) -> np.ndarray:
    """(b,) of squared distances, by a product in the precision of the points, to others of at most this ‖x‖²."""
    sizes = np.einsum("ij,ij->i", points, points) + points.dtype.type(size)
    return points.dtype.type(4.0 * points.shape[1] * np.finfo(points.dtype).eps) * sizes


def _without_itself(values: np.ndarray, count: int) -> np.ndarray:
    """Mean closeness to the *other* queries: κ(q, q) = 1 says nothing about other rows."""
    return (values * count + 1.0) / (count - 1) if count > 1 else values
