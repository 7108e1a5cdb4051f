"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import torch

from crumb.herding.candidates import herd_candidates
from crumb.herding.clusters import Clusters
from crumb.herding.greedy import Herded, Objective, herd
from crumb.herding.kernel import Rbf
from crumb.herding.objective import ExactObjective, RffObjective
from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import cluster

# Contexts, and what the plan should say of how they were found.
Found = tuple[list[Herded], dict[str, Any]]


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context."""

    name = "mmd"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        for way in problem.kernel.ways:
            found = WAYS[way](problem, torch.from_numpy(labels), way == problem.kernel.ways[-1])
            if found is not None:
                break
        assert found is not None
        herded, facts = found
        return Selection(
            labels,
            centroids,
            contexts=[context.indices for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel=way,
            facts=facts,
        )


def _exact(problem: Problem, labels: torch.Tensor, last: bool) -> Found:
    kernel, pool = Rbf(problem.kernel.bandwidth), problem.tensor(problem.pool)
    clusters = Clusters(problem.tensor(problem.queries), labels.to(pool.device))
    if problem.kernel.batch == 1 and runs_on(pool):
        from crumb.herding.gpu import GpuObjective

        return _herd(problem, GpuObjective(kernel, pool, clusters)), {}
    return _herd(problem, ExactObjective(kernel, pool, clusters, problem.map_blocks)), {}


def _rff(problem: Problem, labels: torch.Tensor, last: bool) -> Found:
    pool = problem.tensor(problem.pool)
    clusters = Clusters(problem.tensor(problem.queries), labels.to(pool.device))
    features = problem.features().like(pool)
    return _herd(problem, RffObjective(features, pool, clusters, problem.map_blocks)), {}


def _candidates(problem: Problem, labels: torch.Tensor, last: bool) -> Found | None:
    contexts, doubling = herd_candidates(
        Rbf(problem.kernel.bandwidth),
        problem.tensor(problem.pool),
        Clusters(problem.tensor(problem.queries), labels),
        problem.n,
        problem.kernel.most_candidates,
        problem.seed,
        problem.map_blocks,
        problem.early_stopping,
    )
    if not doubling.enough and not last:
        return None
    problem.progress(problem.n)
    return contexts, {"candidates": asdict(doubling)}


# Each gives None where another way is better, unless it is the last one.
WAYS: dict[str, Callable[[Problem, torch.Tensor, bool], Found | None]] = {
    "exact": _exact,
    "candidates": _candidates,
    "rff": _rff,
}


def runs_on(pool: torch.Tensor) -> bool:
    """Whether the kernels of herding/gpu.py can be used."""
    return pool.is_cuda and find_spec("triton") is not None


def _herd(problem: Problem, objective: Objective) -> list[Herded]:
    return herd(
        objective, problem.n, problem.kernel.batch, problem.early_stopping, problem.progress
    )
