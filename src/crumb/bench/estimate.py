"""What a table would cost: the passes of ``main`` for one seed, and the seconds that they take on this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crumb.bench.dataset import Source
from crumb.bench.protocol import Room, share
from crumb.bench.protocols import CLUSTERS
from crumb.budget import PassCost, measure
from crumb.estimator import CrumbClassifier

QUERIES = 200
PROMPTERS = 10  # K' = ⌈N/n⌉ of MICP at n = 0.1N


def main_passes(source: Source, window: int | None = None) -> list[tuple[int, int, int]]:
    """(passes, rows of each context, queries in all) of full, kNN, CRUMB, MICP and uniform; nothing without a size."""
    if source.rows is None:
        return []
    room = Room(source.rows, QUERIES)
    pool, n = room.pool(), min(share(room.pool(), 0.1), window or room.rows)
    counts = ((1, pool), (room.T, n), (min(CLUSTERS, room.T), n), (min(PROMPTERS, room.T), n), (1, n))
    return [(passes, rows, room.T) for passes, rows in counts]


def pass_cost(model: str, device: str) -> PassCost:
    """Two sizes of passes of a model, timed on a small table; its own count of operations gives all others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 10))
    fitted = CrumbClassifier(model=model, device=device, cache_size=0).fit(X, (X[:, 0] > 0).astype(int))
    return measure(fitted._backend, fitted._pool, QUERIES, seed=0)


def seconds(source: Source, cost: PassCost) -> float | None:
    """Of the passes alone; choosing contexts comes to little beside them at these sizes."""
    passes = main_passes(source, cost.backend.window)
    if not passes or source.columns is None:
        return None
    own = replace(cost, columns=source.columns)
    return sum(own.seconds(count, rows, queries) for count, rows, queries in passes)
