"""Stage 2: greedy minimisation of the MMD (kernel herding), for all clusters in step.

From an empty context, each round takes the B pool rows xᵢ of least score, Eq. (greedy score):

    −2/|Cₖ| · Σ κ(xᵢ, queries of the cluster)  +  2/(t+1) · Σ κ(xᵢ, rows chosen so far)

This loop is the only one. An ``Objective`` knows the scores: over the whole pool or among
candidates, with the exact kernel or random features, on a CPU (objective.py) or a GPU (gpu.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from crumb.errors import InvalidInput


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

    A check takes place whenever another ``every`` rows have been chosen (at the first batch that
    reaches the mark) and at least ``warm_up`` rows are in, max(100, n/10) by default. A cluster
    stops when MMD² fell by less than the fraction ``tolerance`` since the mark before,
    ``patience`` checks in a row.
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
