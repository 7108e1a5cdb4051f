"""What shows whether a plan is good: MMD² of each context, and queries outside of the pool."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import NearestNeighbors

from crumb.herding.greedy import Rbf, rff_trace
from crumb.selection.base import UNMEASURED, Problem, Selection

EVIDENCE_VALUES = 500_000_000  # kernel values spent on traces that the strategy did not leave
SUPPORT_QUANTILE = 0.99
PROBES = 2_000  # rows of the pool whose nearest neighbours tell how far rows lie apart


def measure_traces(problem: Problem, selection: Selection, swapped: np.ndarray) -> None:
    """MMD² between the queries and the first 1, 2, … rows of each context, where it is not known.

    Of contexts that have changed since the strategy watched them. For strategies that do not watch
    it: of all contexts by the exact kernel, where that is affordable.
    """
    queries = [problem.queries[selection.labels == k] for k in range(len(swapped))]
    which: Iterable[int] = np.flatnonzero(swapped)
    if selection.mmd2 is None:
        sizes = [(len(context), len(queries[k])) for k, context in enumerate(selection.contexts)]
        values = sum(rows**2 + rows * members + members**2 for rows, members in sizes)
        which = range(len(swapped)) if values <= EVIDENCE_VALUES else ()
        selection.mmd2 = [UNMEASURED] * len(swapped)
    for k in which:
        points = problem.tensor(problem.finder.held.points_of(selection.contexts[k]))
        mine = problem.tensor(queries[k])
        if selection.kernel == "rff":
            trace = rff_trace(problem.features().like(points), points, mine)
        else:
            trace = Rbf(problem.options.bandwidth).prefix_mmd2(points, mine)
        selection.mmd2[k] = trace.cpu().double().numpy()


def measure_support(problem: Problem, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
    """The distance of each query to its context, and whether it is outside of the pool."""
    reference = problem.finder.reference
    distance = np.empty(len(problem.queries))
    order = np.argsort(selection.labels, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(selection.labels[order])) + 1):
        context = selection.contexts[selection.labels[members[0]]]
        points = problem.finder.held.points_of(context)
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
