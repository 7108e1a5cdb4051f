"""How many contexts, of how many rows: seconds against loss, on tables of 1,000 to 600,000 rows.

    python benchmarks/policy.py --out benchmarks/results/policy_cpu.json
    python benchmarks/policy.py --device cuda --out benchmarks/results/policy_gpu.json
    python benchmarks/policy.py --report benchmarks/results/policy_cpu.json

A record is a table, a number of queries T, and a choice of K and n; "auto" is the policy's. "loss"
is the log-loss, or the root of the share of the variance that is left. "seconds" are those of
planning and passes; "cpu_seconds" count every thread. Records that are in the file already are not
measured again. policy.json is an earlier run: other tables and choices, one context a query.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from crumb import CrumbClassifier, CrumbRegressor
from crumb.options import Options

TABLES = (
    "credit-g", "spambase", "Bank_Customer_Churn", "electricity", "GiveMeSomeCredit",
    "sgemm_gpu_runtime", "health_insurance_cross_sell",
)  # fmt: skip
QUERIES = (50, 500, 2_000, 10_000)
A_CLUSTER = (50, 20, 10, 5, 2)  # queries
SIZES = (500, 1_000, 2_500)
ROWS = {"cpu": (2_500, 210_000), "cuda": (2_500, 1_100_000)}  # K · n, at least and at most


def choices(queries: int, device: str) -> Iterator[tuple[int, int]]:
    """K and n to try for this number of queries."""
    least, most = ROWS[device]
    for share in A_CLUSTER:
        clusters = max(1, round(queries / share))
        for size in SIZES:
            if least <= clusters * size <= most:
                yield clusters, size


def split(data: Path, name: str, queries: int, seed: int) -> tuple[Any, ...] | None:
    """Pool and queries; None: the table has fewer than twice as many rows."""
    about = {e["name"]: e for e in json.loads((data / "index.json").read_text())}[name]
    table = pd.read_parquet(data / about["file"]).dropna(subset=[about["target"]])
    if len(table) < 2 * queries:
        return None
    rows = np.random.default_rng(seed).permutation(len(table))
    regression = about["task"] == "regression"
    target = table.pop(about["target"])
    y = target.to_numpy(float) if regression else target.astype(str).to_numpy()
    asked, known = rows[:queries], rows[queries:]
    return table.iloc[known], y[known], table.iloc[asked], y[asked], regression


def loss(model: Any, X: Any, y: Any, regression: bool) -> float:
    if regression:
        return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)) / np.std(y))
    kept = np.isin(y, model.classes_)
    probabilities = np.clip(model.predict_proba(X), 1e-7, 1)
    probabilities /= probabilities.sum(1, keepdims=True)
    return float(log_loss(y[kept], probabilities[kept], labels=model.classes_))


def fit(options: argparse.Namespace, X: Any, y: Any, regression: bool) -> Any:
    kind = CrumbRegressor if regression else CrumbClassifier
    return kind(model=options.model, device=options.device).fit(X, y)


def one(model: Any, queries: Any, clusters: int | str, size: int | str) -> common.Record:
    """A fitted model, asked with another K and n."""
    asked = Options.of(n_clusters=clusters, context_size=size, device=model.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about contexts larger than the pool
        model.options_ = asked.resolve(model.pool_, model.backend_.window)
    before = time.process_time()
    found, seconds = common.timed(lambda: loss(model, *queries))
    spent = {"seconds": seconds, "cpu_seconds": time.process_time() - before}
    return {"clusters": clusters, "size": size, "loss": found, **spent}


def measure(options: argparse.Namespace, done: list[common.Record]) -> list[common.Record]:
    seen = {(r["table"], r["queries"], r["clusters"], r["size"], r["seed"]) for r in done}
    turns = product(options.tables, options.queries, range(options.seeds))
    for name, queries, seed in turns:
        pairs = [("auto", "auto"), *choices(queries, options.device)]
        todo = [pair for pair in pairs if (name, queries, *pair, seed) not in seen]
        table = split(options.data, name, queries, seed) if todo else None
        if table is None:
            continue
        X, y, *asked, regression = table
        model = fit(options, X, y, regression)
        one(model, (*asked, regression), 2, 100)  # the first is not timed
        for pair in todo:
            found = one(model, (*asked, regression), *pair)
            about = {"table": name, "rows": len(y), "columns": X.shape[1], "seed": seed}
            done.append(common.say({**about, "queries": queries, **found}))
            common.write(options, done, options.device)
    return done


def report(records: list[common.Record]) -> str:
    """Mean of the losses relative to the best choice of each table, by T, K and n."""
    best: dict[tuple[str, int, int], float] = defaultdict(lambda: np.inf)
    for r in records:
        key = r["table"], r["queries"], r["seed"]
        best[key] = min(best[key], r["loss"])
    groups: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for r in records:
        ratio = r["loss"] / best[r["table"], r["queries"], r["seed"]]
        groups[r["queries"], r["clusters"], r["size"]].append((ratio, r["seconds"]))
    rows = []
    for (queries, clusters, size), some in sorted(groups.items(), key=str):
        ratios, seconds = np.array(some).T
        rows.append([
            queries, clusters, size, len(some), f"{np.exp(np.log(ratios).mean()):.3f}",
            f"{np.median(ratios):.3f}", f"{np.mean(seconds):.1f}",
        ])  # fmt: skip
    head = ["T", "K", "n", "tables", "mean loss to the best", "median", "seconds"]
    return common.markdown(rows, head)


def main() -> None:
    parser = common.parser(__doc__, seeds=1)
    common.add_data(parser)
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--queries", nargs="+", type=int, default=QUERIES)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.report:
        print(report(json.loads(options.report.read_text())["records"]))
        return
    done = []
    if options.out and options.out.exists():
        done = json.loads(options.out.read_text())["records"]
    measure(options, done)


if __name__ == "__main__":
    main()
