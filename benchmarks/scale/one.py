"""One measurement in a process of its own: fit and plan of one table, as JSON.

python benchmarks/scale/one.py --table big/rows-1000000 --kernel exact
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pandas as pd
import pyarrow.dataset as ds
from memory import Peak
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier
from crumb.scale import finder
from crumb.scale import pool as pools


def floor_seconds(table: Path, columns: list[str]) -> float:
    """What pyarrow takes to read the same columns with all its threads."""
    started = time.perf_counter()
    for _ in ds.dataset(str(table)).to_batches(columns=columns):
        pass
    return time.perf_counter() - started


def warm(_: int) -> None:
    import crumb.scale.shortlist
    import crumb.scale.statistics  # noqa: F401


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--columns", type=int, default=generate.COLUMNS)
    parser.add_argument("--kernel", default="auto")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    pools.HELD_CELLS = pools.COVERED_CELLS = 0  # small tables too stay in their files
    names = [f"x{j:02d}" for j in range(options.columns)]
    # The second time with the files in the cache, as the passes.
    floors = [floor_seconds(options.table, names) for _ in range(2)]
    engine: Any = options.engine
    if engine == "ray":
        from crumb.scale.ray_engine import RayEngine

        engine = RayEngine(options={"num_cpus": options.jobs or 2})
        engine.start()
    from crumb.scale.engine import resolve_engine

    workers = resolve_engine(engine, options.jobs)
    # Processes are started and have their imports before anything is timed.
    list(workers.map(warm, range(8), 8))
    scoring: list[float] = []
    score = finder.score_shards

    def timed(*args: Any) -> Any:
        started = time.perf_counter()
        found = score(*args)
        scoring.append(time.perf_counter() - started)
        return found

    finder.score_shards = timed
    model = CrumbClassifier(
        model=LogisticRegression(), kernel=options.kernel, engine=engine, n_jobs=options.jobs
    )
    with Peak() as peak:
        started = time.perf_counter()
        model.fit(options.table, generate.TARGET, columns=names)
        fitted = time.perf_counter()
        plan = model.plan(pd.DataFrame(generate.queries(options.queries))[names])
        planned = time.perf_counter()
        model.pool_.hold(plan.contexts)
        held = time.perf_counter()
    digest = int(np.concatenate(plan.contexts).sum())  # whether two runs chose the same rows
    result = {
        "rows": model.pool_.size,
        "columns": options.columns,
        "kernel": options.kernel,
        "engine": options.engine,
        "jobs": options.jobs,
        "floor_first_s": floors[0],
        "floor_s": floors[1],
        "fit_s": fitted - started,
        "score_s": scoring[-1],
        "plan_s": planned - fitted,
        "rows_s": held - planned,
        "peak_gb": peak.bytes / 1e9,
        "mmd2": float(plan.final_mmd2.mean()),
        "candidates": plan.settings.get("candidates"),
        "covered": plan.settings["pool"]["covered"],
        "contexts": digest,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
