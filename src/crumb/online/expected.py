"""What a stream's plan is made for: the queries that came, and what may come next.

A frozen plan answers other queries than those it was made for, and a drifting stream soon asks
where none of them was. So the plan is also made for the rows of the pool nearest to them, and for a
sample of the pool: whatever comes, some context is near. How much that helps: docs/online.md.
"""

from __future__ import annotations

import numpy as np

from crumb.rng import generator
from crumb.selection.finder import nearest_rows

NEIGHBOURS = 4  # of each query
MOST_DISTANCES = 500_000_000  # between queries and the pool: some seconds


def expected_queries(points: np.ndarray, pool: np.ndarray, seed: int) -> np.ndarray:
    """The queries, their neighbours in the pool, and as many random rows of the pool."""
    rng = generator(seed, "expected queries")
    some = points
    if len(points) * len(pool) > MOST_DISTANCES:
        some = points[rng.permutation(len(points))[: max(1, MOST_DISTANCES // len(pool))]]
    near = np.unique(nearest_rows(pool, some, NEIGHBOURS))
    drawn = rng.permutation(len(pool))[: len(points)]
    return np.concatenate([points, pool[near], pool[drawn]])
