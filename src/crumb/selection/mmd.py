"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import torch

from crumb.certified import TooManyCandidates, herd_certified, worth_while
from crumb.herding.candidates import herd_candidates
from crumb.herding.greedy import Herded, herd, stop_early
from crumb.herding.kernel import Rbf
from crumb.herding.objective import ExactObjective, Objective, RffObjective
from crumb.selection.base import Problem, Selection, Strategy
from crumb.selection.clustering import cluster

MOST_COLUMNS = 1_024  # of gpu_herding.py, whose blocks hold a whole row
Found = tuple[
    list[Herded], dict[str, Any]
]  # contexts, and what the plan should say of how they were found


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
    kernel, pool, queries = _tensors(problem)
    labels, n_clusters = labels.to(pool.device), int(labels.max()) + 1
    if problem.kernel.batch == 1 and runs_on(pool):
        from crumb.herding.gpu import herd_on_gpu

        return herd_on_gpu(
            kernel, pool, queries, labels, problem.n, problem.early_stopping, problem.progress
        ), {}
    objective = ExactObjective(kernel, pool, queries, labels, n_clusters, problem.map_blocks)
    return _herd(problem, objective), {}


def _rff(problem: Problem, labels: torch.Tensor, last: bool) -> Found:
    features = problem.features()
    pool, queries = problem.tensor(problem.pool), problem.tensor(problem.queries)
    labels, n_clusters = labels.to(pool.device), int(labels.max()) + 1
    objective = RffObjective(
        features.like(pool), pool, queries, labels, n_clusters, problem.map_blocks
    )
    return _herd(problem, objective), {}


def _candidates(problem: Problem, labels: torch.Tensor, last: bool) -> Found | None:
    kernel, pool, queries = _tensors(problem)
    contexts, doubling = herd_candidates(
        kernel,
        pool,
        queries,
        labels,
        problem.n,
        problem.kernel.most_candidates,
        problem.seed,
        problem.map_blocks,
    )
    if not doubling.enough and not last:
        return None
    return _ended(problem, contexts), {"candidates": asdict(doubling)}


def _certified(problem: Problem, labels: torch.Tensor, last: bool) -> Found | None:
    kernel, pool, queries = _tensors(problem)
    if not worth_while(kernel, pool, queries, labels, problem.n, problem.seed):
        return None
    try:
        contexts, certificate = herd_certified(
            kernel, pool, queries, labels, problem.n, problem.map_blocks
        )
    except TooManyCandidates:
        return None
    return _ended(problem, contexts), {"certificate": asdict(certificate)}


# Each gives None where another way is better, unless it is the last one.
WAYS: dict[str, Callable[[Problem, torch.Tensor, bool], Found | None]] = {
    "exact": _exact,
    "candidates": _candidates,
    "certified": _certified,
    "rff": _rff,
}


def runs_on(pool: torch.Tensor) -> bool:
    """Whether the kernels of gpu_herding.py can be used."""
    return pool.is_cuda and pool.shape[1] <= MOST_COLUMNS and find_spec("triton") is not None


def _tensors(problem: Problem) -> tuple[Rbf, torch.Tensor, torch.Tensor]:
    return (
        Rbf(problem.kernel.bandwidth),
        problem.tensor(problem.pool),
        problem.tensor(problem.queries),
    )


def _herd(problem: Problem, objective: Objective) -> list[Herded]:
    return herd(
        objective,
        problem.n,
        problem.kernel.batch,
        problem.early_stopping,
        problem.map_blocks,
        problem.progress,
    )


def _ended(problem: Problem, contexts: list[Herded]) -> list[Herded]:
    """Contexts that were chosen to the end, cut where early stopping would have ended them."""
    problem.progress(problem.n)
    return [stop_early(context, problem.early_stopping, problem.n) for context in contexts]
