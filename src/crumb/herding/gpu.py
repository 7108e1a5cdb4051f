"""Exact herding on a GPU: two Triton kernels a choice, and no word with the host in between. B = 1.

A round reads the cross-terms and the running sums of all clusters once, and the pool once for every
64 clusters. ``_advance`` adds the kernel values of the rows chosen last, and keeps the best score
of every block; ``_choose`` takes the best row for each cluster. The cross-terms come from a third
kernel, which keeps nothing but their sums. Triton comes with torch for CUDA. Products of float32
are made from three parts of tf32, which is as precise as float32.

Shapes: A clusters that still grow, N pool rows, d columns, b blocks of the pool.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from crumb.herding.greedy import Clusters, ExactObjective, Rbf, norms

ROWS = 128  # pool rows a block
CLUSTERS = 64  # that read a block together: more need more fast memory than there is
QUERIES = 64  # queries a block of the cross-terms


class GpuObjective(ExactObjective):
    """The same in float32, for one row a round."""

    def __init__(self, kernel: Rbf, pool: Tensor, clusters: Clusters):
        pool = _widened(pool)
        clusters = Clusters(_widened(clusters.queries), clusters.labels)
        self.by_column = pool.T.contiguous()  # (d, N): neighbouring threads read neighbouring rows
        super().__init__(kernel, pool, clusters)
        self.latest = clusters.labels.new_full((len(clusters), 1), -1)  # (A, 1)  none at first
        self.width = min(CLUSTERS, triton.next_power_of_2(max(16, len(clusters))))

    def choose(self, count: int, t: int) -> Tensor:
        blocks, columns = triton.cdiv(self.n_pool, ROWS), self.pool.shape[1]
        best = self.pool.new_empty(self.n_clusters, blocks)  # (A, b)
        chosen = torch.empty_like(self.latest)
        _advance[(blocks, triton.cdiv(self.n_clusters, self.width))](
            self.pool, self.by_column, self.norms, self.sums, self.cross, self.latest, best,
            self.n_pool, blocks, self.n_clusters, -0.5 / self.kernel.sigma**2, 1.0 / (t + 1),
            columns, self.width, _step(columns), ROWS,
        )  # fmt: skip
        _choose[(self.n_clusters,)](
            self.sums, self.cross, best, chosen, self.n_pool, blocks, 1.0 / (t + 1), 1024, ROWS
        )
        self.latest = chosen
        return chosen

    def cross_terms(self, clusters: Clusters) -> Tensor:
        columns, rows = self.by_column.shape
        queries, ends = torch.cat(clusters.members), clusters.sizes.cumsum(0).int()
        cross = self.pool.new_empty(len(clusters), rows)
        _cross[(triton.cdiv(rows, ROWS), len(clusters))](
            self.by_column, self.norms, queries, norms(queries), ends, cross,
            rows, -0.5 / self.kernel.sigma**2, columns, _step(columns), ROWS, QUERIES,
        )  # fmt: skip
        return cross.div_(clusters.sizes[:, None])


def _widened(points: Tensor) -> Tensor:
    """With columns of zeros, which change no distance."""
    columns = points.shape[1]
    return pad(points, (0, -columns % _step(columns)))


def _step(columns: int) -> int:
    """Columns that a product takes at a time."""
    return min(64, max(16, triton.next_power_of_2(columns)))


@triton.jit
def _cross(
    by_column, size, queries, query_size, ends, cross,
    rows, scale,
    D: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Σ κ of a block of rows to the queries of one cluster, which lie one after the other."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cluster = tl.program_id(1)
    first = tl.load(ends + cluster - 1, mask=cluster > 0, other=0)
    end = tl.load(ends + cluster)
    norm = tl.load(size + row, mask=row < rows, other=0.0)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(first, end, QUERIES):
        query = start + tl.arange(0, QUERIES)
        inner = tl.zeros((QUERIES, ROWS), dtype=tl.float32)
        for begin in range(0, D, STEP):
            column = begin + tl.arange(0, STEP)
            x = tl.load(
                by_column + column[:, None].to(tl.int64) * rows + row[None, :],
                mask=(row[None, :] < rows) & (column[:, None] < D), other=0.0,
            )  # fmt: skip
            q = tl.load(
                queries + query[:, None] * D + column[None, :],
                mask=(query[:, None] < end) & (column[None, :] < D), other=0.0,
            )  # fmt: skip
            inner = tl.dot(q, x, inner, input_precision="tf32x3")
        far = tl.load(query_size + query, mask=query < end, other=float("inf"))
        squared = far[:, None] + norm[None, :] - 2.0 * inner
        total += tl.sum(tl.exp(tl.maximum(squared, 0.0) * scale), axis=0)
    tl.store(cross + tl.cast(cluster, tl.int64) * rows + row, total, mask=row < rows)


@triton.jit(do_not_specialize=["clusters"])  # clusters leave: no new kernel for their new number
def _advance(
    pool, by_column, size, sums, cross, latest, best,
    rows, blocks, clusters, scale, weight,
    D: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add the kernel values of the rows chosen last to the sums of a block; its best score."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    cluster = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    chosen = tl.load(latest + cluster, mask=cluster < clusters, other=-1)
    inner = tl.zeros((WIDTH, ROWS), dtype=tl.float32)
    for start in range(0, D, STEP):
        column = start + tl.arange(0, STEP)
        x = tl.load(
            by_column + column[:, None].to(tl.int64) * rows + row[None, :],
            mask=(row[None, :] < rows) & (column[:, None] < D), other=0.0,
        )  # fmt: skip
        last = tl.load(
            pool + chosen[:, None] * D + column[None, :],
            mask=(chosen[:, None] >= 0) & (column[None, :] < D), other=0.0,
        )  # fmt: skip
        inner = tl.dot(last, x, inner, input_precision="tf32x3")
    norm = tl.load(size + row, mask=row < rows, other=0.0)
    far = tl.load(size + chosen, mask=chosen >= 0, other=float("inf"))  # none yet: κ = 0
    squared = far[:, None] + norm[None, :] - 2.0 * inner
    value = tl.exp(tl.maximum(squared, 0.0) * scale)
    there = (cluster[:, None] < clusters) & (row[None, :] < rows)
    place = cluster[:, None].to(tl.int64) * rows + row[None, :]
    total = tl.load(sums + place, mask=there, other=0.0) + value
    tl.store(sums + place, total, mask=there)
    own = tl.load(cross + place, mask=there, other=0.0)
    score = tl.where(there, total * weight - own, float("inf"))
    tl.store(best + cluster * blocks + block, tl.min(score, axis=1), mask=cluster < clusters)


@triton.jit
def _choose(
    sums, cross, best, chosen, rows, blocks, weight, STEP: tl.constexpr, ROWS: tl.constexpr
):
    """Take the best row of a cluster."""
    cluster = tl.program_id(0)
    least, least_block = float("inf"), 0
    for start in range(0, blocks, STEP):
        block = start + tl.arange(0, STEP)
        value = tl.load(best + cluster * blocks + block, mask=block < blocks, other=float("inf"))
        low = tl.min(value, axis=0)
        if low < least:
            least = low
            least_block = start + tl.argmin(value, axis=0)
    # Which row of the block it was, _advance has not kept.
    row = least_block * ROWS + tl.arange(0, ROWS)
    place = tl.cast(cluster, tl.int64) * rows + row
    total = tl.load(sums + place, mask=row < rows, other=float("inf"))
    score = total * weight - tl.load(cross + place, mask=row < rows, other=0.0)
    least_row = least_block * ROWS + tl.argmin(score, axis=0)
    tl.store(chosen + cluster, least_row)
    tl.store(sums + tl.cast(cluster, tl.int64) * rows + least_row, float("inf"))
