"""The same table, queries and seed in memory and in files: how far apart are the MMD² of their contexts?

    python benchmarks/scale/beside_memory.py --out benchmarks/results/scale_beside_memory.json

Tables are large enough that their points are not held. A ratio below 1 means that the files did better.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from crumb import select_contexts
from crumb.files import atomic_write
from crumb.plan import Plan
from crumb.scale import pool as pools
from crumb.scale.pool import read_whole
from crumb.scale.source import open_source

QUERIES = 1_000


def timed(pool: Any, queries: pd.DataFrame, **options: Any) -> tuple[Plan, float]:
    started = time.perf_counter()
    plan = select_contexts(pool, queries, n_clusters=20, **options)
    return plan, time.perf_counter() - started


def mmd2_of(plan: Plan, pool: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """(K,) by the exact kernel in float64, whichever kernel chose the contexts."""
    mean, scale, sigma = pool.mean(axis=0), pool.std(axis=0), plan.settings["bandwidth"]
    asked = (queries - mean) / scale

    def mean_kernel(some: np.ndarray, others: np.ndarray) -> float:
        return float(np.exp(-0.5 / sigma**2 * cdist(some, others, "sqeuclidean")).mean())

    found = []
    for k, context in enumerate(plan.contexts):
        rows, mine = (pool[context] - mean) / scale, asked[plan.labels == k]
        found.append(
            mean_kernel(rows, rows) - 2 * mean_kernel(rows, mine) + mean_kernel(mine, mine)
        )
    return np.array(found)


def compare(
    folder: Path, rows: int, columns: int, kernel: str, seed: int, context_size: int
) -> dict[str, Any]:
    names = [f"x{j:02d}" for j in range(columns)]
    table = generate.write(folder, rows)
    queries = pd.DataFrame(generate.queries(QUERIES))[names]
    options = {
        "kernel": kernel,
        "context_size": context_size,
        "random_state": seed,
        "herd_batch": 1,
    }
    frame, _ = read_whole(open_source(table, columns=names))
    memory, memory_s = timed(frame, queries, **options)
    disk, disk_s = timed(table, queries, columns=names, **options)
    found = [mmd2_of(plan, frame.to_numpy(), queries.to_numpy()) for plan in (memory, disk)]
    ratios = found[1] / found[0]
    return {
        "rows": rows,
        "columns": columns,
        "kernel": kernel,
        "seed": seed,
        "context_size": context_size,
        "covered": disk.settings["pool"]["covered"],
        "same_rows": float(
            np.mean(
                [np.isin(a, b).mean() for a, b in zip(memory.contexts, disk.contexts, strict=True)]
            )
        ),
        "mmd2_memory": float(found[0].mean()),
        "mmd2_disk": float(found[1].mean()),
        "ratio_of_means": float(found[1].mean() / found[0].mean()),
        "ratio_least": float(ratios.min()),
        "ratio_most": float(ratios.max()),
        "memory_s": memory_s,
        "disk_s": disk_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--tables", nargs="+", default=["3000000x20", "6000000x10"], help="rows x columns"
    )
    parser.add_argument("--kernels", nargs="+", default=["auto", "exact"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--context-size", type=int, default=500)
    parser.add_argument(
        "--hold-nothing", action="store_true", help="smaller tables too are treated as too large"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.hold_nothing:
        pools.HELD_CELLS = pools.COVERED_CELLS = 0
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for shape, kernel, seed in product(options.tables, options.kernels, options.seeds):
            rows, columns = map(int, shape.split("x"))
            found.append(compare(Path(scratch), rows, columns, kernel, seed, options.context_size))
            print(json.dumps(found[-1]), flush=True)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
