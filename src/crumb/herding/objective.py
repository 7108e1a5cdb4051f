"""What herding minimises: clusters of queries, and three objectives for the loop of greedy.py.

``ExactObjective`` and ``RffObjective`` read the whole pool each round, in blocks, for all clusters
together: a block brings its running sums up to date and names its best rows. They are torch, for
any device. ``CandidateObjective`` has few rows of its own for each cluster.

Shapes: A clusters that still grow, N pool rows, T queries, B rows a batch, D random features,
M candidates, d columns, b rows of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from crumb.herding.kernel import BLOCK_CELLS, RandomFourierFeatures, Rbf, Trace, norms
from crumb.parallel import MapBlocks

CACHE_CELLS = 1 << 18  # scores a block on a CPU: two such arrays stay in its cache
SINGLE_CELLS = 1 << 25  # cells of an embedding above which it is kept in float32 (128 MB)
GPU_CELLS = 1 << 26  # scores a block on a GPU, which wants few and large blocks


@dataclass(frozen=True)
class Clusters:
    """T queries in K clusters, none of which is empty."""

    queries: Tensor  # (T, d)
    labels: Tensor  # (T,)  0 … K−1

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Tensor:
        """Queries of each cluster: (K,)."""
        return torch.bincount(self.labels)

    @cached_property
    def members(self) -> list[Tensor]:
        """The queries of each cluster: K × (|Cₖ|, d)."""
        order = torch.argsort(self.labels, stable=True)
        return list(self.queries[order].split(self.sizes.tolist()))

    def parts(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """Queries and their labels, ``step`` at a time."""
        return list(zip(self.queries.split(step), self.labels.split(step), strict=True))


def cluster_sums(values: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Sum the rows of ``values`` (T, b) that have the same label: (K, b)."""
    if values.device.type == "cpu":
        return values.new_zeros(n_clusters, values.shape[1]).index_add_(0, labels, values)
    # index_add_ adds in a random order on a GPU; a product with the indicator matrix repeats.
    member = labels[None, :] == torch.arange(n_clusters, device=labels.device)[:, None]
    return member.to(values) @ values


def means_within(kernel: Rbf, members: list[Tensor], map_blocks: MapBlocks) -> Tensor:
    """Mean kernel value among the queries of each cluster: (K,)."""
    means = map_blocks(lambda k: kernel.mean_within(members[k]), range(len(members)))
    return torch.stack(list(means))


def best_rows(
    scores: Callable[[slice], Tensor], count: int, n_pool: int, step: int, map_blocks: MapBlocks
) -> Tensor:
    """The ``count`` rows of least score for each cluster, from the (A, b) scores of blocks."""
    step = max(count, step)

    def best_of_block(start: int) -> tuple[Tensor, Tensor]:
        found = scores(slice(start, start + step))
        if count == 1:
            lowest, where = found.min(1, keepdim=True)
        else:
            lowest, where = found.topk(min(count, found.shape[1]), dim=1, largest=False)
        return lowest, where + start

    best = map_blocks(best_of_block, range(0, n_pool, step))
    lowest, rows = (torch.cat(parts, 1) for parts in zip(*best, strict=True))
    order = lowest.sort(dim=1, stable=True).indices[:, :count]
    return rows.gather(1, order)  # (A, B)


class ExactObjective:
    """The RBF kernel itself: one kernel value for each pool row and chosen row."""

    def __init__(self, kernel: Rbf, pool: Tensor, clusters: Clusters, map_blocks: MapBlocks = map):
        self.kernel, self.pool, self.norms = kernel, pool, norms(pool)  # (N, d), (N,)
        self.n_pool, self.n_clusters, self.map_blocks = len(pool), len(clusters), map_blocks
        self.cross = self.cross_terms(clusters)  # (A, N)
        self.sums = torch.zeros_like(self.cross)  # (A, N)  Σ κ to chosen rows; +∞ if chosen itself
        # (A, B) the rows that are not yet in the sums
        self.latest = clusters.labels.new_empty(len(clusters), 0)
        within = means_within(kernel, clusters.members, map_blocks)
        self.trace = Trace(kernel, within, pool.shape[1])

    def cross_terms(self, clusters: Clusters) -> Tensor:
        """Mean kernel value of each row to the queries of every cluster: (K, N)."""
        cross = self.pool.new_zeros(len(clusters), self.n_pool)
        step = 1 << 10 if self.pool.device.type == "cpu" else 1 << 14  # step × step values at once
        parts = clusters.parts(step)

        def fill(start: int) -> None:
            rows = slice(start, start + step)
            for queries, labels in parts:
                values = self.kernel(queries, self.pool[rows], self.norms[rows])  # (step, step)
                cross[:, rows] += cluster_sums(values, labels, len(clusters))

        # Blocks write into one result: many small tensors between large ones would fragment memory.
        list(self.map_blocks(fill, range(0, self.n_pool, step)))
        return cross.div_(clusters.sizes[:, None])

    def choose(self, count: int, t: int) -> Tensor:
        # As many rows as the cache takes, and no more than a batch of kernel values may.
        most = BLOCK_CELLS if self.pool.device.type == "cpu" else GPU_CELLS
        step = min(_cells(self.pool) // self.n_clusters, most // max(1, self.latest.numel())) + 1
        scores = self.scores
        chosen = best_rows(lambda rows: scores(rows, t), count, self.n_pool, step, self.map_blocks)
        self.latest = chosen
        self.sums.scatter_(1, chosen, torch.inf)
        return chosen

    def scores(self, rows: slice, t: int) -> Tensor:
        """(A, b) of a block, for contexts of t rows."""
        if self.latest.shape[1]:
            latest = self.pool[self.latest.flatten()]  # (A · B, d)
            values = self.kernel(latest, self.pool[rows], self.norms[rows])
            self.sums[:, rows] += values.view(*self.latest.shape, -1).sum(1)  # (A, B, b) → (A, b)
        return torch.add(self.cross[:, rows] * -2.0, self.sums[:, rows], alpha=2.0 / (t + 1))

    def mmd2(self, chosen: Tensor) -> Tensor:
        return self.trace.extend(self.pool[chosen], self.cross.gather(1, chosen))

    def keep(self, active: Tensor) -> None:
        self.cross, self.sums, self.latest = (
            array[active] for array in (self.cross, self.sums, self.latest)
        )
        self.trace.keep(active)
        self.n_clusters = len(self.cross)


class RffObjective:
    """Random Fourier features: the scores of all clusters are one matrix product a round."""

    def __init__(
        self,
        features: RandomFourierFeatures,
        pool: Tensor,
        clusters: Clusters,
        map_blocks: MapBlocks = map,
    ):
        self.n_pool, self.n_clusters, self.map_blocks = len(pool), len(clusters), map_blocks
        dim = len(features.phase)
        step = max(1, BLOCK_CELLS // dim)
        # The features are random: in a large embedding the digits after float32 mean nothing.
        dtype = torch.float32 if self.n_pool * dim > SINGLE_CELLS else pool.dtype
        self.embedded = torch.empty(self.n_pool, dim, dtype=dtype, device=pool.device)  # (N, D)

        def embed(start: int) -> None:
            self.embedded[start : start + step] = features(pool[start : start + step])

        list(map_blocks(embed, range(0, self.n_pool, step)))
        target = pool.new_zeros(len(clusters), dim)
        for queries, labels in clusters.parts(step):
            target += cluster_sums(features(queries), labels, len(clusters))
        # (A, D) the mean embedding of each cluster
        self.target = (target / clusters.sizes[:, None]).to(dtype)
        self.chosen_sum = torch.zeros_like(self.target)  # (A, D)
        self.traced_sum, self.traced = self.chosen_sum, 0  # the same when MMD² was last asked for
        self.taken = torch.zeros(len(clusters), self.n_pool, dtype=torch.bool, device=pool.device)

    def choose(self, count: int, t: int) -> Tensor:
        step, scores = _cells(self.embedded) // self.n_clusters + 1, self.scores
        chosen = best_rows(lambda rows: scores(rows, t), count, self.n_pool, step, self.map_blocks)
        self.chosen_sum = self.chosen_sum + self.embedded[chosen].sum(1)  # (A, B, D) → (A, D)
        self.taken.scatter_(1, chosen, True)
        return chosen

    def scores(self, rows: slice, t: int) -> Tensor:
        weights = self.chosen_sum * (2.0 / (t + 1)) - 2.0 * self.target  # (A, D)
        return (weights @ self.embedded[rows].T).masked_fill_(self.taken[:, rows], torch.inf)

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
        self, kernel: Rbf, points: list[Tensor], cross: list[Tensor], within: Tensor, dtype: type
    ):
        most, d = max(map(len, points)), points[0].shape[1]
        self.points, self.exact_cross, self.trace = points, cross, Trace(kernel, within, d)
        self.n_clusters, self.n_pool = len(points), min(map(len, points))
        self.left: np.ndarray = np.zeros((len(points), most, d + 2), dtype)  # (A, M, d + 2)
        # (A, M)  −∞ is never chosen
        self.cross: np.ndarray = np.full(self.left.shape[:2], -np.inf, dtype)
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
