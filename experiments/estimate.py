"""What a table would cost: the passes of ``main`` for one seed, and their seconds here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crumb import CrumbClassifier
from experiments.dataset import Source
from experiments.protocol import TableSize, share
from experiments.protocols import CLUSTERS

QUERIES = 200
SUPPORT_SETS = 10  # K' = ⌈N/n⌉ of MICP at n = 0.1N


def main_passes(source: Source, window: int | None = None) -> list[tuple[int, int, int]]:
    """(passes, rows of each context, queries) of full, kNN, CRUMB, MICP and uniform."""
    if source.rows is None:
        return []
    size = TableSize(source.rows, QUERIES)
    pool, T = size.pool(), size.T
    n = min(share(pool, 0.1), window or size.rows)
    counts = ((1, pool), (T, n), (min(CLUSTERS, T), n), (min(SUPPORT_SETS, T), n), (1, n))
    return [(passes, rows, T) for passes, rows in counts]


def pass_cost(model: str, device: str) -> Any:
    """Passes of two sizes, timed on a small table; the model's count of operations gives others."""
    X = np.random.default_rng(0).normal(size=(800, 10))
    fitted = CrumbClassifier(model=model, device=device, cache_size=0)
    return fitted.fit(X, (X[:, 0] > 0).astype(int)).pass_cost(QUERIES)


def seconds(source: Source, cost: Any) -> float | None:
    """Of the passes alone: choosing contexts takes little beside them at these sizes."""
    passes = main_passes(source, cost.backend.window)
    if not passes or source.columns is None:
        return None
    own = replace(cost, columns=source.columns)
    return sum(own.seconds(count, rows, queries) for count, rows, queries in passes)
