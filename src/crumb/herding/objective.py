"""What herding minimises: three objectives for the loop of greedy.py.

``ExactObjective`` and ``RffObjective`` read the whole pool each round, in blocks, for all clusters
together: a block brings its running sums up to date and names its best rows. They are torch, for
any device. ``CandidateObjective`` has few rows of its own for each cluster.

Shapes: A clusters that still grow, N pool rows, T queries, B rows a batch, D random features,
M candidates, d columns, b rows of a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from crumb.herding.clusters import Clusters, cluster_sums, cross_terms, means_within
from crumb.herding.kernel import BLOCK_CELLS, RandomFourierFeatures, Rbf, Trace, norms
from crumb.parallel import MapBlocks

CACHE_CELLS = 1 << 18  # scores a block on a CPU: two such arrays stay in its cache
SINGLE_CELLS = 1 << 25  # cells of an embedding above which it is kept in float32 (128 MB)
GPU_CELLS = 1 << 26  # scores a block on a GPU, which wants few and large blocks


class _PoolObjective(ABC):
    """Reads the whole pool each round, in blocks."""

    n_pool: int
    n_clusters: int
    map_blocks: MapBlocks

    @property
    @abstractmethod
    def block_rows(self) -> int: ...

    @abstractmethod
    def scores(self, rows: slice, t: int) -> Tensor:
        """(A, b) scores of a block for contexts of t rows."""

    @abstractmethod
    def take(self, chosen: Tensor) -> None:
        """(A, B) rows join the contexts. They score +∞ from now on."""

    def choose(self, count: int, t: int) -> Tensor:
        step = max(count, self.block_rows)

        def best_of_block(start: int) -> tuple[Tensor, Tensor]:
            scores = self.scores(slice(start, start + step), t)
            if count == 1:
                lowest, where = scores.min(1, keepdim=True)
            else:
                lowest, where = scores.topk(min(count, scores.shape[1]), dim=1, largest=False)
            return lowest, where + start

        best = self.map_blocks(best_of_block, range(0, self.n_pool, step))
        lowest, rows = (torch.cat(parts, 1) for parts in zip(*best, strict=True))
        order = lowest.sort(dim=1, stable=True).indices[:, :count]
        chosen = rows.gather(1, order)  # (A, B)
        self.take(chosen)
        return chosen


class ExactObjective(_PoolObjective):
    """The RBF kernel itself: one kernel value for each pool row and chosen row."""

    def __init__(self, kernel: Rbf, pool: Tensor, clusters: Clusters, map_blocks: MapBlocks = map):
        self.kernel, self.pool, self.norms = kernel, pool, norms(pool)  # (N, d), (N,)
        self.n_pool, self.n_clusters, self.map_blocks = len(pool), len(clusters), map_blocks
        self.cross = self.cross_terms(clusters)  # (A, N)
        self.sums = torch.zeros_like(self.cross)  # (A, N)  Σ κ to chosen rows; +∞ if chosen itself
        self.latest = clusters.labels.new_empty(
            len(clusters), 0
        )  # (A, B)  rows that are not yet in the sums
        self.trace = Trace(kernel, means_within(kernel, clusters.members, map_blocks))

    def cross_terms(self, clusters: Clusters) -> Tensor:
        return cross_terms(self.kernel, self.pool, clusters, self.map_blocks)

    @property
    def block_rows(self) -> int:
        """As many as the cache takes, and no more than a batch of kernel values may."""
        most = BLOCK_CELLS if self.pool.device.type == "cpu" else GPU_CELLS
        return min(_cells(self.pool) // self.n_clusters, most // max(1, self.latest.numel())) + 1

    def scores(self, rows: slice, t: int) -> Tensor:
        if self.latest.shape[1]:
            latest = self.pool[self.latest.flatten()]  # (A · B, d)
            values = self.kernel(latest, self.pool[rows], self.norms[rows])
            self.sums[:, rows] += values.view(*self.latest.shape, -1).sum(1)  # (A, B, b) → (A, b)
        return torch.add(self.cross[:, rows] * -2.0, self.sums[:, rows], alpha=2.0 / (t + 1))

    def take(self, chosen: Tensor) -> None:
        self.latest = chosen
        self.sums.scatter_(1, chosen, torch.inf)

    def mmd2(self, chosen: Tensor) -> Tensor:
        return self.trace.extend(self.pool[chosen], self.cross.gather(1, chosen))

    def keep(self, active: Tensor) -> None:
        self.cross, self.sums, self.latest = (
            array[active] for array in (self.cross, self.sums, self.latest)
        )
        self.trace.keep(active)
        self.n_clusters = len(self.cross)


class RffObjective(_PoolObjective):
    """Random Fourier features: the scores of all clusters are one matrix product a round."""

    def __init__(
        self,
        features: RandomFourierFeatures,
        pool: Tensor,
        clusters: Clusters,
        map_blocks: MapBlocks = map,
    ):
        self.n_pool, self.n_clusters, self.map_blocks = len(pool), len(clusters), map_blocks
        step, dim = max(1, BLOCK_CELLS // len(features.phase)), len(features.phase)
        # The features are random: in a large embedding the digits after float32 mean nothing.
        dtype = torch.float32 if self.n_pool * dim > SINGLE_CELLS else pool.dtype
        self.embedded = torch.empty(self.n_pool, dim, dtype=dtype, device=pool.device)  # (N, D)

        def embed(start: int) -> None:
            self.embedded[start : start + step] = features(pool[start : start + step])

        list(map_blocks(embed, range(0, self.n_pool, step)))
        target = pool.new_zeros(len(clusters), dim)
        parts = clusters.queries.split(step), clusters.labels.split(step)
        for queries, labels in zip(*parts, strict=True):
            target += cluster_sums(features(queries), labels, len(clusters))
        # (A, D) the mean embedding of each cluster
        self.target = (target / clusters.sizes[:, None]).to(dtype)
        self.chosen_sum = torch.zeros_like(self.target)  # (A, D)
        self.traced_sum, self.traced = self.chosen_sum, 0  # the same when MMD² was last asked for
        self.taken = torch.zeros(len(clusters), self.n_pool, dtype=torch.bool, device=pool.device)

    @property
    def block_rows(self) -> int:
        return _cells(self.embedded) // self.n_clusters + 1

    def scores(self, rows: slice, t: int) -> Tensor:
        weights = self.chosen_sum * (2.0 / (t + 1)) - 2.0 * self.target  # (A, D)
        return (weights @ self.embedded[rows].T).masked_fill_(self.taken[:, rows], torch.inf)

    def take(self, chosen: Tensor) -> None:
        self.chosen_sum = self.chosen_sum + self.embedded[chosen].sum(1)  # (A, B, D) → (A, D)
        self.taken.scatter_(1, chosen, True)

    def mmd2(self, chosen: Tensor) -> Tensor:
        values = []
        for some in chosen.split(max(1, BLOCK_CELLS // self.target.numel()), dim=1):
            sums = self.traced_sum[:, None] + self.embedded[some].cumsum(1)  # (A, b, D)
            size = torch.arange(self.traced + 1, self.traced + 1 + some.shape[1]).to(sums)
            values.append((self.target[:, None] - sums / size[:, None]).square().sum(2))
            self.traced_sum, self.traced = sums[:, -1], self.traced + some.shape[1]
        return torch.cat(values, 1)

    def keep(self, active: Tensor) -> None:
        self.target, self.chosen_sum, self.traced_sum, self.taken = (
            array[active] for array in (self.target, self.chosen_sum, self.traced_sum, self.taken)
        )
        self.n_clusters = len(self.target)


class CandidateObjective:
    """The RBF kernel among candidates of each cluster. One row a round, on a CPU.

    In numpy, which finds the least of a few thousand numbers many times faster than torch.
    ``points`` (A × (Mₖ, d)) with their ``cross``-terms (A × (Mₖ,)) and ``within`` (A,), the means
    among the queries, are in float64. Running sums are in ``dtype``.
    """

    def __init__(
        self,
        kernel: Rbf,
        points: Sequence[Tensor],
        cross: Sequence[Tensor],
        within: Tensor,
        dtype: type = np.float32,
    ):
        self.points, self.exact_cross, self.trace = points, cross, Trace(kernel, within)
        self.n_clusters, self.n_pool = len(points), min(map(len, points))
        most, d = max(map(len, points)), points[0].shape[1]
        self.left: np.ndarray = np.zeros((len(points), most, d + 2), dtype)  # (A, M, d + 2)
        self.cross: np.ndarray = np.full(
            (len(points), most), -np.inf, dtype
        )  # (A, M); −∞ is never chosen
        for k, (mine, terms) in enumerate(zip(points, cross, strict=True)):
            self.left[k, : len(mine), :d] = mine / kernel.sigma
            self.cross[k, : len(mine)] = terms
        # With two more columns one product gives the exponent: x·y − ‖x‖²/2 − ‖y‖²/2.
        x = self.left[..., :d]
        self.left[..., d] = np.einsum("gmd,gmd->gm", x, x) * -0.5
        self.left[..., d + 1] = 1
        order = [*range(d), d + 1, d]
        self.right = np.ascontiguousarray(self.left[..., order].swapaxes(1, 2))  # (A, d + 2, M)
        self.sums = np.zeros_like(self.cross)  # (A, M)  Σ κ to the chosen rows; +∞ if chosen itself
        self.score, self.each = np.empty_like(self.cross), np.arange(len(points))

    def choose(self, count: int, t: int) -> Tensor:
        np.multiply(self.sums, self.sums.dtype.type(1 / (t + 1)), out=self.score)
        self.score -= self.cross  # half the score of the paper
        place = self.score.argmin(axis=1)  # (A,)
        np.matmul(self.left[self.each, place][:, None], self.right, out=self.score[:, None])
        self.sums += np.exp(self.score, out=self.score)
        self.sums[self.each, place] = np.inf
        return torch.from_numpy(place[:, None])

    def mmd2(self, chosen: Tensor) -> Tensor:
        points, cross = (
            torch.stack([values[rows] for values, rows in zip(arrays, chosen, strict=True)])
            for arrays in (self.points, self.exact_cross)
        )
        return self.trace.extend(points, cross)

    def keep(self, active: Tensor) -> None:
        kept = active.nonzero()[:, 0].numpy()
        self.points, self.exact_cross = (
            [arrays[k] for k in kept] for arrays in (self.points, self.exact_cross)
        )
        self.left, self.right, self.cross, self.sums, self.score = (
            array[kept] for array in (self.left, self.right, self.cross, self.sums, self.score)
        )
        self.trace.keep(active)
        self.n_clusters, self.each = len(kept), np.arange(len(kept))


def _cells(tensor: Tensor) -> int:
    return CACHE_CELLS if tensor.device.type == "cpu" else GPU_CELLS
