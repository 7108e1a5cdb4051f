"""How many contexts, of how many rows: seconds against loss, on tables of 1,000 to 600,000 rows.

    python benchmarks/policy.py --out benchmarks/results/policy.json
    python benchmarks/policy.py --report benchmarks/results/policy.json

A record is a table, a number of queries T, and a choice of K and n. "loss" is the log-loss, or the
root of the share of the variance that is left. "seconds" are those of planning and passes;
"cpu_seconds" count every thread. Records that are in the file already are not measured again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from crumb import CrumbClassifier, CrumbRegressor

TABLES = (
    "segment", "churn", "cpu_act", "adult", "houses", "electricity", "physiochemical_protein",
    "diamonds", "Diabetes130US", "GiveMeSomeCredit", "SDSS17_ugriz", "airbnb_nyc_2019",
    "airline_passenger_satisfaction", "poker_hand_100k", "sgemm_gpu_runtime", "skin_segmentation",
    "census_income_kdd", "donors_adbench",
)  # fmt: skip
QUERIES = (500, 50)
A_CLUSTER = (25, 10, 5)  # queries
SIZES = (250, 500, 1_000, 2_000)
MOST_ROWS = 110_000  # K · n of one measurement


def choices(queries: int) -> Iterator[tuple[int, int]]:
    """K and n to try for this number of queries."""
    for size in SIZES:
        for share in A_CLUSTER:
            clusters = max(1, round(queries / share))
            if clusters * size <= MOST_ROWS:
                yield clusters, size


def split(data: Path, name: str, queries: int, seed: int) -> tuple[Any, Any, Any, Any, bool]:
    about = {e["name"]: e for e in json.loads((data / "index.json").read_text())}[name]
    table = pd.read_parquet(data / about["file"]).dropna(subset=[about["target"]])
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


def one(model: str, table: tuple[Any, ...], clusters: int | str, size: int | str) -> common.Record:
    X, y, asked, answers, regression = table
    kind = CrumbRegressor if regression else CrumbClassifier
    fitted = kind(model=model, n_clusters=clusters, context_size=size).fit(X, y)
    before = time.process_time()
    found, seconds = common.timed(lambda: loss(fitted, asked, answers, regression))
    spent = {"seconds": seconds, "cpu_seconds": time.process_time() - before}
    return {"clusters": clusters, "size": size, "loss": found, **spent}


def measure(options: argparse.Namespace, done: list[common.Record]) -> list[common.Record]:
    seen = {(r["table"], r["queries"], r["clusters"], r["size"], r["seed"]) for r in done}
    for name in options.tables:
        for queries in options.queries:
            for seed in range(options.seeds):
                todo = [
                    pair
                    for pair in [*choices(queries), ("auto", "auto")]
                    if (name, queries, *pair, seed) not in seen
                ]
                if not todo:
                    continue
                X, y, asked, answers, regression = split(options.data, name, queries, seed)
                table = X, y, asked, answers, regression
                for pair in todo:
                    found = one(options.model, table, *pair)
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
        groups[r["queries"], r["clusters"], r["size"]].append((ratio, r["cpu_seconds"]))
    rows = []
    for (queries, clusters, size), some in sorted(groups.items(), key=str):
        ratios, seconds = np.array(some).T
        rows.append([
            queries, clusters, size, len(some), f"{np.exp(np.log(ratios).mean()):.3f}",
            f"{np.median(ratios):.3f}", f"{np.mean(seconds):.1f}",
        ])  # fmt: skip
    head = ["T", "K", "n", "tables", "mean loss to the best", "median", "CPU seconds"]
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
