"""CRUMB itself: cluster the queries, herd one context for each cluster."""

from __future__ import annotations

import torch

from crumb.clustering import cluster
from crumb.herding import herd
from crumb.kernel import Rbf
from crumb.objective import ExactObjective, Objective, RffObjective
from crumb.selection.base import Problem, Selection, Strategy


class MMD(Strategy):
    """Greedy minimisation of the MMD between each cluster of queries and its context."""

    name = "mmd"

    def select(self, problem: Problem) -> Selection:
        labels, centroids = cluster(problem.queries, problem.n_clusters, problem.seed)
        objective = _objective(problem, torch.from_numpy(labels), len(centroids))
        herded = herd(
            objective,
            problem.n,
            problem.kernel.batch,
            problem.early_stopping,
            problem.map_blocks,
            problem.progress,
        )
        return Selection(
            labels,
            centroids,
            contexts=[context.indices for context in herded],
            stop_reasons=[context.stop_reason for context in herded],
            mmd2=[context.mmd2 for context in herded],
        )


def _objective(problem: Problem, labels: torch.Tensor, n_clusters: int) -> Objective:
    pool, queries = problem.tensor(problem.pool), problem.tensor(problem.queries)
    similarity, labels = problem.similarity(), labels.to(pool.device)
    if isinstance(similarity, Rbf):
        return ExactObjective(similarity, pool, queries, labels, n_clusters, problem.map_blocks)
    return RffObjective(similarity.like(pool), pool, queries, labels, n_clusters, problem.map_blocks)
