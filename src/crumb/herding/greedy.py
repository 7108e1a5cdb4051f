"""Stage 2: greedy minimisation of the MMD (kernel herding), all clusters together.

Each round reads the pool once, in blocks: every block first brings its running sums up to date with the rows
chosen in the round before, then names its best candidates. All clusters advance in step, so one matrix
product serves them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crumb.errors import InvalidInput
from crumb.herding.objective import Objective
from crumb.parallel import MapBlocks


@dataclass(frozen=True)
class EarlyStopping:
    """Stop a cluster when MMD² no longer falls.

    A check takes place whenever another ``every`` rows have been chosen (at the first batch that reaches the
    mark) and at least ``warm_up`` rows are in, max(100, n/10) by default. A cluster stops when MMD² fell by
    less than the share ``tolerance`` since the mark before, ``patience`` checks in a row.
    """

    every: int = 50
    warm_up: int | None = None
    tolerance: float = 1e-4
    patience: int = 5

    def __post_init__(self) -> None:
        if self.every < 1 or self.patience < 1 or self.tolerance < 0 or (self.warm_up or 0) < 0:
            raise InvalidInput(
                f"Early stopping needs every ≥ 1, patience ≥ 1, tolerance ≥ 0 and warm_up ≥ 0, got {self}."
            )


@dataclass(frozen=True)
class Herded:
    """The context of one cluster: rows in the order chosen, MMD² after each, and why it ended."""

    indices: np.ndarray
    mmd2: np.ndarray
    stop_reason: str  # "budget", "pool exhausted" or "converged"


def herd(
    objective: Objective,
    n: int,
    batch: int = 1,
    early_stopping: EarlyStopping | None = None,
    map_blocks: MapBlocks = map,
    progress: Callable[[int], object] = lambda chosen: None,
) -> list[Herded]:
    """Choose at most ``n`` rows for each cluster, the ``batch`` best-scoring ones a round."""
    budget = min(n, objective.n_pool)
    indices = np.empty((objective.n_clusters, budget), dtype=np.int64)
    mmd2 = np.empty((objective.n_clusters, budget))
    sizes = np.full(objective.n_clusters, budget)
    active = np.arange(objective.n_clusters)
    watch = _Watch(early_stopping, n, objective.n_clusters)
    t = 0
    while t < budget and len(active):
        chosen = _best(objective, min(batch, budget - t), t, map_blocks)  # (A, B)
        values = objective.add(chosen, t).cpu().double().numpy()
        taken = slice(t, t + chosen.shape[1])
        indices[active, taken], mmd2[active, taken] = chosen.cpu().numpy(), values
        t = taken.stop
        progress(chosen.shape[1])
        converged = watch.converged(t, values[:, -1])
        if converged.any():
            sizes[active[converged]] = t
            active = active[~converged]
            objective.keep(torch.from_numpy(~converged).to(chosen.device))
    ended = "budget" if n <= objective.n_pool else "pool exhausted"
    stopped = np.isin(np.arange(len(sizes)), active, invert=True)
    return [
        Herded(indices[k, :size], mmd2[k, :size], "converged" if stopped[k] else ended)
        for k, size in enumerate(sizes)
    ]


def stop_early(context: Herded, rule: EarlyStopping | None, n: int) -> Herded:
    """A context that was chosen to the end, cut where early stopping would have ended it: its choices are the same."""
    watch = _Watch(rule, n, 1)
    for t in range(1, len(context.indices) + 1):
        if watch.converged(t, context.mmd2[t - 1 : t]).any():
            return Herded(context.indices[:t], context.mmd2[:t], "converged")
    return context


def _best(objective: Objective, count: int, t: int, map_blocks: MapBlocks) -> Tensor:
    """The ``count`` lowest scores of every cluster over the whole pool: (A, count) rows."""
    step = max(count, objective.block_rows)

    def best_of_block(start: int) -> tuple[Tensor, Tensor]:
        scores = objective.scores(slice(start, start + step), t)
        if count == 1:
            lowest, where = scores.min(1, keepdim=True)
        else:
            lowest, where = scores.topk(min(count, scores.shape[1]), dim=1, largest=False)
        return lowest, where + start

    values, indices = zip(*map_blocks(best_of_block, range(0, objective.n_pool, step)), strict=True)
    order = torch.cat(values, 1).sort(dim=1, stable=True).indices[:, :count]
    return torch.cat(indices, 1).gather(1, order)


class _Watch:
    """Counts, for each cluster still at work, how many checks in a row brought too little."""

    def __init__(self, rule: EarlyStopping | None, n: int, n_clusters: int):
        self.rule = rule
        if rule is not None:
            self.warm_up = max(100, n / 10) if rule.warm_up is None else rule.warm_up
            self.mark = rule.every
            self.before = np.full(n_clusters, np.nan)  # MMD² at the mark before
            self.idle = np.zeros(n_clusters, dtype=int)

    def converged(self, t: int, mmd2: np.ndarray) -> np.ndarray:
        nothing = np.zeros(len(mmd2), dtype=bool)
        if self.rule is None or t < self.mark:
            return nothing
        self.mark = (t // self.rule.every + 1) * self.rule.every
        before, self.before = self.before, mmd2
        if t < self.warm_up:
            return nothing
        # A vanished MMD² cannot improve. The very first mark has nothing to compare with (NaN): not idle.
        gain = (before - mmd2) / np.where(before > 0, before, np.inf)
        self.idle = np.where((gain < self.rule.tolerance), self.idle + 1, 0)
        done = self.idle >= self.rule.patience
        self.before, self.idle = self.before[~done], self.idle[~done]
        return done
