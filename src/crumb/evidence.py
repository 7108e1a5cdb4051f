"""What shows whether a plan is good: MMD² of each context, and queries outside of the pool."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import NearestNeighbors

from crumb.herding.kernel import Rbf
from crumb.selection.base import Problem, Selection

EVIDENCE_VALUES = 500_000_000  # kernel values spent on traces that the strategy did not leave
SUPPORT_QUANTILE = 0.99
PROBES = 2_000  # rows of the pool whose nearest neighbours tell how far rows lie apart


def trace(problem: Problem, context: np.ndarray, queries: np.ndarray, kernel: str) -> np.ndarray:
    """MMD² between the queries and the first 1, 2, … rows of a context."""
    held = problem.finder.held
    points = problem.tensor(held.points[held.places(context)])
    exact = Rbf(problem.options.bandwidth)
    similarity = problem.features().like(points) if kernel == "rff" else exact
    return similarity.prefix_mmd2(points, problem.tensor(queries)).cpu().double().numpy()


def unmeasured(selection: Selection) -> list[np.ndarray]:
    return [np.array([np.nan]) for _ in selection.contexts]


def measure_traces(problem: Problem, selection: Selection) -> list[np.ndarray]:
    """MMD² by the exact kernel, where it is affordable, for strategies that do not watch it."""
    members = [np.flatnonzero(selection.labels == k) for k in range(len(selection.contexts))]
    pairs = list(zip(selection.contexts, members, strict=True))
    cost = sum(
        len(context) ** 2 + len(context) * len(queries) + len(queries) ** 2
        for context, queries in pairs
    )
    if cost > EVIDENCE_VALUES:
        return unmeasured(selection)
    return [
        trace(problem, context, problem.queries[queries], "exact") for context, queries in pairs
    ]


def measure_support(problem: Problem, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each query to its context, and whether it is outside of the pool."""
    held, reference = problem.finder.held, problem.finder.reference
    distance = np.empty(len(problem.queries))
    order = np.argsort(selection.labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(selection.labels[order])) + 1):
        context = selection.contexts[selection.labels[members[0]]]
        points = held.points[held.places(context)]
        distance[members] = pairwise_distances_argmin_min(problem.queries[members], points)[1]
    if len(reference) < 2:
        return distance, np.zeros(len(distance), dtype=bool)
    search = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(reference)
    count = min(len(reference), PROBES)
    probes = reference[problem.rng("probes").choice(len(reference), count, replace=False)]
    # A row of the pool is its own nearest neighbour: the second one is the neighbour.
    own = search.kneighbors(probes, n_neighbors=2)[0][:, 1]
    radius = np.quantile(own, SUPPORT_QUANTILE)
    return distance, search.kneighbors(problem.queries)[0][:, 0] > radius
