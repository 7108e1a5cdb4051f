"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from crumb.herding.candidates import herd_candidates
from crumb.herding.greedy import Clusters, ExactObjective, Herded, Objective, RffObjective, herd
from crumb.herding.kernel import Rbf
from crumb.selection.base import Problem, Selection, Strategy


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> pool, queries = [[float(i)] for i in range(100)], [[2.2], [3.1], [97.4]]
    >>> plan = select_contexts(pool, queries, strategy="mmd", n_clusters=2, context_size=4)
    >>> [sorted(rows.tolist()) for rows in plan.contexts]
    [[1, 2, 3, 4], [96, 97, 98, 99]]
    """

    name = "mmd"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = problem.cluster()
        # Where the pool is not in memory, herding has candidates only.
        way = problem.search.name if problem.finder.whole else "candidates"
        if way == "candidates":
            herded, facts = _among_candidates(problem, labels, centroids)
        else:
            herded, facts = _among_all(problem, labels, way), {}
        return Selection(
            labels,
            centroids,
            contexts=[problem.finder.held.numbers(context.indices) for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel=way,
            facts=facts,
        )


def _among_all(problem: Problem, labels: np.ndarray, way: str) -> list[Herded]:
    """By the exact kernel or by random features: every row of the pool is a candidate."""
    pool, clusters = _tensors(problem, labels)
    kernel, batch = Rbf(problem.options.bandwidth), problem.search.batch
    objective: Objective
    if way == "rff":
        features = problem.features().like(pool)
        objective = RffObjective(features, pool, clusters, problem.map_blocks)
    elif batch == 1 and runs_on(pool):
        from crumb.herding.gpu import GpuObjective

        objective = GpuObjective(kernel, pool, clusters)
    else:
        objective = ExactObjective(kernel, pool, clusters, problem.map_blocks)

    def advance(rows: int) -> None:
        problem.progress(rows * len(clusters))

    problem.progress(0, more=problem.n * len(clusters))
    return herd(objective, problem.n, batch, problem.options.early_stopping, advance)


def _among_candidates(
    problem: Problem, labels: np.ndarray, centroids: np.ndarray
) -> tuple[list[Herded], dict[str, Any]]:
    """Contexts, and what the plan should say of the candidates."""
    among, facts = problem.finder.candidates(problem, labels, centroids)
    herded, doubling = herd_candidates(
        Rbf(problem.options.bandwidth),
        *_tensors(problem, labels),
        problem.n,
        seed=problem.seed,
        map_blocks=problem.map_blocks,
        early_stopping=problem.options.early_stopping,
        progress=problem.progress,
        **among,
    )
    return herded, {"candidates": asdict(doubling), **facts}


def _tensors(problem: Problem, labels: np.ndarray) -> tuple[torch.Tensor, Clusters]:
    """The points that are held, and the clusters of queries."""
    pool, queries = problem.tensor(problem.finder.held.points), problem.tensor(problem.queries)
    return pool, Clusters(queries, torch.from_numpy(labels).to(pool.device))


def runs_on(pool: torch.Tensor) -> bool:
    """Whether the kernels of herding/gpu.py can be used."""
    return pool.is_cuda and find_spec("triton") is not None
