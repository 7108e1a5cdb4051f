"""crumb serve under load from another process: nothing lost or mixed up, memory flat, throughput, latency.

python benchmarks/online/load.py --minutes 10 --out benchmarks/results/online_load.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from client import Load, Outcome
from served import Served, fitted, names, table, write_train

from crumb import Plan
from crumb.files import atomic_write

TOLERANCE = 1e-5
WARM_UP = 60.0  # seconds: caches of contexts, the allocator, every cluster seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=20_000, help="of the training table")
    parser.add_argument(
        "--queries", type=int, default=20_000, help="different ones; they come again and again"
    )
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--context", type=int, default=500)
    parser.add_argument("--clients", type=int, default=256, help="that measure the capacity")
    parser.add_argument(
        "--refresh-every", type=int, default=20_000, help="queries; each refresh is a new version"
    )
    parser.add_argument("--timeouts", type=float, nargs="*", default=[0.01, 0.05, 0.1, 0.5])
    parser.add_argument("--seconds", type=float, default=20.0, help="of the shorter measurements")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = run(options, Path(name))
    print(json.dumps(result, indent=1))
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(result, indent=1).encode())


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    train = folder / "train.parquet"
    write_train(train, options.rows)
    queries, _ = table(options.queries, 1)
    result: dict[str, Any] = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "settings": {k: v for k, v in vars(options).items() if k != "out"},
        "one_call_per_query": one_call_per_query(train, queries, options),
    }
    result["sustained"] = sustained(train, queries, options, folder)
    alone = result["one_call_per_query"]
    for kind in ("frozen_plan_per_s", "own_plan_per_s"):
        result["sustained"][f"times_{kind.removesuffix('_per_s')}"] = round(
            result["sustained"]["capacity_per_s"] / alone[kind], 1
        )
    result["timeouts"] = [
        latency(train, queries, options, folder, timeout) for timeout in options.timeouts
    ]
    return result


def words(train: Path, options: argparse.Namespace) -> list[Any]:
    chosen = [
        "--train",
        train,
        "--target",
        "y",
        "--n-clusters",
        options.clusters,
        "--context-size",
        options.context,
    ]
    return [*chosen, "--log-level", "warning"]


def one_call_per_query(
    train: Path, queries: np.ndarray, options: argparse.Namespace
) -> dict[str, float]:
    """What a loop over ``predict_proba`` does: with a frozen plan whose contexts are kept, and with a plan each."""
    model = fitted(train, options.clusters, options.context)
    frame = _frame(queries[:2_000])
    plan = model.plan(frame)
    model.predict_proba(frame, plan=plan)  # the contexts are kept from here on
    rates = {}
    for kind, more in (("frozen_plan_per_s", {"plan": plan}), ("own_plan_per_s", {})):
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < options.seconds / 2:
            model.predict_proba(frame.iloc[count % 2_000 : count % 2_000 + 1], **more)
            count += 1
        rates[kind] = round(count / (time.perf_counter() - started), 2)
    return rates


def sustained(
    train: Path, queries: np.ndarray, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Capacity, then minutes at 80 % of it; every answer is held against the plan of its version."""
    state = folder / "state"
    refresh = [
        "--refresh",
        "periodic",
        "--refresh-every",
        options.refresh_every,
        "--keep-plans",
        "--state",
        state,
    ]
    memory: list[tuple[float, int]] = []
    with Served(*words(train, options), *refresh, log=folder / "load.log") as server:
        load = Load(server.url, queries)

        async def go() -> tuple[float, float]:
            await load.closed(options.clients, min(5.0, options.seconds))  # every context once
            capacity = await load.closed(options.clients, options.seconds)
            load.outcome.seconds.clear()
            rate = await load.poisson(
                0.8 * capacity,
                60 * options.minutes,
                each_second=lambda s: memory.append((s, server.memory())),
            )
            load.close()
            return capacity, rate

        capacity, rate = asyncio.run(go())
        ready, metrics, status = server.seconds_to_ready, server.metrics(), server.stop()
    out = load.outcome
    return {
        "seconds_to_ready": round(ready, 1),
        "capacity_per_s": round(capacity, 1),
        "answered_per_s": round(rate, 1),
        "latency_ms": out.percentiles(),
        "requests": out.sent,
        "answers": len(out.rows),
        "refused": out.refused,
        "lost": out.sent - len(out.rows) - out.refused - sum(out.other.values()),
        "broken_connections": out.broken,
        "other_statuses": out.other,
        "mixed_up_ids": out.mixed_up,
        "exit_status": status,
        "rows_per_pass": round(
            metrics["crumb_pass_rows_sum"] / metrics["crumb_pass_rows_count"], 1
        ),
        "refreshes": int(metrics["crumb_refreshes_total"]),
        **checked(out, train, queries, options, state),
        **growth(memory, 60 * options.minutes),
    }


def checked(
    out: Outcome, train: Path, queries: np.ndarray, options: argparse.Namespace, state: Path
) -> dict[str, Any]:
    """Every answer against ``predict_proba`` with the frozen plan of its version, in this process."""
    model = fitted(train, options.clusters, options.context)
    rows, versions, values = np.array(out.rows), np.array(out.versions), np.array(out.values)
    wrong, largest = 0, 0.0
    for version in np.unique(versions):
        mine = versions == version
        asked, place = np.unique(rows[mine], return_inverse=True)
        plan = Plan.load(state / f"plan-{version}.crumb")
        wanted = model.predict_proba(_frame(queries[asked]), plan=plan)[place]
        gap = np.abs(values[mine] - wanted).max(axis=1)
        wrong += int((gap > TOLERANCE).sum())
        largest = max(largest, float(gap.max()))
    return {
        "versions": len(np.unique(versions)),
        "wrong_answers": wrong,
        "largest_difference": largest,
    }


def growth(memory: list[tuple[float, int]], seconds: float) -> dict[str, Any]:
    """Resident memory in the minute after the warm-up, and in the last one."""
    warm = min(WARM_UP, seconds / 4)
    first = [size for at, size in memory if warm <= at < 2 * warm]
    last = [size for at, size in memory if at >= seconds - warm]
    before, after = float(np.median(first)), float(np.median(last))
    every = max(1, len(memory) // 120)
    return {
        "memory_mb": {"after_warm_up": round(before / 1e6, 1), "at_the_end": round(after / 1e6, 1)},
        "memory_growth": round(after / before - 1, 4),
        "memory_trace_mb": " ".join(f"{at:.0f}s:{size / 1e6:.0f}" for at, size in memory[::every]),
    }


def latency(
    train: Path, queries: np.ndarray, options: argparse.Namespace, folder: Path, timeout: float
) -> dict[str, Any]:
    """Latency against ``timeout``, at a tenth, half and 80 % of what this server can do."""
    with Served(*words(train, options), "--timeout", timeout, log=folder / "timeout.log") as server:

        async def go() -> dict[str, Any]:
            load = Load(server.url, queries)
            await load.closed(options.clients, min(5.0, options.seconds))
            capacity = await load.closed(options.clients, options.seconds / 2)
            found: dict[str, Any] = {
                "timeout_s": timeout,
                "capacity_per_s": round(capacity, 1),
                "loads": [],
            }
            for share in (0.1, 0.5, 0.8):
                load.outcome = Outcome()
                rate = await load.poisson(share * capacity, options.seconds)
                found["loads"].append(
                    {"share": share, "per_s": round(rate, 1), **load.outcome.percentiles()}
                )
            load.close()
            return found

        return asyncio.run(go())


def _frame(queries: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(queries, columns=names())


if __name__ == "__main__":
    main()
