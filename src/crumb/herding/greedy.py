"""Stage 2: greedy minimisation of the MMD (kernel herding), for all clusters in step.

From an empty context, each round takes the B pool rows xᵢ of least score, Eq. (greedy score):

    −2/|Cₖ| · Σ κ(xᵢ, queries of the cluster)  +  2/(t+1) · Σ κ(xᵢ, rows chosen so far)

Before it stand the Gaussian RBF kernel, its bandwidth, its random Fourier features, and the MMD²
that they give; the same lines run on a CPU in float64 and on a GPU in float32. ``herd`` is the
only loop. An ``Objective`` knows the scores. Here are the two for any device, in
torch: the exact kernel and random features. They read the whole pool each round, in blocks, for
all clusters together: a block brings its running sums up to date and names its best rows. The
objective among candidates is in candidates.py, that of CUDA in gpu.py.

Shapes: A clusters that still grow, N pool rows, T queries, B rows a batch, D random features,
d columns, b rows of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

from crumb.errors import InvalidInput
from crumb.machine import MapBlocks

BANDWIDTH_SAMPLE = 1_000  # rows of the pool behind the median heuristic: half a million pairs
CACHE_CELLS = 1 << 18  # scores a block on a CPU: two such arrays stay in its cache
SINGLE_CELLS = 1 << 25  # cells of an embedding above which it is kept in float32 (128 MB)
GPU_CELLS = 1 << 26  # scores a block on a GPU, which wants few and large blocks
BLOCK_CELLS = 1 << 20  # kernel values a thread holds at once: 8 MB in float64, whatever N and T are
TRACED = 256  # rows of a context whose kernel values are computed together
TRACED_CELLS = 1 << 24  # the same on a GPU, for as many contexts as fit: 128 MB in float64


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
        size, cells = self.points.shape[1], min(TRACED_CELLS, _block_cells(self.points))
        step = max(1, min(TRACED, cells // size))
        parts = self.points.split(max(1, cells // (step * size)))  # of the clusters
        earlier = torch.cat([self._earlier(some, t, step) for some in parts])
        # A row adds its own kernel value (1) once and those with the earlier rows twice.
        growth = torch.stack([cross.to(self.within), 2 * earlier + 1])  # (2, A, b)
        sums = self.sums[..., None] + growth.cumsum(2)
        self.sums = sums[..., -1]
        sizes = torch.arange(t + 1, size + 1).to(self.within)
        return self.within[:, None] - 2 * sums[0] / sizes + sums[1] / sizes**2

    def _earlier(self, points: Tensor, t: int, step: int) -> Tensor:
        """Σ κ of each row after the first t to all rows before it: (a, t + b, d) → (a, b)."""
        size, squares, sums = points.shape[1], norms(points), []
        for start in range(t, size, step):
            end = min(start + step, size)
            values = self.kernel(points[:, start:end], points[:, :end], squares[:, :end])
            sums.append(values.tril_(start - 1).sum(2))
        return torch.cat(sums, 1)

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


class Objective(Protocol):
    """What herding minimises, for A clusters that still grow. It remembers what was chosen."""

    n_clusters: int  # A
    n_pool: int  # N

    def choose(self, count: int, t: int) -> Tensor:
        """The ``count`` free rows of least score for each cluster, which has t rows: (A, B)."""

    def mmd2(self, chosen: Tensor) -> Tensor:
        """MMD² after each of the rows (A, b) chosen since this was last asked: (A, b)."""

    def keep(self, active: Tensor) -> None:
        """Drop the clusters that are not ``active`` (A,)."""


@dataclass(frozen=True)
class EarlyStopping:
    """Stop a cluster when MMD² no longer falls.

    Parameters
    ----------
    every : int, default=50
        Rows between two checks: one takes place at the first batch that reaches the mark.
    warm_up : int or None, default=None
        Rows before the first check. None: max(100, n/10).
    tolerance : float, default=1e-4
        A check fails where MMD² fell by less than this fraction since the mark before.
    patience : int, default=5
        Checks that fail in a row before the cluster stops.

    Examples
    --------
    >>> from crumb import CrumbClassifier, EarlyStopping
    >>> CrumbClassifier(early_stopping=EarlyStopping(every=20, patience=2)).early_stopping.every
    20
    """

    every: int = 50
    warm_up: int | None = None
    tolerance: float = 1e-4
    patience: int = 5

    def __post_init__(self) -> None:
        if self.every < 1 or self.patience < 1 or self.tolerance < 0 or (self.warm_up or 0) < 0:
            raise InvalidInput(
                "Early stopping needs every ≥ 1, patience ≥ 1, tolerance ≥ 0 and warm_up ≥ 0, "
                f"got {self}."
            )


@dataclass(frozen=True)
class Herded:
    """The context of one cluster: rows in the order chosen, MMD² after each, and why it ended."""

    indices: np.ndarray
    mmd2: np.ndarray
    stop_reason: str  # "context size", "pool exhausted" or "converged"


def herd(
    objective: Objective,
    n: int,
    batch: int = 1,
    early_stopping: EarlyStopping | None = None,
    progress: Callable[[int], object] = lambda chosen: None,
) -> list[Herded]:
    """Choose at most ``n`` rows for each of K clusters, the ``batch`` best-scoring ones a round."""
    size, n_clusters = min(n, objective.n_pool), objective.n_clusters
    indices = np.empty((n_clusters, size), dtype=np.int64)
    mmd2 = np.zeros((n_clusters, size))
    sizes = np.full(n_clusters, size)
    active = np.arange(n_clusters)  # (A,) the clusters that still grow
    watch = _Watch(early_stopping, n)
    t = 0
    while t < size and len(active):
        start, rounds = t, []
        while t < min(watch.mark, size):  # a GPU works on its own until the next check
            count = min(batch, size - t)
            rounds.append(objective.choose(count, t))  # (A, B)
            t += count
            progress(count)
        chosen = torch.cat(rounds, 1)  # (A, t − start)
        mmd2[active, start:t] = objective.mmd2(chosen).cpu().numpy()
        indices[active, start:t] = chosen.cpu().numpy()
        converged = watch.converged(t, mmd2[:, t - 1])[active]  # (A,)
        if converged.any():
            sizes[active[converged]] = t
            active = active[~converged]
            objective.keep(torch.from_numpy(~converged).to(chosen.device))
    if t < size:  # all clusters have converged
        progress(size - t)
    reasons = np.full(n_clusters, "converged", dtype=object)
    reasons[active] = "context size" if n <= objective.n_pool else "pool exhausted"
    return [Herded(indices[k, :size], mmd2[k, :size], reasons[k]) for k, size in enumerate(sizes)]


class _Watch:
    """Notes, for each cluster, whether a check found that MMD² fell too little."""

    mark: float = np.inf  # rows at which the next check is due

    def __init__(self, rule: EarlyStopping | None, n: int):
        if rule is not None:
            self.rule, self.mark = rule, rule.every
            self.warm_up = max(100, n / 10) if rule.warm_up is None else rule.warm_up
            self.before: np.ndarray | float = np.nan  # (K,) MMD² at the mark before
            self.idle: list[np.ndarray] = []  # (K,) of each check

    def converged(self, t: int, mmd2: np.ndarray) -> np.ndarray:
        """Which clusters stop at size t: (K,)."""
        if t >= self.mark:
            self.mark = (t // self.rule.every + 1) * self.rule.every
            before, self.before = self.before, mmd2
            if t >= self.warm_up:
                # An MMD² of zero cannot improve. The first mark has nothing to compare with: NaN.
                gain = (before - mmd2) / np.where(before > 0, before, np.inf)
                self.idle.append(gain < self.rule.tolerance)
                if len(self.idle) >= self.rule.patience:
                    return np.all(self.idle[-self.rule.patience :], axis=0)
        return np.zeros(len(mmd2), dtype=bool)


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
        most = _block_cells(self.pool) // max(1, self.latest.numel())
        step = min(_cells(self.pool) // self.n_clusters, most) + 1
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


def rff_trace(features: RandomFourierFeatures, context: Tensor, queries: Tensor) -> Tensor:
    """‖mean z(queries) − mean z(first t rows of the context)‖² for t = 1, …, n."""
    labels = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    objective = RffObjective(features, context, Clusters(queries, labels))
    return objective.mmd2(torch.arange(len(context), device=context.device)[None])[0]


def _block_cells(tensor: Tensor) -> int:
    return BLOCK_CELLS if tensor.device.type == "cpu" else GPU_CELLS


def _cells(tensor: Tensor) -> int:
    return CACHE_CELLS if tensor.device.type == "cpu" else GPU_CELLS
