"""``crumb serve`` under load from another process: nothing lost or mixed up, memory, latency.

    python benchmarks/online/load.py --minutes 10 --out benchmarks/results/online_load.json

Every answer is compared with ``predict_proba`` and the frozen plan of its version.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from service import Load, Outcome, Served, Training, common, frame, table

WARM_UP = 60.0  # seconds: caches of contexts, the allocator, every cluster seen


class Bench:
    """One training table, one set of queries, and the measurements."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.training = Training.write(folder, options.rows, options.clusters, options.context)
        self.queries, _ = table(options.queries, 1)

    def one_call_per_query(self) -> dict[str, float]:
        """A loop over ``predict_proba``: with a frozen plan and kept contexts, or a plan each."""
        model, some = self.training.fitted(), frame(self.queries[:2_000])
        plan = model.plan(some)
        model.predict_proba(some, plan=plan)  # the contexts are kept from here on
        rates = {}
        for kind, more in (("frozen_plan_per_s", {"plan": plan}), ("own_plan_per_s", {})):
            started, count = time.perf_counter(), 0
            while time.perf_counter() - started < self.options.seconds / 2:
                model.predict_proba(some.iloc[[count % len(some)]], **more)
                count += 1
            rates[kind] = round(count / (time.perf_counter() - started), 2)
        return rates

    def sustained(self) -> dict[str, Any]:
        """Capacity, then minutes at 80 % of it."""
        options, state = self.options, self.folder / "state"
        words = ["--refresh", "periodic", "--refresh-every", options.refresh_every]
        words += ["--keep-plans", "--state", state]
        memory: list[tuple[float, int]] = []
        log = self.folder / "load.log"
        with Served(*self.training.words(), *words, log=log) as server:
            load = Load(server.url, self.queries)

            def watch(second: float) -> None:
                memory.append((second, server.memory()))

            async def go() -> tuple[float, float]:
                await load.closed(options.clients, min(5.0, options.seconds))  # every context once
                capacity = await load.closed(options.clients, options.seconds)
                load.outcome.seconds.clear()
                rate = await load.poisson(0.8 * capacity, 60 * options.minutes, each_second=watch)
                load.close()
                return capacity, rate

            capacity, rate = asyncio.run(go())
            ready, metrics, status = server.seconds_to_ready, server.metrics(), server.stop()
        rows, passes = metrics["crumb_pass_rows_sum"], metrics["crumb_pass_rows_count"]
        return {
            "seconds_to_ready": round(ready, 1),
            "capacity_per_s": round(capacity, 1),
            "answered_per_s": round(rate, 1),
            **load.outcome.counts(),
            "exit_status": status,
            "rows_per_pass": round(rows / passes, 1),
            "refreshes": int(metrics["crumb_refreshes_total"]),
            **self.training.check(load.outcome, self.queries, state),
            **growth(memory, 60 * options.minutes),
        }

    def latency(self, timeout: float) -> dict[str, Any]:
        """Latency at a tenth, half and 80 % of what this server can do."""
        options, log = self.options, self.folder / "timeout.log"
        with Served(*self.training.words(), "--timeout", timeout, log=log) as server:

            async def go() -> dict[str, Any]:
                load = Load(server.url, self.queries)
                await load.closed(options.clients, min(5.0, options.seconds))
                capacity = await load.closed(options.clients, options.seconds / 2)
                loads = []
                for share in (0.1, 0.5, 0.8):
                    load.outcome = Outcome()
                    rate = await load.poisson(share * capacity, options.seconds)
                    found = {"share": share, "per_s": round(rate, 1)}
                    loads.append(found | load.outcome.percentiles())
                load.close()
                return {"timeout_s": timeout, "capacity_per_s": round(capacity, 1), "loads": loads}

            return asyncio.run(go())


def growth(memory: list[tuple[float, int]], seconds: float) -> dict[str, Any]:
    """Resident memory in the minute after the warm-up, and in the last one."""
    warm = min(WARM_UP, seconds / 4)
    first = [size for at, size in memory if warm <= at < 2 * warm]
    last = [size for at, size in memory if at >= seconds - warm]
    if not first or not last:
        return {}  # too short to say
    before, after = float(np.median(first)), float(np.median(last))
    every = max(1, len(memory) // 120)
    return {
        "memory_mb": {"after_warm_up": round(before / 1e6, 1), "at_the_end": round(after / 1e6, 1)},
        "memory_growth": round(after / before - 1, 4),
        "memory_trace_mb": " ".join(f"{at:.0f}s:{size / 1e6:.0f}" for at, size in memory[::every]),
    }


def main() -> None:
    parser = common.parser(
        __doc__, rows=20_000, queries=20_000, clusters=20, context=500, clients=256
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--refresh-every", type=int, default=20_000, help="queries; each refresh is a new version"
    )
    parser.add_argument("--timeouts", type=float, nargs="*", default=[0.01, 0.05, 0.1, 0.5])
    parser.add_argument("--seconds", type=float, default=20.0, help="of the shorter measurements")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(options, Path(name))
        alone, sustained = bench.one_call_per_query(), bench.sustained()
        for kind, rate in alone.items():
            times = sustained["capacity_per_s"] / rate
            sustained[f"times_{kind.removesuffix('_per_s')}"] = round(times, 1)
        found = {"one_call_per_query": alone, "sustained": sustained}
        found["timeouts"] = [bench.latency(timeout) for timeout in options.timeouts]
    common.say(found)
    common.write(options, found)


if __name__ == "__main__":
    main()
