"""The Gaussian RBF kernel, its bandwidth, its random Fourier features, and the MMD² that it gives.

The same lines run on a CPU in float64 and on a GPU in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

BANDWIDTH_SAMPLE = 1_000  # rows of the pool behind the median heuristic: half a million pairs
BLOCK_CELLS = 1 << 20  # kernel values a thread holds at once: 8 MB in float64, whatever N and T are


def median_bandwidth(pool: np.ndarray, rng: np.random.Generator) -> float:
    """σ = the median Euclidean distance between two different rows of a sample of the pool.

    Where that is 0 (more than half of the pairs are duplicates), the median of the other distances,
    and 1.0 where all rows are equal: any σ gives the same answer then.
    """
    distances = pdist(pool[bandwidth_rows(len(pool), rng)].astype(np.float64))
    apart = distances[distances > 0]
    if not len(apart):
        return 1.0
    return float(np.median(distances)) or float(np.median(apart))


def bandwidth_rows(rows: int, rng: np.random.Generator) -> np.ndarray:
    """The sample behind the median heuristic, by row number."""
    if rows <= BANDWIDTH_SAMPLE:
        return np.arange(rows)
    return np.sort(rng.choice(rows, BANDWIDTH_SAMPLE, replace=False))


def norms(x: Tensor) -> Tensor:
    """‖x‖² of each row."""
    return (x * x).sum(-1)


@dataclass(frozen=True)
class Rbf:
    """κ(x, z) = exp(−‖x − z‖² / 2σ²)."""

    sigma: float

    def __call__(self, a: Tensor, b: Tensor, b_norms: Tensor | None = None) -> Tensor:
        """All pairs: (n, d), (m, d) → (n, m), or A times that. ``b_norms``: ‖b‖², if known."""
        b_norms = norms(b) if b_norms is None else b_norms
        product = torch.addmm if a.ndim == 2 else torch.baddbmm
        squared = product(norms(a)[..., None] + b_norms[..., None, :], a, b.mT, alpha=-2.0)
        # Rounding can leave a tiny negative squared distance; the kernel never exceeds 1.
        return squared.clamp_(min=0.0).mul_(-0.5 / self.sigma**2).exp_()

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Mean kernel value over all pairs of rows of two samples."""
        return self.row_means(a, b).mean()

    def row_means(self, a: Tensor, b: Tensor) -> Tensor:
        """Mean kernel value of each row of ``a`` (n, d) to the rows of ``b``, in blocks: (n,)."""
        rows = max(1, BLOCK_CELLS // max(1, len(b)))
        return torch.cat([self(some, b).sum(1) for some in a.split(rows)]) / len(b)

    def mean_within(self, a: Tensor) -> Tensor:
        """Mean kernel value over all pairs of rows of one sample: each pair is computed once."""
        rows, total = max(1, BLOCK_CELLS // len(a)), a.new_zeros(())
        for start in range(0, len(a), rows):
            values = self(a[start : start + rows], a[start:])
            total += 2 * values.sum() - values[:, :rows].sum()
        return total / len(a) ** 2

    def mmd2(self, a: Tensor, b: Tensor) -> float:
        """MMD² between two samples (the biased estimate, as in the paper)."""
        return float(self.mean_within(a) - 2 * self.mean(a, b) + self.mean_within(b))

    def prefix_mmd2(self, context: Tensor, queries: Tensor) -> Tensor:
        """MMD² between the queries and the first 1, 2, …, n rows of the context."""
        trace = Trace(self, self.mean_within(queries)[None], context.shape[1])
        return trace.extend(context[None], self.row_means(context, queries)[None])[0]


class Trace:
    """MMD² between clusters of queries and their growing contexts, from the definition.

    ``within`` (A,): mean kernel value among the queries of each of A clusters. In float64 where
    the device has it, whatever the precision of the points: near the end MMD² is a small
    difference of large sums.
    """

    def __init__(self, kernel: Rbf, within: Tensor, d: int):
        dtype = torch.float32 if within.device.type == "mps" else torch.float64
        self.kernel, self.within = kernel, within.to(dtype)
        self.points = self.within.new_empty(len(within), 0, d)  # (A, t, d)
        self.sums = self.within.new_zeros(2, len(within))  # Σ cross-terms, Σ κ among the rows

    def extend(self, points: Tensor, cross: Tensor) -> Tensor:
        """Add rows (A, b, d) with their cross-terms (A, b); MMD² after each of them (A, b)."""
        t, self.points = self.points.shape[1], torch.cat([self.points, points.to(self.within)], 1)
        size = self.points.shape[1]
        step = max(1, BLOCK_CELLS // (len(points) * size))
        earlier = []
        for start in range(t, size, step):
            end = min(start + step, size)
            values = self.kernel(self.points[:, start:end], self.points[:, :end])
            earlier.append(values.tril_(start - 1).sum(2))  # κ to the rows before it
        # A row adds its own kernel value (1) once and those with the earlier rows twice.
        growth = torch.stack([cross.to(self.within), 2 * torch.cat(earlier, 1) + 1])  # (2, A, b)
        sums = self.sums[..., None] + growth.cumsum(2)
        self.sums = sums[..., -1]
        sizes = torch.arange(t + 1, size + 1).to(self.within)
        return self.within[:, None] - 2 * sums[0] / sizes + sums[1] / sizes**2

    def keep(self, active: Tensor) -> None:
        """Drop the clusters that are not ``active`` (A,)."""
        self.within, self.points = self.within[active], self.points[active]
        self.sums = self.sums[:, active]


@dataclass(frozen=True)
class RandomFourierFeatures:
    """z(x) = √(2/D) cos(Ωᵀx + b), so that z(x)ᵀz(x') approximates the RBF kernel."""

    omega: Tensor  # (d, D)
    phase: Tensor  # (D,)

    @classmethod
    def draw(
        cls, d: int, dim: int, sigma: float, rng: np.random.Generator
    ) -> RandomFourierFeatures:
        omega, phase = rng.standard_normal((d, dim)) / sigma, rng.uniform(0.0, 2 * math.pi, dim)
        return cls(torch.from_numpy(omega), torch.from_numpy(phase))

    def like(self, x: Tensor) -> RandomFourierFeatures:
        """The same map in the precision and on the device of ``x``."""
        return RandomFourierFeatures(self.omega.to(x), self.phase.to(x))

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) → (n, D)."""
        return torch.addmm(self.phase, x, self.omega).cos_().mul_(math.sqrt(2.0 / len(self.phase)))
