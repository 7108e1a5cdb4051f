"""Does it matter for the answers which rows were herded among? Log-loss and AUC beside MMD², on large real tables.

    python benchmarks/candidates_answers.py --data FOLDER --device cuda --out benchmarks/results/candidates_answers.json

FOLDER holds Parquet files and an index.json. 20 clusters, contexts of 1,000 rows, the embedded network. Contexts come
from rows drawn by distance alone, from these and the queries' nearest rows, from all rows, and from a uniform draw.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss, roc_auc_score

from crumb import CrumbClassifier
from crumb.files import atomic_write
from crumb.herding import candidates

TABLES = (
    "airline_passenger_satisfaction,beMTPL97,census_income_kdd,diabetes_brfss2015,donors_adbench,GiveMeSomeCredit,"
    "health_insurance_cross_sell,heart_brfss2020,kddcup99_10pct_dedup,poker_hand_100k,SDSS17_ugriz,skin_segmentation"
)
BESIDE = candidates.neighbours_beside
WAYS: dict[str, dict[str, Any]] = {
    "by distance": {"kernel": "candidates"},
    "with neighbours": {"kernel": "candidates"},
    "exact": {"kernel": "exact"},
    "uniform": {"strategy": "uniform"},
}


def scores(labels: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    present = np.isin(classes, labels)
    found = {"log_loss": float(log_loss(labels, proba, labels=classes))}
    kept = proba[:, present] / proba[:, present].sum(axis=1, keepdims=True)
    if present.sum() == 2:
        found["auc"] = float(roc_auc_score(labels, kept[:, 1]))
    else:
        found["auc"] = float(
            roc_auc_score(labels, kept, multi_class="ovr", labels=classes[present])
        )
    return found


def measure(
    name: str, frame: pd.DataFrame, target: str, queries: int, seed: int, device: str
) -> list[dict[str, Any]]:
    frame = frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    features, labels = frame.drop(columns=target), frame[target].astype(str).to_numpy()
    asked = features[:queries]
    passes = CrumbClassifier(device=device, random_state=seed).fit(
        features[queries:], labels[queries:]
    )
    records = []
    for way, options in WAYS.items():
        candidates.neighbours_beside = (lambda drawn, n: 0) if way == "by distance" else BESIDE
        where = device if way == "exact" else "cpu"  # candidates are for CPUs
        planner = CrumbClassifier(device=where, random_state=seed, **options).fit(
            features[queries:], labels[queries:]
        )
        started = time.perf_counter()
        plan = planner.plan(asked)
        record: dict[str, Any] = {
            "table": name,
            "rows": len(frame) - queries,
            "seed": seed,
            "way": way,
        }
        record |= {
            "plan_s": round(time.perf_counter() - started, 2),
            "mmd2": float(plan.final_mmd2.mean()),
        }
        record |= scores(labels[:queries], passes.predict_proba(asked, plan=plan), passes.classes_)
        print(json.dumps(record), flush=True)
        records.append(record)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    index = {
        entry["name"]: entry for entry in json.loads((options.data / "index.json").read_text())
    }
    found: list[dict[str, Any]] = []
    for name in options.tables.split(","):
        frame = pd.read_parquet(options.data / index[name]["file"])
        for seed in options.seeds:
            found += measure(
                name, frame, index[name]["target"], options.queries, seed, options.device
            )
            if options.out:
                with atomic_write(options.out) as file:
                    file.write(json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
