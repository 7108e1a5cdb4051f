"""The Gaussian RBF kernel, its bandwidth, and its random Fourier features.

``Rbf`` and ``RandomFourierFeatures`` answer the same question, ``prefix_mmd2``, so that everything above
them can treat the kernel as exact or approximate without knowing which.
Arrays are torch tensors: the same lines run on a CPU in float64 and on a GPU in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

from crumb.parallel import MapBlocks

BANDWIDTH_SAMPLE = 1_000  # rows of the pool behind the median heuristic: half a million pairs
BLOCK_CELLS = 1 << 20  # kernel values a thread holds at once: 8 MB in float64, whatever N and T are


def median_bandwidth(pool: np.ndarray, rng: np.random.Generator) -> float:
    """σ = the median Euclidean distance between two different rows of a sample of the pool.

    The sample holds at most ``BANDWIDTH_SAMPLE`` rows, drawn without replacement. Where the median is 0
    (more than half of the pairs are duplicates) the median of the non-zero distances is used, and 1.0
    where all rows are equal: any σ gives the same answer then.
    """
    pool = pool[bandwidth_rows(len(pool), rng)]
    if len(pool) < 2:
        return 1.0
    distances = pdist(np.asarray(pool, dtype=np.float64))
    sigma = float(np.median(distances))
    if sigma == 0.0 and np.any(distances > 0):
        sigma = float(np.median(distances[distances > 0]))
    return sigma if sigma > 0 else 1.0


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
        """Kernel values of all pairs: (n, d), (m, d) → (n, m). ``b_norms``: ‖b‖² (m,), if it is known."""
        b_norms = norms(b) if b_norms is None else b_norms
        squared = torch.addmm(norms(a)[:, None] + b_norms[None, :], a, b.T, alpha=-2.0)
        return self._of_squared(squared)

    def grams(self, batches: Tensor) -> Tensor:
        """Kernel values within each of several small batches: (A, B, d) → (A, B, B)."""
        size = norms(batches)
        return self._of_squared(
            torch.baddbmm(size[:, :, None] + size[:, None, :], batches, batches.mT, alpha=-2.0)
        )

    def _of_squared(self, squared: Tensor) -> Tensor:
        # Rounding can leave a tiny negative squared distance; the kernel never exceeds 1.
        return squared.clamp_(min=0.0).mul_(-0.5 / self.sigma**2).exp_()

    def mean(self, a: Tensor, b: Tensor, map_blocks: MapBlocks = map) -> Tensor:
        """Mean kernel value over all pairs of rows, in blocks."""
        rows = max(1, BLOCK_CELLS // max(1, len(b)))
        sums = map_blocks(
            lambda start: self(a[start : start + rows], b).sum(), range(0, len(a), rows)
        )
        return torch.stack(list(sums)).sum() / (len(a) * len(b))

    def row_means(self, a: Tensor, b: Tensor) -> Tensor:
        """Mean kernel value of each row of ``a`` to the rows of ``b`` (0 where there are none), in blocks."""
        rows = max(1, BLOCK_CELLS // max(1, len(b)))
        parts = [self(a[start : start + rows], b).sum(1) for start in range(0, len(a), rows)]
        return torch.cat(parts) / max(1, len(b)) if parts else a.new_zeros(0)

    def mmd2(self, a: Tensor, b: Tensor) -> float:
        """Squared MMD between two samples (the biased estimate, as in the paper)."""
        return float(self.mean(a, a) - 2 * self.mean(a, b) + self.mean(b, b))

    def prefix_mmd2(self, context: Tensor, queries: Tensor) -> Tensor:
        """MMD² between the queries and the first 1, 2, …, n rows of the context, by the direct formula."""
        size = torch.arange(1, len(context) + 1, dtype=context.dtype, device=context.device)
        rows = max(1, BLOCK_CELLS // len(context))
        starts = range(0, len(context), rows)
        cross = self.row_means(context, queries)
        # Adding row t to a set adds its own kernel value (1) once and those with the earlier rows twice.
        earlier = [
            torch.tril(self(context[start : start + rows], context), diagonal=start - 1).sum(1)
            for start in starts
        ]
        growth = 2 * torch.cat(earlier) + 1.0
        return self.mean(queries, queries) - 2 * cross.cumsum(0) / size + growth.cumsum(0) / size**2


@dataclass(frozen=True)
class RandomFourierFeatures:
    """z(x) = √(2/D) cos(Ωᵀx + b), so that z(x)ᵀz(x') approximates the RBF kernel.

    One Ω and one b serve the pool and the queries alike.
    """

    omega: Tensor  # (d, D)
    phase: Tensor  # (D,)

    @classmethod
    def draw(
        cls, d: int, dim: int, sigma: float, rng: np.random.Generator
    ) -> RandomFourierFeatures:
        omega = rng.standard_normal((d, dim)) / sigma
        phase = rng.uniform(0.0, 2 * math.pi, dim)
        return cls(torch.from_numpy(omega), torch.from_numpy(phase))

    def like(self, x: Tensor) -> RandomFourierFeatures:
        """The same map in the precision and on the device of ``x``."""
        return RandomFourierFeatures(self.omega.to(x), self.phase.to(x))

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) → (n, D)."""
        return torch.addmm(self.phase, x, self.omega).cos_().mul_(math.sqrt(2.0 / len(self.phase)))

    def prefix_mmd2(self, context: Tensor, queries: Tensor) -> Tensor:
        """‖mean z(queries) − mean z(first t rows of the context)‖² for t = 1, …, n."""
        size = torch.arange(1, len(context) + 1, dtype=context.dtype, device=context.device)
        gap = self(queries).mean(0) - self(context).cumsum(0) / size[:, None]
        return (gap * gap).sum(1)
