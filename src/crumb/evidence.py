"""What shows whether a plan is a good one: MMD² of every context, and how far queries are from the pool."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import NearestNeighbors

from crumb.herding.kernel import Rbf
from crumb.rng import generator
from crumb.selection import Problem, Selection

EVIDENCE_VALUES = (
    500_000_000  # kernel values spent on traces that the strategy did not leave itself
)
SUPPORT_ROWS = (
    20_000  # pool rows against which queries are held to see whether the pool covers them
)
SUPPORT_QUANTILE = 0.99


def trace(
    problem: Problem, context: np.ndarray, queries: np.ndarray, exact: bool = False
) -> np.ndarray:
    """MMD² between the queries and the first 1, 2, … rows of a context, by the plan's kernel or the exact one."""
    points = problem.tensor(problem.pool[context])
    similarity = Rbf(problem.kernel.bandwidth) if exact else problem.similarity()
    if not isinstance(similarity, Rbf):
        similarity = similarity.like(points)
    return similarity.prefix_mmd2(points, problem.tensor(queries)).cpu().double().numpy()


def unmeasured(selection: Selection) -> list[np.ndarray]:
    return [np.array([np.nan]) for _ in selection.contexts]


def measure_traces(problem: Problem, selection: Selection) -> list[np.ndarray]:
    """MMD² for strategies that do not watch it themselves, by the exact kernel, where it can be afforded."""
    members = [np.flatnonzero(selection.labels == k) for k in range(len(selection.contexts))]
    cost = sum(
        len(context) ** 2 + len(context) * len(queries) + len(queries) ** 2
        for context, queries in zip(selection.contexts, members, strict=True)
    )
    if cost > EVIDENCE_VALUES:
        return unmeasured(selection)
    return [
        trace(problem, context, problem.queries[queries], exact=True)
        for context, queries in zip(selection.contexts, members, strict=True)
    ]


def support_rows(rows: int, seed: int) -> np.ndarray:
    """The pool rows against which queries are held, by number."""
    if rows <= SUPPORT_ROWS:
        return np.arange(rows)
    return generator(seed, "support").choice(rows, SUPPORT_ROWS, replace=False)


def measure_support(
    problem: Problem, selection: Selection, reference: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Distance of each query to its context, and whether the pool (or ``reference`` in its place) reaches it at all."""
    distance = np.empty(len(problem.queries))
    order = np.argsort(selection.labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(selection.labels[order])) + 1):
        context = problem.pool[selection.contexts[selection.labels[members[0]]]]
        distance[members] = pairwise_distances_argmin_min(problem.queries[members], context)[1]
    if reference is None:
        reference = problem.pool[support_rows(len(problem.pool), problem.seed)]
    if len(reference) < 2:
        return distance, np.zeros(len(distance), dtype=bool)
    search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(reference)
    probes = reference[
        problem.rng("probes").choice(len(reference), min(len(reference), 2_000), replace=False)
    ]
    # A row of the pool is its own nearest neighbour: the second one is the neighbour.
    own = search.kneighbors(probes, n_neighbors=2)[0][:, 1]
    radius = np.quantile(own, SUPPORT_QUANTILE)
    return distance, search.kneighbors(problem.queries)[0][:, 0] > radius
