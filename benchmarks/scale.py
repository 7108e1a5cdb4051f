"""Pools in Parquet: each pass beside pyarrow's mere read, memory, growth with N, engines.

    python benchmarks/scale.py --out benchmarks/results/scale.json                (half an hour)
    python benchmarks/scale.py --rows 50000000 --kernels auto --jobs 4 8 16 --out ….json
    python benchmarks/scale.py --beside-memory 3000000x20 6000000x10 --kernels auto \\
        --out benchmarks/results/scale_beside_memory.json

Tables are written under --folder (9 GB for 50 million rows) and removed afterwards. Every
measurement runs in a process of its own. With --beside-memory the same table, queries and seed are
planned in memory and in files; a ratio below 1 means that the files did better.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
import pyarrow.dataset as ds
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier, Plan, select_contexts
from crumb.pfn import Backend
from crumb.scale import pool as pools
from crumb.scale.engine import Engine, resolve_engine

KERNELS: dict[str, dict[str, Any]] = {
    "auto": {"kernel": "auto"},
    "rff": {"kernel": "rff"},
    "exact": {"kernel": "exact"},
}


class Watched(Engine):
    """Another engine, and the seconds that its passes over the files took."""

    def __init__(self, inner: Engine):
        self.inner, self.seconds = inner, 0.0

    def map(
        self, function: Callable[[Any], Any], tasks: Iterable[Any], total: int
    ) -> Iterator[Any]:
        started = time.perf_counter()
        yield from self.inner.map(function, tasks, total)
        self.seconds += time.perf_counter() - started

    def backend(self, backend: Backend) -> Backend:
        return self.inner.backend(backend)


def stay_in_files() -> None:
    """Treat small tables too as too large to be held."""
    pools.HELD_CELLS = pools.COVERED_CELLS = 0


def started_engine(name: str, jobs: int | None) -> Watched:
    """Its processes are there, with their imports."""
    if name == "ray":
        import ray

        ray.init(num_cpus=jobs or 2, include_dashboard=False, log_to_driver=False)
    watched = Watched(resolve_engine(name, jobs))
    list(watched.map(len, [(pools.FilePool,)] * 8, 8))  # a worker imports what a task names
    return watched


def read_seconds(table: Path) -> float:
    """What pyarrow takes to read the columns and do nothing with them, with all its threads."""

    def read() -> None:
        for _ in ds.dataset(str(table)).to_batches(columns=common.NAMES):
            pass

    return common.timed(read)[1]


def one(table: Path, queries: int, kernel: str, engine_name: str, jobs: int | None) -> Any:
    stay_in_files()
    first, cached = read_seconds(table), read_seconds(table)
    engine = started_engine(engine_name, jobs)
    model = CrumbClassifier(
        model=LogisticRegression(), engine=engine, n_jobs=jobs, **KERNELS[kernel]
    )
    with common.PeakMemory(family=True, every=0.1) as memory:
        _, fit_s = common.timed(lambda: model.fit(table, common.TARGET))
        engine.seconds = 0.0
        plan, plan_s = common.timed(lambda: model.plan(common.grouped_queries(queries)))
        score_s = engine.seconds
        _, rows_s = common.timed(lambda: model.pool_.hold(plan.contexts))
    record = {"rows": model.pool_.size, "queries": queries, "kernel": kernel}
    record |= {"engine": engine_name, "jobs": jobs, "floor_first_s": first, "floor_s": cached}
    record |= {"fit_s": fit_s, "score_s": score_s, "plan_s": plan_s, "rows_s": rows_s}
    return record | {
        "peak_gb": memory.peak / 1e9,
        "mmd2": float(plan.final_mmd2.mean()),
        "candidates": plan.settings.get("candidates"),
        "contexts": int(np.concatenate(plan.contexts).sum()),  # did two runs choose the same rows?
    }


def measure(folder: Path, options: argparse.Namespace) -> list[common.Record]:
    """Every kernel at every size, then the engines at one size."""
    records = []
    for rows in options.rows:
        table = common.write_grouped(folder, rows)
        for kernel, jobs in product(options.kernels, options.jobs):
            words = (table, options.queries, kernel, "local", jobs)
            records.append(common.say(common.in_own_process(one, *words)))
        for engine in options.engines if rows == options.engine_rows else ():
            words = (table, options.queries, "auto", engine, 2)
            records.append(common.say(common.in_own_process(one, *words)))
        shutil.rmtree(table)
    return records


def mmd2_of(plan: Plan, pool: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """(K,) by the exact kernel in float64, whichever kernel chose the contexts."""
    mean, scale, sigma = pool.mean(axis=0), pool.std(axis=0), plan.settings["bandwidth"]
    queries = (queries - mean) / scale

    def kernel(some: np.ndarray, others: np.ndarray) -> float:
        return float(np.exp(-0.5 / sigma**2 * cdist(some, others, "sqeuclidean")).mean())

    found = []
    for k, context in enumerate(plan.contexts):
        rows, mine = (pool[context] - mean) / scale, queries[plan.labels == k]
        found.append(kernel(rows, rows) - 2 * kernel(rows, mine) + kernel(mine, mine))
    return np.array(found)


def beside_memory(
    folder: Path, shape: str, kernel: str, seed: int, options: argparse.Namespace
) -> common.Record:
    rows, columns = map(int, shape.split("x"))
    names, part = common.NAMES[:columns], 1_000_000
    table = common.write_grouped(folder, rows)
    frame = pd.concat(
        common.grouped_rows(i, min(part, rows - start))[names]
        for i, start in enumerate(range(0, rows, part))
    )
    queries = common.grouped_queries(options.queries)[names]
    more = {**KERNELS[kernel], "context_size": 500, "random_state": seed, "herd_batch": 1}
    memory, memory_s = common.timed(lambda: select_contexts(frame, queries, **more))
    files, files_s = common.timed(lambda: select_contexts(table, queries, columns=names, **more))
    plans = (memory, files)
    in_memory, in_files = (mmd2_of(plan, frame.to_numpy(), queries.to_numpy()) for plan in plans)
    ratios = in_files / in_memory
    record = {"rows": rows, "columns": columns, "kernel": kernel, "seed": seed}
    record |= {"mmd2_memory": float(in_memory.mean()), "mmd2_files": float(in_files.mean())}
    record["ratio_of_means"] = record["mmd2_files"] / record["mmd2_memory"]
    record |= {"ratio_least": float(ratios.min()), "ratio_most": float(ratios.max())}
    return common.say(record | {"memory_s": memory_s, "files_s": files_s})


def main() -> None:
    parser = common.parser(__doc__, queries=1_000, engine_rows=10_000_000)
    sizes = [1_000_000, 5_000_000, 10_000_000, 50_000_000]
    parser.add_argument("--rows", type=int, nargs="+", default=sizes)
    parser.add_argument("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--jobs", type=int, nargs="+", default=[None], help="processes")
    parser.add_argument("--engines", nargs="*", default=["local", "ray"])
    parser.add_argument("--beside-memory", nargs="+", metavar="ROWSxCOLUMNS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="with --beside-memory")
    parser.add_argument(
        "--hold-nothing", action="store_true", help="with --beside-memory: small tables too"
    )
    parser.add_argument("--folder", type=Path, help="where the tables are written")
    options = parser.parse_args()
    if options.hold_nothing:
        stay_in_files()
    with tempfile.TemporaryDirectory(prefix="crumb-scale-", dir=options.folder) as name:
        if options.beside_memory:
            todo = product(options.beside_memory, options.kernels, options.seeds)
            records = [beside_memory(Path(name), *words, options) for words in todo]
        else:
            records = measure(Path(name), options)
    common.write(options, records)


if __name__ == "__main__":
    main()
