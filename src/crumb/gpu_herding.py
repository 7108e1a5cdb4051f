"""Exact herding on a GPU, two kernels a choice and no word with the host in between. B = 1.

A step reads the pool, the cross-terms and the running sums of all clusters once: ``_advance`` adds the kernel values of
the rows chosen last, and keeps the best row of every block; ``_choose`` takes the best of these for each cluster. Written
in Triton, which comes with torch for CUDA. ``herd`` with an ``ExactObjective`` makes the same choices and is the oracle
of the tests.

Shapes: K clusters, N pool rows, d columns, b blocks of the pool.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from crumb.herding import EarlyStopping, Herded, stop_early
from crumb.kernel import Rbf, norms
from crumb.objective import cross_terms

ROWS = 128  # pool rows a block
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
    cross = cross_terms(kernel, pool, queries, labels, n_clusters)  # (K, N), −∞ once a row is taken
    members = [queries[labels == k] for k in range(n_clusters)]
    within = torch.stack([kernel.mean(some, some) for some in members]).double()
    width, blocks = triton.next_power_of_2(max(16, n_clusters)), triton.cdiv(rows, ROWS)
    size, sums = norms(pool), torch.zeros_like(cross)
    latest, latest_size = pool.new_zeros(width, columns), pool.new_full((width,), torch.inf)  # none yet: κ = 0
    best, where = pool.new_empty(n_clusters, blocks), torch.empty(n_clusters, blocks, dtype=torch.int32).to(pool.device)
    totals = torch.zeros(n_clusters, 2, dtype=torch.float64, device=pool.device)  # Σ cross-terms, Σ κ of the chosen
    chosen = torch.empty(n_clusters, n, dtype=torch.int64, device=pool.device)
    mmd2 = torch.empty(n_clusters, n, dtype=torch.float64, device=pool.device)
    scale = -0.5 / kernel.sigma**2
    for t in range(n):
        _advance[(blocks,)](
            pool, size, sums, cross, latest, latest_size, best, where,
            rows, blocks, scale, 1.0 / (t + 1), n_clusters, columns, width, min(64, _padded(columns)), ROWS,
        )  # fmt: skip
        _choose[(n_clusters,)](
            pool, size, sums, cross, latest, latest_size, best, where, totals, within, chosen, mmd2,
            rows, blocks, n, t, columns, _padded(columns), 1024,
        )  # fmt: skip
        if (t + 1) % ROUND == 0 or t + 1 == n:
            progress(t % ROUND + 1)
            so_far = _herded(chosen[:, : t + 1], mmd2[:, : t + 1], early_stopping, n) if early_stopping else []
            if so_far and all(context.stop_reason == "converged" for context in so_far):
                return so_far
    return _herded(chosen, mmd2, early_stopping, n)


def _herded(chosen: Tensor, mmd2: Tensor, rule: EarlyStopping | None, n: int) -> list[Herded]:
    rows, traces = chosen.cpu().numpy(), mmd2.cpu().numpy()
    return [stop_early(Herded(*both, "budget"), rule, n) for both in zip(rows, traces, strict=True)]


def _padded(columns: int) -> int:
    return max(16, triton.next_power_of_2(columns))


@triton.jit
def _advance(
    pool, size, sums, cross, latest, latest_size, best, where,
    rows, blocks, scale, weight,
    K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add the kernel values of the rows chosen last to the sums of a block; the best row of the block."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    cluster = tl.arange(0, WIDTH)
    inner = tl.zeros((WIDTH, ROWS), dtype=tl.float32)
    for start in range(0, D, STEP):
        column = start + tl.arange(0, STEP)
        x = tl.load(
            pool + row[None, :].to(tl.int64) * D + column[:, None],
            mask=(row[None, :] < rows) & (column[:, None] < D), other=0.0,
        )  # fmt: skip
        last = tl.load(latest + cluster[:, None] * D + column[None, :], mask=column[None, :] < D, other=0.0)
        inner = tl.dot(last, x, inner, input_precision="tf32x3")
    norm = tl.load(size + row, mask=row < rows, other=0.0)
    squared = tl.load(latest_size + cluster)[:, None] + norm[None, :] - 2.0 * inner
    value = tl.exp(tl.maximum(squared, 0.0) * scale)
    there = (cluster[:, None] < K) & (row[None, :] < rows)
    place = cluster[:, None].to(tl.int64) * rows + row[None, :]
    total = tl.load(sums + place, mask=there, other=0.0) + value
    tl.store(sums + place, total, mask=there)
    score = tl.where(there, total * weight - tl.load(cross + place, mask=there, other=0.0), float("inf"))
    tl.store(best + cluster * blocks + block, tl.min(score, axis=1), mask=cluster < K)
    tl.store(where + cluster * blocks + block, block * ROWS + tl.argmin(score, axis=1), mask=cluster < K)


@triton.jit(do_not_specialize=["t"])
def _choose(
    pool, size, sums, cross, latest, latest_size, best, where, totals, within, chosen, mmd2,
    rows, blocks, n, t,
    D: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Take the best row of a cluster: note it, its MMD², and what the next step needs of it."""
    cluster = tl.program_id(0)
    least, least_row = float("inf"), 0
    for start in range(0, blocks, STEP):
        block = start + tl.arange(0, STEP)
        value = tl.load(best + cluster * blocks + block, mask=block < blocks, other=float("inf"))
        low = tl.min(value, axis=0)
        if low < least:
            least = low
            least_row = tl.load(where + cluster * blocks + start + tl.argmin(value, axis=0))
    place = cluster.to(tl.int64) * rows + least_row
    crosses = tl.load(totals + 2 * cluster) + tl.load(cross + place)
    grams = tl.load(totals + 2 * cluster + 1) + 2.0 * tl.load(sums + place) + 1.0
    tl.store(totals + 2 * cluster, crosses)
    tl.store(totals + 2 * cluster + 1, grams)
    count = (t + 1).to(tl.float64)
    tl.store(mmd2 + cluster * n + t, tl.load(within + cluster) - 2.0 * crosses / count + grams / (count * count))
    tl.store(chosen + cluster * n + t, least_row.to(tl.int64))
    tl.store(cross + place, float("-inf"))
    column = tl.arange(0, COLUMNS)
    x = tl.load(pool + least_row.to(tl.int64) * D + column, mask=column < D)
    tl.store(latest + cluster * D + column, x, mask=column < D)
    tl.store(latest_size + cluster, tl.load(size + least_row))
