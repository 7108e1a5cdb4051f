"""Candidates of a cluster: the rows at the distances from its centroid at which its queries are."""

from __future__ import annotations

import math

import numpy as np

STRATA = 10  # parts of the queries' distances from which equally many candidates come
ELSEWHERE = 0.1  # fraction of the candidates that come from the rows farther away


def rows_at_distances(
    distance: np.ndarray, of_queries: np.ndarray, count: int, order: np.ndarray
) -> np.ndarray:
    """``count`` rows at the squared distances of the queries from their mean, rising.

    Equally many from each stratum, those first in ``order``. Where a stratum has fewer, the next
    one out gives more, and beyond the last one the nearest rows do. The fraction ``ELSEWHERE``
    comes from the rows beyond.
    """
    queries = _of_others(of_queries)
    edges = np.quantile(queries, np.linspace(0, 1, min(STRATA, len(queries)) + 1)[1:])
    distance = distance[order]
    inside = np.flatnonzero(distance <= edges[-1])
    stratum = np.searchsorted(edges, distance[inside]).astype(np.uint8)
    inside = inside[np.argsort(stratum, kind="stable")]
    ends = np.bincount(stratum, minlength=len(edges)).cumsum()
    wanted = math.ceil(count * (1 - ELSEWHERE))
    taken, size, start = [], 0, 0
    for i, end in enumerate(ends):
        quota = round(wanted * (i + 1) / len(edges)) - size
        taken.append(inside[start : min(end, start + quota)])
        size, start = size + len(taken[-1]), end
    taken.append(_beyond(distance, distance > edges[-1], wanted - size, count - wanted))
    size += len(taken[-1])
    if size < count:  # nothing is left beyond
        left = np.ones(len(order), dtype=bool)
        left[np.concatenate(taken)] = False
        taken.append(np.flatnonzero(left)[: count - size])
    return np.sort(order[np.concatenate(taken)])


def all_inside(distance: np.ndarray, of_queries: np.ndarray, count: int) -> bool:
    """Whether ``rows_at_distances`` takes every row no farther than the farthest query."""
    inside = (distance <= _of_others(of_queries).max()).sum()
    return bool(inside <= math.ceil(count * (1 - ELSEWHERE)))


def _of_others(of_queries: np.ndarray) -> np.ndarray:
    """Queries lie closer to their own mean than other rows of the same kind do."""
    return of_queries * len(of_queries) / max(1, len(of_queries) - 1)


def _beyond(distance: np.ndarray, is_beyond: np.ndarray, nearest: int, others: int) -> np.ndarray:
    """The ``nearest`` rows beyond, and the first ``others`` of the rest."""
    rows = np.flatnonzero(is_beyond)
    if nearest >= len(rows) or not nearest:
        return rows[: nearest + others]
    is_near = np.zeros(len(rows), dtype=bool)
    is_near[np.argpartition(distance[rows], nearest)[:nearest]] = True
    return np.concatenate([rows[is_near], rows[~is_near][:others]])
