"""How close rows are to clusters of queries: (K, b) numbers for a block of b rows, the lower the closer.

Three measures: the squared distance to the centroid, the cross-term by the exact kernel, and the cross-term by random
Fourier features (both with a minus sign). Plain numpy, in the precision of the rows: workers need not load torch.

Shapes: K clusters (those that are asked for), T queries, b rows, d columns, D random features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

TILE = 1 << 10  # queries a tile of kernel values
FEATURE_CELLS = 1 << 15  # of a tile of random features
WORTH_PRUNING = 0.5  # share of the rows up to which leaving out the others saves more than it costs
ROOM = 32.0  # times the rounding error of one number: what sums of some hundred of them may differ by
TILE_CELLS = 1 << 18  # of a tile of distances: about what a core's cache holds


class Closeness(ABC):
    """Made once on the driver, used by every worker."""

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
        return [((some - some.mean(axis=0)) ** 2).sum(axis=1) * len(some) / max(1, len(some) - 1) for some in members]


class RffCross(Closeness):
    """−⟨z(x), mean z of the cluster⟩: one product with Ω and one with the K means, whatever T is."""

    def __init__(self, omega: np.ndarray, phase: np.ndarray, members: list[np.ndarray]):
        self.omega, self.phase = omega.astype(np.float32), phase.astype(np.float32)
        # The factor √(2/D) of both sides is put into the means: a row's features then need none.
        scale = np.float32(-2.0 / len(phase))
        self.steepest = np.linalg.norm(self.omega, axis=0).max()  # by how much an angle changes with a row at most
        self.target = np.stack([self._features(some).mean(axis=1) * scale for some in members])  # (K, D)

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
            closeness[:, start : start + step] = target @ self._features(points[start : start + step])
        return closeness

    def rounding(self, points: np.ndarray) -> np.ndarray:
        angles = np.sqrt(np.einsum("ij,ij->i", points, points)) * self.steepest
        return np.float32(ROOM * np.finfo(np.float32).eps) * (1.0 + angles)

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        angles = np.zeros((len(points), len(self.phase))) + self.phase
        for column, weights in zip(points.T.astype(np.float64), self.omega, strict=True):
            angles += column[:, None] * weights
        return _one_by_one(np.cos(angles) * self.target[clusters])

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        return [_without_itself(self(some, np.array([k]))[0], len(some)) for k, some in enumerate(members)]


class ExactCross(Closeness):
    """−mean κ(x, q) over the queries q of the cluster.

    Where a cluster has a finite radius, a row farther from its centroid is not held against its queries: it cannot be
    among those wanted. Such rows come after all others, by their distance.
    """

    def __init__(self, members: list[np.ndarray], centroids: np.ndarray, sigma: float):
        self.members, self.centroids, self.sigma = members, centroids, sigma
        self.radii, self.size = np.full(len(members), np.inf), max(map(_largest, members))

    def __call__(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        return np.stack(
            [self._pruned(k, points) if self.radii[k] < np.inf else self._cross(k, points) for k in clusters]
        )

    def _pruned(self, k: int, points: np.ndarray) -> np.ndarray:
        values = squared_distances(self.centroids[k : k + 1].astype(points.dtype), points)[0]  # above every cross-term
        near = np.flatnonzero(values <= self.radii[k] ** 2)
        values[near] = self._cross(k, points[near])
        return values

    def rounding(self, points: np.ndarray) -> np.ndarray:
        room = _rounding(points, self.size) / points.dtype.type(2 * self.sigma**2)
        return room + points.dtype.type(ROOM * np.finfo(points.dtype).eps)

    def exactly(self, points: np.ndarray, clusters: np.ndarray) -> np.ndarray:
        values = _by_column(points, self.centroids[clusters])
        for k in np.unique(clusters):
            rows = np.flatnonzero((clusters == k) & (values <= self.radii[k] ** 2))
            squared = _by_column(points[rows][:, None], self.members[k][None])  # (rows, queries)
            values[rows] = -_one_by_one(np.exp(squared * (-0.5 / self.sigma**2))) / len(self.members[k])
        return values

    def _cross(self, k: int, points: np.ndarray) -> np.ndarray:
        total = np.zeros(len(points), dtype=points.dtype)
        members = self.members[k].astype(points.dtype, copy=False)
        for start in range(0, len(members), TILE):
            kernel = squared_distances(members[start : start + TILE], points)
            kernel *= -0.5 / self.sigma**2
            total += np.exp(kernel, out=kernel).sum(axis=0)
        return -total / len(members)

    def of_members(self, members: list[np.ndarray]) -> list[np.ndarray]:
        return [_without_itself(self._cross(k, some), len(some)) for k, some in enumerate(members)]

    def prune(self, least: np.ndarray, sample: np.ndarray) -> None:
        """Set the radii beyond which no row has a cross-term of ``least`` (K,), where that leaves out most of a sample.

        By the triangle inequality κ to a query at distance r from the centroid is at most exp(−(‖x − c‖ − r)² / 2σ²).
        """
        for k, (some, centroid, wanted) in enumerate(zip(self.members, self.centroids, least, strict=True)):
            away = np.sqrt(((some - centroid) ** 2).sum(axis=1))
            radius = _last_above(_bound(away, self.sigma), wanted, away.max(), self.sigma)
            inside = squared_distances(centroid[None], sample)[0] <= radius**2
            self.radii[k] = radius if inside.mean() < WORTH_PRUNING else np.inf


def squared_distances(some: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(K, d), (b, d) → (K, b)."""
    squared = some @ points.T
    squared *= -2.0
    squared += np.einsum("ij,ij->i", some, some)[:, None]
    squared += np.einsum("ij,ij->i", points, points)
    return np.maximum(squared, 0.0, out=squared)


def below(some: np.ndarray, points: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs whose squared distance is below the limit of their k: k, rows and exact distances.

    A product in the precision of the points finds them, with room for its rounding; differences in float64 decide.
    """
    rough = some.astype(points.dtype)
    room = points.dtype.type(1.0 - 4.0 * points.shape[1] * np.finfo(points.dtype).eps)
    with np.errstate(over="ignore"):
        most = (limits - room * np.einsum("ij,ij->i", rough, rough)).astype(points.dtype)[:, None]
    found, step = [], tile_rows(len(some))
    for start in range(0, max(1, len(points)), step):
        tile = points[start : start + step]
        # ‖x − c‖² ≥ −2⟨x, c⟩ + room·‖x‖² + room·‖c‖², of which the last has been moved to the other side.
        sizes = np.einsum("ij,ij->i", tile, tile)
        least = (-2.0 * rough) @ tile.T
        least += room * sizes
        least[:, ~np.isfinite(sizes)] = -np.inf  # what has overflowed is looked at
        near = np.flatnonzero(least < most)
        found.append((near // max(1, len(tile)), near % max(1, len(tile)) + start))
    k, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    gaps = points[rows].astype(np.float64) - some[k]
    distance = np.einsum("ij,ij->i", gaps, gaps)
    kept = distance < limits[k]
    return k[kept], rows[kept], distance[kept]


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


def tile_rows(clusters: int) -> int:
    """Rows that are held against so many clusters at once."""
    return max(1, TILE_CELLS // clusters)


def _without_itself(values: np.ndarray, count: int) -> np.ndarray:
    """Mean closeness to the *other* queries: κ(q, q) = 1 says nothing about other rows."""
    return (values * count + 1.0) / (count - 1) if count > 1 else values


def _bound(away: np.ndarray, sigma: float) -> Callable[[float], float]:
    return lambda x: float(np.exp(-0.5 * (np.maximum(x - away, 0.0) / sigma) ** 2).mean())


def _last_above(bound: Callable[[float], float], wanted: float, low: float, step: float) -> float:
    """The distance at which a falling bound comes down to ``wanted``, by bisection, on the safe side."""
    high = low + step
    while bound(high) > wanted and high < low + 100 * step:
        high += step
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bound(middle) > wanted else (low, middle)
    return high
