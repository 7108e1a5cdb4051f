"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from crumb.herding.candidates import herd_candidates
from crumb.herding.greedy import Herded, Objective, herd
from crumb.herding.kernel import Rbf
from crumb.herding.objective import Clusters, ExactObjective, RffObjective
from crumb.selection.base import Problem, Selection, Strategy

# Contexts, and what the plan should say of how they were found.
Found = tuple[list[Herded], dict[str, Any]]
Stage1 = tuple[np.ndarray, np.ndarray]  # labels (T,), centroids (K, d)


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context."""

    name = "mmd"

    def select(self, problem: Problem) -> Selection:
        stage1 = problem.cluster()
        # Where the pool is not in memory, herding has candidates only.
        ways = problem.search.ways if problem.finder.whole else ("candidates",)
        for way in ways:
            found = WAYS[way](problem, stage1, way == ways[-1])
            if found is not None:
                break
        assert found is not None
        herded, facts = found
        return Selection(
            *stage1,
            contexts=[problem.finder.held.numbers(context.indices) for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel=way,
            facts=facts,
        )


def _exact(problem: Problem, stage1: Stage1, last: bool) -> Found:
    pool, clusters = _tensors(problem, stage1)
    kernel = Rbf(problem.options.bandwidth)
    if problem.search.batch == 1 and runs_on(pool):
        from crumb.herding.gpu import GpuObjective

        return _herd(problem, GpuObjective(kernel, pool, clusters)), {}
    return _herd(problem, ExactObjective(kernel, pool, clusters, problem.map_blocks)), {}


def _rff(problem: Problem, stage1: Stage1, last: bool) -> Found:
    pool, clusters = _tensors(problem, stage1)
    features = problem.features().like(pool)
    return _herd(problem, RffObjective(features, pool, clusters, problem.map_blocks)), {}


def _candidates(problem: Problem, stage1: Stage1, last: bool) -> Found | None:
    among = problem.finder.candidates(problem, *stage1)
    contexts, doubling = herd_candidates(
        Rbf(problem.options.bandwidth),
        *_tensors(problem, stage1),
        problem.n,
        among.most,
        problem.seed,
        problem.map_blocks,
        problem.options.early_stopping,
        candidates=among.candidates,
        available=among.available,
        first=among.first,
    )
    if not doubling.enough and not last:
        return None
    problem.progress(problem.n)
    return contexts, {"candidates": asdict(doubling), **among.facts}


# Each gives None where another way is better, unless it is the last one.
WAYS: dict[str, Callable[[Problem, Stage1, bool], Found | None]] = {
    "exact": _exact,
    "candidates": _candidates,
    "rff": _rff,
}


def runs_on(pool: torch.Tensor) -> bool:
    """Whether the kernels of herding/gpu.py can be used."""
    return pool.is_cuda and find_spec("triton") is not None


def _tensors(problem: Problem, stage1: Stage1) -> tuple[torch.Tensor, Clusters]:
    """The points that are held, and the clusters of queries."""
    pool, queries = problem.tensor(problem.finder.held.points), problem.tensor(problem.queries)
    return pool, Clusters(queries, torch.from_numpy(stage1[0]).to(pool.device))


def _herd(problem: Problem, objective: Objective) -> list[Herded]:
    batch, stopping = problem.search.batch, problem.options.early_stopping
    return herd(objective, problem.n, batch, stopping, problem.progress)
