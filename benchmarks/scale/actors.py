"""Many cores and a GPU: a pool in files with processes and with Ray, passes here and on an actor that has the GPU.

    python benchmarks/scale/actors.py --rows 50000000 --jobs 16 8 4 --out benchmarks/results/scale_actors.json

Needs Ray and a GPU. The table is written to a folder of its own and removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pandas as pd
import ray
from one import floor_seconds
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier
from crumb.files import atomic_write
from crumb.scale import pool as pools
from crumb.scale.ray_engine import RayEngine

NAMES = [f"x{j:02d}" for j in range(generate.COLUMNS)]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    return work(), time.perf_counter() - started


def write(folder: Path, rows: int) -> Path:
    """As ``generate.write``, with all cores."""
    parts = range(-(-rows // generate.PART_ROWS))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(
            pool.map(
                generate.write_part, [folder] * len(parts), parts, [generate.PART_ROWS] * len(parts)
            )
        )
    return folder


class Scoring:
    """The seconds that the last pass for a plan took."""

    def __init__(self) -> None:
        self.seconds, score = 0.0, pools.DiskPool._score

        def watched(*args: Any) -> Any:
            found, self.seconds = timed(lambda: score(*args))
            return found

        pools.DiskPool._score = watched  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, nargs="+", default=[16, 8, 4])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []

    def say(**facts: Any) -> None:
        found.append(facts)
        print(json.dumps(facts), flush=True)

    scoring, queries = Scoring(), pd.DataFrame(generate.queries(options.queries))

    def fit_and_plan(estimator: Any, asked: pd.DataFrame, **facts: Any) -> Any:
        for again in (False, True):  # the first time processes are started as well
            _, fit_s = timed(lambda: estimator.fit(table, generate.TARGET))
            plan, plan_s = timed(lambda: estimator.plan(asked))
            digest = int(np.concatenate(plan.contexts).sum())
            say(
                **facts,
                again=again,
                fit_s=fit_s,
                score_s=scoring.seconds,
                plan_s=plan_s,
                contexts=digest,
            )
        return plan

    with tempfile.TemporaryDirectory() as scratch:
        table = write(Path(scratch), options.rows)
        floor_seconds(table, NAMES)
        say(rows=options.rows, cores=os.cpu_count(), floor_s=floor_seconds(table, NAMES))
        for jobs in options.jobs:
            fit_and_plan(
                CrumbClassifier(model=LogisticRegression(), n_jobs=jobs),
                queries[:1_000],
                engine="local",
                jobs=jobs,
            )
        local = CrumbClassifier(device="cuda")
        plan = fit_and_plan(local, queries, engine="local", device="cuda")
        engine = RayEngine(options={"num_gpus": 1})
        engine.start()
        remote = CrumbClassifier(device="cuda", engine=engine)
        other = fit_and_plan(remote, queries, engine="ray", device="cuda")
        expected = local.predict_proba(queries, plan=plan)

        def ask(what: str, estimator: Any, its_plan: Any) -> None:
            answers, seconds = timed(lambda: estimator.predict_proba(queries, plan=its_plan))
            say(
                passes=what,
                seconds=seconds,
                largest_difference=float(np.abs(answers - expected).max()),
            )

        ask("here, warm", local, plan)
        ask("on an actor that has to start", remote, other)
        ask("on an actor, warm", remote, other)
        ray.kill(remote._backend._actors[0], no_restart=False)
        ask("on an actor that was killed", remote, other)
        ray.shutdown()
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
