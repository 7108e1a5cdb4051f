"""Herding among few candidates: the exact kernel, at the price of an approximation. For CPUs.

A context of n rows is chosen well from a few times n candidates, if these lie where the queries
lie (neighbours.py). First, each cluster has 12n candidates. A tenth of the clusters tries twice as
many. They go on doubling until this lowers the MMD² by less than ``ENOUGH``; then all clusters get
as many. What the last doubling brought is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from crumb.herding.greedy import Clusters, EarlyStopping, Herded, Rbf, Trace, herd, means_within
from crumb.herding.neighbours import FIRST, NEAR, Candidates, PoolCandidates
from crumb.machine import Advance, MapBlocks, blas_in_one_thread, no_progress
from crumb.rng import generator

ENOUGH = 0.02  # a doubling that lowers the MMD² by less was not needed
TRIAL = 10  # one cluster in ten tries more candidates, and at least two do
# Clusters that advance in step: threads wait for each other less over few and long operations.
# With many candidates the operations of one cluster are long enough.
GROUP, GROUP_ROWS = 5, 120_000
FARTHEST = 1e3  # bandwidths from the centroid: the rounding of squares is still no kernel value


@dataclass(frozen=True)
class Doubling:
    """Candidates of each cluster, and how far twice as many lowered the MMD² of the trial."""

    candidates: int  # those taken by distance; neighbours come on top
    gain: float | None  # as a fraction of the MMD²; None: nothing was tried


def herd_candidates(
    kernel: Rbf,
    pool: Tensor,
    clusters: Clusters,
    n: int,
    most: int,
    seed: int,
    map_blocks: MapBlocks = map,
    early_stopping: EarlyStopping | None = None,
    progress: Advance = no_progress,
    dtype: type = np.float32,
    candidates: Candidates | None = None,
    available: int | None = None,
    first: int | None = None,
) -> tuple[list[Herded], Doubling]:
    """Choose ``n`` ≤ N rows for each cluster of queries, B = 1.

    Each cluster has 12n candidates (or ``first``), or twice as many and so on, but not more than
    ``most``. Running sums are in ``dtype``, of points relative to their cluster; all else is in
    float64. ``candidates`` names the rows where ``pool`` is not the whole pool: 24n at first, and
    at most ``available`` for a cluster.
    """
    with blas_in_one_thread():  # threads take clusters, and do not split products
        rows = candidates
        if rows is None:
            queries, labels = clusters.queries.double().numpy(), clusters.labels.numpy()
            rows = PoolCandidates(pool.numpy(), queries, labels, n, seed)
            first = first or min(NEAR * n, most)
        contexts = _Herding(
            kernel, pool, clusters, rows, n, early_stopping, dtype, map_blocks, progress
        )
        available = len(pool) if available is None else available
        count, gain = (first := min(first or FIRST * n, available)), None
        found = contexts(range(len(clusters)), count)
        trial = _trial(found, seed)
        before = {k: found[k] for k in trial}
        while count < available:
            twice = min(2 * count, available)
            after = contexts(trial, twice)
            gain = _gain(before, after)
            if gain < ENOUGH or twice > most:
                break
            before, count = after, twice
        if count > first:
            found = before | contexts([k for k in found if k not in trial], count)
    if candidates is None and count == available:  # nothing more can be gained
        gain = 0.0
    return [found[k] for k in range(len(clusters))], Doubling(count, gain)


def _trial(found: dict[int, Herded], seed: int) -> list[int]:
    """The clusters that try more candidates, most likely those with much of the total MMD²."""
    mmd2 = np.array([max(float(found[k].mmd2[-1]), 1e-300) for k in range(len(found))])
    size = max(min(2, len(found)), len(found) // TRIAL)
    chances = mmd2 / mmd2.sum()
    return generator(seed, "trial").choice(len(found), size, replace=False, p=chances).tolist()


def _gain(before: dict[int, Herded], after: dict[int, Herded]) -> float:
    """The fraction by which MMD² fell over all clusters, less its standard error.

    Other candidates alone change the MMD² of a cluster by several percent, up or down.
    Early stopping ends contexts at different sizes: they are compared at the smaller one.
    """
    last = {k: min(len(before[k].mmd2), len(after[k].mmd2)) - 1 for k in before}
    first, second = (np.array([some[k].mmd2[last[k]] for k in last]) for some in (before, after))
    if not (first > 0).all():
        return 0.0
    each = 1 - second / first
    error = each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return max(0.0, float(1 - second.sum() / first.sum() - error))


@dataclass
class _Herding:
    """Clusters in groups, each thread with a group of its own."""

    kernel: Rbf
    pool: Tensor
    clusters: Clusters
    candidates: Candidates
    n: int
    early_stopping: EarlyStopping | None
    dtype: type
    map_blocks: MapBlocks
    progress: Advance

    def __post_init__(self) -> None:
        # Far from the origin squared distances would lose digits, but not around the centroid.
        members = [mine.double() for mine in self.clusters.members]
        self.centroids = [mine.mean(0) for mine in members]
        self.members = [mine - mean for mine, mean in zip(members, self.centroids, strict=True)]
        self.within = means_within(self.kernel, self.members, self.map_blocks)  # (K,)

    def __call__(self, which: Sequence[int], count: int) -> dict[int, Herded]:
        """The contexts of some clusters, from ``count`` candidates of each."""
        self.progress(0, more=self.n * len(which))
        size = max(1, min(GROUP, GROUP_ROWS // count, len(which) // 2))

        def of_group(start: int) -> list[Herded]:
            some = list(which[start : start + size])
            rows = dict(zip(some, self.candidates(some, count), strict=True))
            points = [self.pool[rows[k]].double() - self.centroids[k] for k in some]
            means = self.kernel.row_means
            cross = [means(mine, self.members[k]) for k, mine in zip(some, points, strict=True)]
            objective = CandidateObjective(
                self.kernel, points, cross, self.within[some], self.dtype
            )

            def advance(chosen: int) -> None:
                self.progress(chosen * len(some))

            herded = herd(objective, self.n, 1, self.early_stopping, advance)
            chosen = [rows[k][one.indices] for k, one in zip(some, herded, strict=True)]
            return [replace(one, indices=i) for one, i in zip(herded, chosen, strict=True)]

        groups = self.map_blocks(of_group, range(0, len(which), size))
        return dict(zip(which, chain.from_iterable(groups), strict=True))


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
            # Farther out all kernel values are 0, but products would overflow.
            self.left[k, : len(mine), :d] = (mine / kernel.sigma).clamp(-FARTHEST, FARTHEST)
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
