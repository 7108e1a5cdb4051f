"""Stages 1 and 2 for hundreds of contexts: how long do they take beside the passes?

    python benchmarks/many.py --data FOLDER --out benchmarks/results/many.json
    python benchmarks/many.py --data FOLDER --against OTHER_CHECKOUT --out ….json

Real tables, ten queries a cluster, embedded network. Other code is measured in turn, in processes
of its own. On a busy machine CPU seconds say more than seconds. MMD² is compared with that of exact
herding over the whole pool for the first clusters. The seconds of all passes follow from the passes
of some contexts, the quickest of several times: threads that wait for each other suffer most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch

from crumb import CrumbClassifier, Plan
from crumb.herding.candidates import CandidateObjective
from crumb.herding.greedy import Rbf, herd

CASES = ("500x50x1000", "1000x100x1000", "2000x200x1000", "2000x200x500", "10000x1000x500")
EXACT, PASSES = 10, 6  # clusters that are herded over the whole pool; contexts whose pass is timed


def clocks(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What the work gives, its seconds, and those of the CPU."""
    before = time.process_time()
    result, seconds = common.timed(work)
    return result, seconds, time.process_time() - before


def exact_mmd2(plan: Plan, points: np.ndarray, queries: np.ndarray, n: int) -> list[float]:
    """Of the contexts of the first clusters, herded over all rows."""
    kernel, found = Rbf(plan.settings["bandwidth"]), []
    for k in range(min(EXACT, plan.n_clusters)):
        members = torch.from_numpy(queries[plan.labels == k])
        rows, mine = torch.from_numpy(points) - members.mean(0), members - members.mean(0)
        cross, within = kernel.row_means(rows, mine), kernel.mean_within(mine)[None]
        (context,) = herd(CandidateObjective(kernel, [rows], [cross], within, np.float32), n)
        found.append(float(context.mmd2[-1]))
    return found


def one(table: str, case: str, options: argparse.Namespace) -> common.Record:
    """One table and case with the code that is on the path."""
    queries, clusters, n = map(int, case.split("x"))
    X, y = common.read_table(options.data, common.index(options.data)[table])
    order = np.random.default_rng(0).permutation(len(X))
    asked, rows = X.iloc[order[:queries]], order[queries : queries + options.rows]
    model = CrumbClassifier(
        n_clusters=clusters, context_size=n, device="cpu", cache_size=0, min_per_class=0
    ).fit(X.iloc[rows], y.iloc[rows])
    points = model.encode(asked)[1]
    plan, seconds, cpu = clocks(lambda: model.plan_points(points, evidence=False))
    final = plan.final_mmd2
    record: common.Record = {"table": table, "rows": len(rows), "columns": points.shape[1]}
    record |= {"queries": queries, "clusters": plan.n_clusters, "n": n}
    record |= {"seconds": seconds, "cpu_seconds": cpu, "kernel": plan.settings["kernel"]}
    record |= {"candidates": plan.settings.get("candidates"), "mmd2": float(final.mean())}
    record["mmd2_median"] = float(np.median(final))
    if plan.settings["kernel"] == "rff":  # its own estimate is none of the exact kernel
        kernel = Rbf(plan.settings["bandwidth"])
        exactly = [
            kernel.mmd2(
                *(torch.from_numpy(p) for p in (points[plan.labels == k], model.pool_.points[c]))
            )
            for k, c in enumerate(plan.contexts)
        ]
        record["mmd2"], record["mmd2_median"] = float(np.mean(exactly)), float(np.median(exactly))
        final = np.array(exactly)
    if options.exact:
        exact = exact_mmd2(plan, model.pool_.points, points, n)
        ratios = final[: len(exact)] / exact
        record["of_exact"] = float(final[: len(exact)].sum() / np.sum(exact))
        record["of_exact_median"] = float(np.median(ratios))
        plan.settings["contexts_per_query"] = 1  # as many passes as clusters
        some = plan.labels < PASSES
        model.predict_proba(asked[:1], plan=plan)  # the network is loaded
        times = [clocks(lambda: model.predict_proba(asked[some], plan=plan)) for _ in range(4)]
        each = plan.n_clusters / len(np.unique(plan.labels[some]))
        record["passes_seconds"] = each * min(seconds for _, seconds, _ in times)
        record["passes_cpu_seconds"] = each * min(cpu for _, _, cpu in times)
    return record


def elsewhere(checkout: Path, table: str, case: str, options: argparse.Namespace) -> common.Record:
    """The same with the code of a checkout."""
    path = os.pathsep.join(map(str, (checkout / "src", checkout)))
    words = [sys.executable, __file__, "--one", "--data", options.data, "--rows", options.rows]
    words += ["--tables", table, "--cases", case, *(["--exact"] if options.exact else [])]
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run(
        list(map(str, words)), env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = common.parser(__doc__, rows=117_000)
    common.add_data(parser)
    parser.add_argument("--tables", default="electricity,airline_passenger_satisfaction")
    parser.add_argument("--cases", nargs="+", default=CASES, help="queries x clusters x n")
    parser.add_argument("--against", type=Path, help="a checkout of other code")
    parser.add_argument("--exact", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.tables, options.cases[0], options), default=str))
        return
    checkouts = {"this": Path(__file__).resolve().parents[1]}
    if options.against is not None:
        checkouts["before"] = options.against.resolve()
    records = []
    for table in options.tables.split(","):
        for case in options.cases:
            for code, checkout in checkouts.items():
                found = elsewhere(checkout, table, case, options)
                records.append(common.say({"code": code} | found))
    common.write(options, records)


if __name__ == "__main__":
    main()
