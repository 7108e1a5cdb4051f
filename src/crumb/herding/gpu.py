"""Exact herding on a GPU, two kernels a choice and no word with the host in between. B = 1.

A step reads the cross-terms and the running sums of all clusters once, and the pool once for every 64 clusters:
``_advance`` adds the kernel values of the rows chosen last, and keeps the best score of every block; ``_choose`` takes
the best row for each cluster. The cross-terms come from a third kernel, which keeps nothing but their sums. Written in
Triton, which comes with torch for CUDA; products of float32 in three parts of tf32, as precise as float32. ``herd``
with an ``ExactObjective`` makes the same choices and is the oracle of the tests.

Shapes: K clusters, N pool rows, d columns, b blocks of the pool.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from crumb.herding.greedy import EarlyStopping, Herded, stop_early
from crumb.herding.kernel import Rbf, norms

ROWS = 128  # pool rows a block
CLUSTERS = 64  # that share one reading of a block: more need more fast memory than there is
QUERIES = 64  # queries a block of the cross-terms
ROUND = 256  # choices between two looks at whether all clusters have converged


def herd_on_gpu(
    kernel: Rbf,
    pool: Tensor,
    queries: Tensor,
    labels: Tensor,
    n: int,
    early_stopping: EarlyStopping | None = None,
    progress: Callable[[int], object] = lambda chosen: None,
) -> list[Herded]:
    """Choose ``n`` ≤ N rows for each cluster of queries (labels 0 … K−1, all present) by exact herding."""
    n_clusters, (rows, columns) = int(labels.max()) + 1, pool.shape
    by_column, size = (
        pool.T.contiguous(),
        norms(pool),
    )  # (d, N): neighbouring threads read neighbouring rows
    cross = cross_terms_on_gpu(
        kernel, by_column, size, queries, labels, n_clusters
    )  # −∞ once a row is taken
    members = [queries[labels == k] for k in range(n_clusters)]
    within = torch.stack([kernel.mean(some, some) for some in members]).double()
    width, blocks = (
        min(CLUSTERS, triton.next_power_of_2(max(16, n_clusters))),
        triton.cdiv(rows, ROWS),
    )
    groups = triton.cdiv(n_clusters, width)
    sums = torch.zeros_like(cross)
    latest = pool.new_zeros(groups * width, columns)
    latest_size = pool.new_full((groups * width,), torch.inf)  # none yet: κ = 0
    best = pool.new_empty(n_clusters, blocks)
    totals = torch.zeros(
        n_clusters, 2, dtype=torch.float64, device=pool.device
    )  # Σ cross-terms, Σ κ of the chosen
    chosen = torch.empty(n_clusters, n, dtype=torch.int64, device=pool.device)
    mmd2 = torch.empty(n_clusters, n, dtype=torch.float64, device=pool.device)
    scale = -0.5 / kernel.sigma**2
    for t in range(n):
        _advance[(blocks, groups)](
            by_column, size, sums, cross, latest, latest_size, best,
            rows, blocks, scale, 1.0 / (t + 1), n_clusters, columns, width, min(64, _padded(columns)), ROWS,
        )  # fmt: skip
        _choose[(n_clusters,)](
            pool, size, sums, cross, latest, latest_size, best, totals, within, chosen, mmd2,
            rows, blocks, n, t, 1.0 / (t + 1), columns, _padded(columns), 1024, ROWS,
        )  # fmt: skip
        if (t + 1) % ROUND == 0 or t + 1 == n:
            progress(t % ROUND + 1)
            so_far = (
                _herded(chosen[:, : t + 1], mmd2[:, : t + 1], early_stopping, n)
                if early_stopping
                else []
            )
            if so_far and all(context.stop_reason == "converged" for context in so_far):
                return so_far
    return _herded(chosen, mmd2, early_stopping, n)


def cross_terms_on_gpu(
    kernel: Rbf, by_column: Tensor, size: Tensor, queries: Tensor, labels: Tensor, n_clusters: int
) -> Tensor:
    """(K, N) mean kernel values of each pool row, given as columns (d, N), to the queries of every cluster."""
    columns, rows = by_column.shape
    queries = queries[torch.argsort(labels, stable=True)].contiguous()
    counts = torch.bincount(labels, minlength=n_clusters)
    ends = counts.cumsum(0).int()
    cross = by_column.new_empty(n_clusters, rows)
    _cross[(triton.cdiv(rows, ROWS), n_clusters)](
        by_column, size, queries, norms(queries), ends, cross,
        rows, -0.5 / kernel.sigma**2, columns, min(64, _padded(columns)), ROWS, QUERIES,
    )  # fmt: skip
    return cross.div_(counts[:, None])


def _herded(chosen: Tensor, mmd2: Tensor, rule: EarlyStopping | None, n: int) -> list[Herded]:
    rows, traces = chosen.cpu().numpy(), mmd2.cpu().numpy()
    return [stop_early(Herded(*both, "budget"), rule, n) for both in zip(rows, traces, strict=True)]


def _padded(columns: int) -> int:
    return max(16, triton.next_power_of_2(columns))


@triton.jit
def _cross(
    by_column, size, queries, query_size, ends, cross,
    rows, scale,
    D: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Sum of the kernel values of a block of rows to the queries of one cluster, which lie one after the other."""
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


@triton.jit
def _advance(
    by_column, size, sums, cross, latest, latest_size, best,
    rows, blocks, scale, weight,
    K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add the kernel values of the rows chosen last to the sums of a block; the best score of the block."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    cluster = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inner = tl.zeros((WIDTH, ROWS), dtype=tl.float32)
    for start in range(0, D, STEP):
        column = start + tl.arange(0, STEP)
        x = tl.load(
            by_column + column[:, None].to(tl.int64) * rows + row[None, :],
            mask=(row[None, :] < rows) & (column[:, None] < D), other=0.0,
        )  # fmt: skip
        last = tl.load(
            latest + cluster[:, None] * D + column[None, :], mask=column[None, :] < D, other=0.0
        )
        inner = tl.dot(last, x, inner, input_precision="tf32x3")
    norm = tl.load(size + row, mask=row < rows, other=0.0)
    squared = tl.load(latest_size + cluster)[:, None] + norm[None, :] - 2.0 * inner
    value = tl.exp(tl.maximum(squared, 0.0) * scale)
    there = (cluster[:, None] < K) & (row[None, :] < rows)
    place = cluster[:, None].to(tl.int64) * rows + row[None, :]
    total = tl.load(sums + place, mask=there, other=0.0) + value
    tl.store(sums + place, total, mask=there)
    score = tl.where(
        there, total * weight - tl.load(cross + place, mask=there, other=0.0), float("inf")
    )
    tl.store(best + cluster * blocks + block, tl.min(score, axis=1), mask=cluster < K)


@triton.jit(do_not_specialize=["t"])
def _choose(
    pool, size, sums, cross, latest, latest_size, best, totals, within, chosen, mmd2,
    rows, blocks, n, t, weight,
    D: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Take the best row of a cluster: note it, its MMD², and what the next step needs of it."""
    cluster = tl.program_id(0)
    least, least_block = float("inf"), 0
    for start in range(0, blocks, STEP):
        block = start + tl.arange(0, STEP)
        value = tl.load(best + cluster * blocks + block, mask=block < blocks, other=float("inf"))
        low = tl.min(value, axis=0)
        if low < least:
            least = low
            least_block = start + tl.argmin(value, axis=0)
    row = least_block * ROWS + tl.arange(
        0, ROWS
    )  # which row of the block it was, _advance has not kept
    start_of = tl.cast(cluster, tl.int64) * rows
    total = tl.load(sums + start_of + row, mask=row < rows, other=0.0)
    score = total * weight - tl.load(cross + start_of + row, mask=row < rows, other=float("-inf"))
    least_row = least_block * ROWS + tl.argmin(score, axis=0)
    place = start_of + least_row
    crosses = tl.load(totals + 2 * cluster) + tl.load(cross + place)
    grams = tl.load(totals + 2 * cluster + 1) + 2.0 * tl.load(sums + place) + 1.0
    tl.store(totals + 2 * cluster, crosses)
    tl.store(totals + 2 * cluster + 1, grams)
    count = tl.cast(t + 1, tl.float64)
    tl.store(
        mmd2 + cluster * n + t,
        tl.load(within + cluster) - 2.0 * crosses / count + grams / (count * count),
    )
    tl.store(chosen + cluster * n + t, least_row)
    tl.store(cross + place, float("-inf"))
    column = tl.arange(0, COLUMNS)
    x = tl.load(pool + tl.cast(least_row, tl.int64) * D + column, mask=column < D)
    tl.store(latest + cluster * D + column, x, mask=column < D)
    tl.store(latest_size + cluster, tl.load(size + least_row))
