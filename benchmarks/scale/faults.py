"""The fault table: what a run does when a part of it dies. Each case runs in this process, on tables of 200,000 rows.

python benchmarks/scale/faults.py
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import generate
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier
from crumb.scale import pool as pools
from crumb.scale import source as sources

ROWS = 200_000


@dataclass(frozen=True)
class Falls:
    """A task that kills its worker once."""

    inner: Any
    mark: Path

    def __call__(self, task: Any) -> Any:
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return self.inner(task)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class FallingModel(LogisticRegression):
    """A model that kills its process at its first fit."""

    def __init__(self, mark: str = ""):
        super().__init__()
        self.mark = mark

    def fit(self, X: Any, y: Any) -> FallingModel:
        if self.mark and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


def run(
    table: Path, engine: Any, model: Any, queries: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray]:
    clf = CrumbClassifier(model=model, engine=engine, n_jobs=2, context_size=300, n_clusters=8)
    clf.fit(table, generate.TARGET)
    plan = clf.plan(queries)
    return np.concatenate(plan.contexts), clf.predict_proba(queries, plan=plan)


def same(found: Any, expected: Any) -> str:
    equal = all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
    return "completes, same result" if equal else "COMPLETES WITH ANOTHER RESULT"


def cases(folder: Path) -> list[dict[str, Any]]:
    pools.HELD_CELLS = pools.COVERED_CELLS = 0
    sources.SHARD_ROWS = 20_000
    generate.GROUP_ROWS = 10_000
    table, queries = generate.write(folder, ROWS), pd.DataFrame(generate.queries(300))
    plain = LogisticRegression()
    expected = run(table, "local", plain, queries)
    found = []

    def case(engine: str, fault: str, work: Any) -> None:
        started = time.perf_counter()
        try:
            seen = work()
        except Exception as error:
            seen = f"ends with {type(error).__name__}: {' '.join(str(error).split())}".replace(
                str(folder), "…"
            )
        found.append(
            {
                "engine": engine,
                "fault": fault,
                "seen": seen,
                "seconds": time.perf_counter() - started,
            }
        )
        print(found[-1], flush=True)

    def killed(name: str, engine: Any) -> str:
        score = pools.Score
        pools.Score = lambda *args: Falls(score(*args), folder / f"{name}-killed")  # type: ignore[assignment,misc]
        pools.DiskPool._expected = lambda self, falls, kept=expected_limits: kept(self, falls.inner)  # type: ignore
        try:
            return same(run(table, engine, plain, queries), expected)
        finally:
            pools.Score, pools.DiskPool._expected = score, expected_limits  # type: ignore[misc,method-assign]

    expected_limits = pools.DiskPool._expected
    case("local", "a worker killed during scoring", lambda: killed("local", "local"))
    broken = generate.write(folder / "broken", ROWS)
    part = next(iter(broken.iterdir()))

    def poisoned(engine: Any) -> str:
        content = bytearray(part.read_bytes())
        content[4:3000] = b"\xff" * 2996
        part.write_bytes(content)
        return same(run(broken, engine, plain, queries), expected)

    case("local", "a poisoned shard", lambda: poisoned("local"))
    try:
        import ray
        from ray.cluster_utils import Cluster

        from crumb.scale.ray_engine import RayEngine
    except ImportError:
        return found
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    sys.modules["faults"] = sys.modules["__main__"]
    Falls.__module__ = FallingModel.__module__ = "faults"  # workers import it by name
    node = {"num_cpus": 1, "object_store_memory": 200_000_000}
    notice = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 300,
        "health_check_failure_threshold": 2,
    }
    cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": notice})
    second = cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    engine = RayEngine(actor_cpus=1)
    case("ray", "none: two nodes", lambda: same(run(table, engine, plain, queries), expected))
    case("ray", "a worker killed during scoring", lambda: killed("ray", engine))
    falling = FallingModel(str(folder / "actor-killed"))
    case(
        "ray",
        "an actor killed during a pass",
        lambda: same(run(table, engine, falling, queries), expected),
    )
    case("ray", "a poisoned shard", lambda: poisoned(engine))

    def removed() -> str:
        join, joined = pools.Shortlist.join, []

        def watched(self: Any, kept: Any) -> None:
            join(self, kept)
            joined.append(kept)
            if len(joined) == 2:
                cluster.remove_node(second, allow_graceful=False)

        pools.Shortlist.join = watched  # type: ignore[method-assign]
        try:
            return same(run(table, engine, plain, queries), expected)
        finally:
            pools.Shortlist.join = join  # type: ignore[method-assign]

    case("ray", "a node removed during scoring", removed)
    ray.shutdown()
    cluster.shutdown()
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        cases(Path(scratch))
