"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch

from crumb.candidates import Certificate, TooManyCandidates, herd_candidates, worth_while
from crumb.clustering import cluster
from crumb.herding import Herded, herd, stop_early
from crumb.kernel import Rbf
from crumb.objective import ExactObjective, Objective, RffObjective
from crumb.selection.base import Problem, Selection, Strategy


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context."""

    name = "mmd"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        marks = torch.from_numpy(labels)
        certified = _certified(problem, marks) if problem.kernel.certify else None
        if certified is None:
            herded = herd(
                _objective(problem, marks, len(centroids)),
                problem.n,
                problem.kernel.batch,
                problem.early_stopping,
                problem.map_blocks,
                problem.progress,
            )
        else:
            herded = [stop_early(context, problem.early_stopping, problem.n) for context in certified[0]]
        return Selection(
            labels,
            centroids,
            contexts=[context.indices for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
            kernel=replace(problem.kernel, name="exact", batch=1) if certified else None,
            certificate=asdict(certified[1]) if certified else None,
        )


def _certified(problem: Problem, labels: torch.Tensor) -> tuple[list[Herded], Certificate] | None:
    """Exact herding among candidates, where few rows are; None where it would not be faster."""
    kernel, pool, queries = Rbf(problem.kernel.bandwidth), problem.tensor(problem.pool), problem.tensor(problem.queries)
    if not worth_while(kernel, pool, queries, labels, problem.n, problem.seed):
        return None
    try:
        certified = herd_candidates(kernel, pool, queries, labels, problem.n, problem.map_blocks)
    except TooManyCandidates:
        return None
    problem.progress(problem.n)
    return certified


def _objective(problem: Problem, labels: torch.Tensor, n_clusters: int) -> Objective:
    pool, queries = problem.tensor(problem.pool), problem.tensor(problem.queries)
    similarity, labels = problem.similarity(), labels.to(pool.device)
    if isinstance(similarity, Rbf):
        return ExactObjective(similarity, pool, queries, labels, n_clusters, problem.map_blocks)
    return RffObjective(similarity.like(pool), pool, queries, labels, n_clusters, problem.map_blocks)
