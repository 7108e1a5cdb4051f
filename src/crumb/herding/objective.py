"""What herding minimises, kept for all clusters at once: the score of Eq. (greedy score).

An objective knows K clusters of queries and a pool of N rows. ``scores`` reads one block of the pool for all
clusters together; ``add`` takes one batch of chosen rows for each cluster and tells the MMD² after each of
them. Chosen rows score +∞ from then on. ``keep`` drops clusters that have stopped.

Shapes: A clusters still at work, N pool rows, T queries, B rows a batch, D random features, b rows a block.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from crumb.herding.kernel import BLOCK_CELLS, RandomFourierFeatures, Rbf, norms
from crumb.parallel import MapBlocks

CACHE_CELLS = 1 << 18  # scores a block on a CPU: two such arrays stay in its cache
SINGLE_CELLS = 1 << 25  # cells of an embedding above which it is kept in float32 (128 MB)
GPU_CELLS = 1 << 26  # scores a block on a GPU, which wants few and large blocks


class Objective(Protocol):
    n_clusters: int
    n_pool: int

    @property
    def block_rows(self) -> int: ...

    def scores(self, rows: slice, t: int) -> Tensor: ...

    def add(self, chosen: Tensor, t: int) -> Tensor: ...

    def keep(self, active: Tensor) -> None: ...


def cluster_sums(values: Tensor, labels: Tensor, n_clusters: int) -> Tensor:
    """Sum the rows of ``values`` (T, b) that share a label: (K, b)."""
    if values.device.type == "cpu":
        return values.new_zeros(n_clusters, values.shape[1]).index_add_(0, labels, values)
    # index_add_ adds in a random order on a GPU; a product with the indicator matrix always repeats.
    member = labels[None, :] == torch.arange(n_clusters, device=labels.device)[:, None]
    return member.to(values) @ values


def cross_terms(
    kernel: Rbf,
    points: Tensor,
    queries: Tensor,
    labels: Tensor,
    n_clusters: int,
    map_blocks: MapBlocks = map,
) -> Tensor:
    """Mean kernel value of each point to the queries of every cluster: (K, len(points))."""
    cross, size = queries.new_zeros(n_clusters, len(points)), norms(points)
    step = (
        1 << 10 if points.device.type == "cpu" else 1 << 14
    )  # blocks of step × step kernel values

    def fill(start: int) -> None:
        rows = slice(start, start + step)
        for some, marks in zip(queries.split(step), labels.split(step), strict=True):
            values = kernel(some, points[rows], size[rows])  # (step, step)
            cross[:, rows] += cluster_sums(values, marks, n_clusters)

    # Blocks write into the one result: many small tensors between large temporaries would fragment memory.
    list(map_blocks(fill, range(0, len(points), step)))
    return cross / torch.bincount(labels, minlength=n_clusters).to(queries)[:, None]


class ExactObjective:
    """The RBF kernel itself: one kernel value for each pool row and chosen row."""

    def __init__(
        self,
        kernel: Rbf,
        pool: Tensor,
        queries: Tensor,
        labels: Tensor,
        n_clusters: int,
        map_blocks: MapBlocks = map,
    ):
        self.kernel, self.pool, self.norms = kernel, pool, norms(pool)  # (N, d), (N,)
        self.n_pool, self.n_clusters = len(pool), n_clusters
        # (A, N), −∞ once a row is taken
        self.cross = cross_terms(kernel, pool, queries, labels, n_clusters, map_blocks)
        self.within = torch.stack(
            [
                kernel.mean(members, members, map_blocks)
                for members in _by_cluster(queries, labels, n_clusters)
            ]
        )  # (A,)  mean κ among the queries of a cluster
        self.redundancy = torch.zeros_like(
            self.cross
        )  # (A, N)  Σ κ to the rows chosen before `latest`
        self.latest = torch.empty((n_clusters, 0), dtype=torch.long, device=pool.device)  # (A, B)
        self.cross_sum = pool.new_zeros(n_clusters)
        self.gram_sum = pool.new_zeros(n_clusters)

    @property
    def block_rows(self) -> int:
        """Pool rows a block: as many as the cache takes, and no more than a batch of kernels may."""
        most = BLOCK_CELLS if self.pool.device.type == "cpu" else GPU_CELLS
        return min(_cells(self.pool) // self.n_clusters, most // max(1, self.latest.numel())) + 1

    def scores(self, rows: slice, t: int) -> Tensor:
        """(A, b) scores of a block at size t; its running sums first catch up with the latest batch."""
        if self.latest.shape[1]:
            values = self.kernel(
                self.pool[self.latest.flatten()], self.pool[rows], self.norms[rows]
            )
            self.redundancy[:, rows] += values.view(*self.latest.shape, -1).sum(
                1
            )  # (A, B, b) → (A, b)
        return torch.add(self.cross[:, rows] * -2.0, self.redundancy[:, rows], alpha=2.0 / (t + 1))

    def add(self, chosen: Tensor, t: int) -> Tensor:
        """Take (A, B) rows at size t; (A, B) values of MMD² after each of them."""
        points = self.pool[chosen]  # (A, B, d)
        gram = self.kernel.grams(points)  # (A, B, B)
        growth = (
            2 * (self.redundancy.gather(1, chosen) + torch.tril(gram, diagonal=-1).sum(2)) + 1.0
        )
        cross = self.cross_sum[:, None] + self.cross.gather(1, chosen).cumsum(1)
        grams = self.gram_sum[:, None] + growth.cumsum(1)
        size = torch.arange(
            t + 1, t + 1 + chosen.shape[1], dtype=points.dtype, device=points.device
        )
        self.cross_sum, self.gram_sum, self.latest = cross[:, -1], grams[:, -1], chosen
        self.cross.scatter_(1, chosen, -torch.inf)
        return self.within[:, None] - 2 * cross / size + grams / size**2

    def keep(self, active: Tensor) -> None:
        for name in ("cross", "within", "redundancy", "latest", "cross_sum", "gram_sum"):
            setattr(self, name, getattr(self, name)[active])
        self.n_clusters = int(active.sum())


class RffObjective:
    """Random Fourier features: the scores of all clusters are one matrix product a round."""

    def __init__(
        self,
        features: RandomFourierFeatures,
        pool: Tensor,
        queries: Tensor,
        labels: Tensor,
        n_clusters: int,
        map_blocks: MapBlocks = map,
    ):
        self.n_pool, self.n_clusters = len(pool), n_clusters
        step, dim = max(1, BLOCK_CELLS // len(features.phase)), len(features.phase)
        # Large embeddings are kept in single precision: the features are random, their seventh digit means nothing.
        dtype = torch.float32 if self.n_pool * dim > SINGLE_CELLS else pool.dtype
        self.embedded = torch.empty(self.n_pool, dim, dtype=dtype, device=pool.device)  # (N, D)

        def embed(start: int) -> None:
            self.embedded[start : start + step] = features(pool[start : start + step])

        list(map_blocks(embed, range(0, self.n_pool, step)))
        target = pool.new_zeros(n_clusters, dim)
        for some, marks in zip(queries.split(step), labels.split(step), strict=True):
            target += cluster_sums(features(some), marks, n_clusters)
        sizes = torch.bincount(labels, minlength=n_clusters).to(queries)
        self.target = (target / sizes[:, None]).to(dtype)  # (A, D)  mean embedding of each cluster
        self.chosen_sum = torch.zeros_like(self.target)  # (A, D)
        self.taken = torch.zeros(n_clusters, self.n_pool, dtype=torch.bool, device=pool.device)

    @property
    def block_rows(self) -> int:
        return _cells(self.embedded) // self.n_clusters + 1

    def scores(self, rows: slice, t: int) -> Tensor:
        """(A, b) scores of a block at size t."""
        weights = self.chosen_sum * (2.0 / (t + 1)) - 2.0 * self.target  # (A, D)
        return (weights @ self.embedded[rows].T).masked_fill_(self.taken[:, rows], torch.inf)

    def add(self, chosen: Tensor, t: int) -> Tensor:
        """Take (A, B) rows at size t; (A, B) values of MMD² after each of them."""
        sums = self.chosen_sum[:, None] + self.embedded[chosen].cumsum(1)  # (A, B, D)
        size = torch.arange(t + 1, t + 1 + chosen.shape[1], dtype=sums.dtype, device=sums.device)
        gap = self.target[:, None] - sums / size[:, None]
        self.chosen_sum = sums[:, -1]
        self.taken.scatter_(1, chosen, True)
        return (gap * gap).sum(2)

    def keep(self, active: Tensor) -> None:
        for name in ("target", "chosen_sum", "taken"):
            setattr(self, name, getattr(self, name)[active])
        self.n_clusters = int(active.sum())


def _cells(tensor: Tensor) -> int:
    return CACHE_CELLS if tensor.device.type == "cpu" else GPU_CELLS


def _by_cluster(queries: Tensor, labels: Tensor, n_clusters: int) -> list[Tensor]:
    order = torch.argsort(labels, stable=True)
    return list(queries[order].split(torch.bincount(labels, minlength=n_clusters).tolist()))
