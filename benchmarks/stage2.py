"""Stage 2 on a CPU: the textbook loop of the paper against this library, on clustered tables.

    python benchmarks/stage2.py --out benchmarks/results/stage2.json

The textbook loop goes cluster by cluster and row by row in numpy, with the running sum kept (exact kernel, B = 1). All
ways get the same clusters of queries and the same σ; seconds are one after the other in one run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_blobs

from crumb.certified import herd_certified
from crumb.clustering import cluster
from crumb.files import atomic_write
from crumb.herding import herd
from crumb.kernel import RandomFourierFeatures, Rbf, median_bandwidth
from crumb.objective import ExactObjective, RffObjective
from crumb.parallel import block_threads


def textbook(pool: np.ndarray, queries: np.ndarray, labels: np.ndarray, sigma: float, n: int) -> list[np.ndarray]:
    norms, contexts = (pool**2).sum(1), []

    def kernel(x: np.ndarray) -> np.ndarray:
        return np.exp((2 * (pool @ x) - norms - x @ x) / (2 * sigma**2))

    for k in range(labels.max() + 1):
        members = queries[labels == k]
        cross = np.mean([kernel(q) for q in members], axis=0)
        redundancy, chosen = np.zeros(len(pool)), []
        for t in range(n):
            score = -2 * cross + 2 * redundancy / (t + 1)
            score[chosen] = np.inf
            chosen.append(int(score.argmin()))
            redundancy += kernel(pool[chosen[-1]])
        contexts.append(np.array(chosen))
    return contexts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", nargs="*", default=[], help="ways to leave out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    total = options.rows + options.queries
    X, _ = make_blobs(total, options.columns, centers=options.clusters, random_state=options.seed)
    X = (X - X.mean(0)) / X.std(0)
    pool, queries = X[options.queries :], X[: options.queries]
    sigma = median_bandwidth(pool, np.random.default_rng(0))
    labels, centroids = cluster(queries, options.clusters, options.seed)
    P, Q, L, n = torch.from_numpy(pool), torch.from_numpy(queries), torch.from_numpy(labels), options.budget
    exact = Rbf(sigma)

    def rff(dim: int, batch: int) -> Callable[[Any], list[np.ndarray]]:
        features = RandomFourierFeatures.draw(options.columns, dim, sigma, np.random.default_rng(0))
        return lambda blocks: [
            h.indices
            for h in herd(RffObjective(features.like(P), P, Q, L, len(centroids), blocks), n, batch, map_blocks=blocks)
        ]

    ways: dict[str, Callable[[Any], list[np.ndarray]]] = {
        "certified": lambda blocks: [h.indices for h in herd_certified(exact, P, Q, L, n, blocks)[0]],
        "exact": lambda blocks: [
            h.indices for h in herd(ExactObjective(exact, P, Q, L, len(centroids), blocks), n, map_blocks=blocks)
        ],
        "rff 64, batch 50": rff(64, 50),
        "rff 256, batch 10": rff(256, 10),
        "textbook": lambda blocks: textbook(pool, queries, labels, sigma, n),
    }
    records: list[dict[str, Any]] = []
    for name, way in ways.items():
        if name in options.skip:
            continue
        with block_threads(None) as blocks:
            started = time.perf_counter()
            contexts = way(blocks)
            seconds = time.perf_counter() - started
        mmd2 = np.mean([exact.mmd2(Q[k == L], P[rows]) for k, rows in enumerate(contexts)])
        records.append({"way": name, "seconds": round(seconds, 3), "mmd2": float(mmd2), "contexts": contexts})
        print(f"{name}: {seconds:.2f} s, mean MMD² {mmd2:.3g}", flush=True)
    reference = records[-1]
    for record in records:
        record["same_choices"] = float(
            np.mean([np.array_equal(a, b) for a, b in zip(record["contexts"], reference["contexts"], strict=True)])
        )
        record["times_faster"] = round(reference["seconds"] / record["seconds"], 1)
    for record in records:
        del record["contexts"]
        print(record)
    if options.out:
        settings = {key: value for key, value in vars(options).items() if key not in ("out", "skip")}
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
