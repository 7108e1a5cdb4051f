"""Stage 2 on real tables: how near do candidates and random features come to exact herding, and how fast?

    python benchmarks/stage2_real.py --data FOLDER --out benchmarks/results/stage2_real.json

FOLDER holds Parquet files and an index.json. 1,000 queries in 20 clusters, contexts of 500 rows, everything else a pool
row; mean MMD² (exact kernel, weighted by queries) as a multiple of that of exact herding.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crumb import Plan, select_contexts
from crumb.files import atomic_write
from crumb.herding.kernel import Rbf

TABLES = (
    "electricity,diamonds,adult,airline_passenger_satisfaction,GiveMeSomeCredit,poker_hand_100k,"
    "diabetes_brfss2015,census_income_kdd,heart_brfss2020,health_insurance_cross_sell"
)
WAYS: dict[str, dict[str, Any]] = {
    "exact": {"kernel": "exact"},
    "auto": {"kernel": "auto"},
    "candidates": {"kernel": "candidates"},
    "rff 256, batch 10": {"kernel": "rff", "rff_dim": 256, "herd_batch": 10},
    "rff 64, batch 50": {"kernel": "rff", "rff_dim": 64, "herd_batch": 50},
}


def mean_mmd2(plan: Plan) -> float:
    import torch

    kernel = Rbf(plan.settings["bandwidth"])
    pool, queries = torch.from_numpy(plan._pool).double(), torch.from_numpy(plan._queries).double()
    values = [
        float(kernel.prefix_mmd2(pool[rows], queries[plan.labels == k])[-1])
        for k, rows in enumerate(plan.contexts)
    ]
    return float(np.average(values, weights=np.bincount(plan.labels)))


def measure(name: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    frame = frame.sample(frac=1.0, random_state=0)
    records: list[dict[str, Any]] = []
    for way, options in WAYS.items():
        started = time.perf_counter()
        plan = select_contexts(
            frame[1_000:], frame[:1_000], context_size=500, device="cpu", **options
        )
        record = {"table": name, "rows": len(frame) - 1_000, "columns": frame.shape[1], "way": way}
        record |= {
            "seconds": round(time.perf_counter() - started, 2),
            "kernel": plan.settings["kernel"],
        }
        record |= {"mmd2": mean_mmd2(plan), "candidates": plan.settings.get("candidates")}
        record["mmd2_ratio"] = round(
            record["mmd2"] / (records[0] if records else record)["mmd2"], 3
        )
        print(record, flush=True)
        records.append(record)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    index = {
        entry["name"]: entry for entry in json.loads((options.data / "index.json").read_text())
    }
    records = []
    for name in options.tables.split(","):
        frame = pd.read_parquet(options.data / index[name]["file"]).drop(
            columns=index[name]["target"]
        )
        records += measure(name, frame)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps({"records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
