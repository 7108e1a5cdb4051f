"""Which defaults? Context size, members, min_per_class, kernel and clusters on real tables, embedded network.

    python benchmarks/defaults.py --datasets ../shared/datasets --device cuda --jobs 6
    python benchmarks/defaults.py --tables adult pendigits --seeds 1 --out cpu.json

One knob moves at a time around the default. Reports mean ROC AUC, log-loss, accuracy and seconds over the tables;
seconds mean something only with ``--jobs 1``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.preprocessing import LabelEncoder

from crumb import CrumbClassifier, paper_configuration
from crumb.files import atomic_write

TABLES = [
    "kddcup99_10pct_dedup",
    "nursery",
    "mammography",
    "adult",
    "electricity",
    "covertype_20k",
    "pendigits",
    "higgs_18k",
    "online_shoppers_intention",
    "SDSS17_ugriz",
    "Bank_Customer_Churn",
    "jm1",
    "eeg-eye-state",
    "page-blocks",
]
BASE: dict[str, Any] = {
    "context_size": 1_000,
    "n_clusters": 20,
    "n_estimators": 1,
    "min_per_class": 1,
    "kernel": "exact",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "context 250": {"context_size": 250},
    "context 500": {"context_size": 500},
    "context 2000": {"context_size": 2_000},
    "members 2": {"n_estimators": 2},
    "members 4": {"n_estimators": 4},
    "min_per_class 0": {"min_per_class": 0},
    "min_per_class 5": {"min_per_class": 5},
    "context 100, min_per_class 0": {"context_size": 100, "min_per_class": 0},
    "context 100, min_per_class 1": {"context_size": 100},
    "context 100, min_per_class 3": {"context_size": 100, "min_per_class": 3},
    "kernel rff 64, batch 50": {"kernel": "rff", "rff_dim": 64, "herd_batch": 50},
    "kernel rff 256, batch 50": {"kernel": "rff", "rff_dim": 256, "herd_batch": 50},
    "kernel rff 256, batch 10": {"kernel": "rff", "rff_dim": 256, "herd_batch": 10},
    "kernel rff 1024, batch 10": {"kernel": "rff", "rff_dim": 1_024, "herd_batch": 10},
    "kernel exact, batch 10": {"herd_batch": 10},
    "clusters 5": {"n_clusters": 5},
    "clusters 50": {"n_clusters": 50},
    "clusters 40, context 500": {"n_clusters": 40, "context_size": 500},
    "clusters 80, context 250": {"n_clusters": 80, "context_size": 250},
    "uniform": {"strategy": "uniform", "n_clusters": 1},
    "micp": {"strategy": "micp"},
    "paper, n = 1000": {**paper_configuration(), "context_size": 1_000},
}


TESTED = [
    ("default", "uniform"),
    ("default", "kernel rff 64, batch 50"),
    ("default", "kernel rff 256, batch 10"),
    ("default", "micp"),
    ("paper, n = 1000", "micp"),
    ("clusters 40, context 500", "default"),
]


def load(folder: Path, name: str, pool: int, queries: int, seed: int) -> tuple[pd.DataFrame, ...]:
    about = {entry["name"]: entry for entry in json.loads((folder / "index.json").read_text())}[
        name
    ]
    table = pd.read_parquet(folder / about["file"])
    table = table[table[about["target"]].notna()].sample(frac=1.0, random_state=seed)
    y = LabelEncoder().fit_transform(table.pop(about["target"]).astype(str))
    return table[queries:][:pool], y[queries:][:pool], table[:queries], y[:queries]


def score(
    y: np.ndarray, proba: np.ndarray, classes: np.ndarray, n_classes: int
) -> dict[str, float]:
    full = np.zeros((len(y), n_classes))
    full[:, classes] = proba
    clipped = np.clip(full, 1e-6, None)
    clipped /= clipped.sum(axis=1, keepdims=True)
    present = np.unique(y)
    if n_classes == 2:
        auc = roc_auc_score(y, full[:, 1])
    else:  # one-vs-rest over the classes that the queries have
        auc = float(np.mean([roc_auc_score(y == c, full[:, c]) for c in present]))
    return {
        "auc": float(auc),
        "log_loss": float(log_loss(y, clipped, labels=range(n_classes))),
        "accuracy": float(accuracy_score(y, full.argmax(axis=1))),
        "impossible": int(
            (full[np.arange(len(y)), y] == 0).sum()
        ),  # queries whose true class got probability 0
    }


def run(folder: Path, name: str, variant: str, seed: int, device: str) -> dict[str, Any]:
    X_pool, y_pool, X, y = load(folder, name, pool=20_000, queries=400, seed=seed)
    n_classes = int(max(y_pool.max(), y.max())) + 1
    settings = {**BASE, **VARIANTS[variant]}
    clf = CrumbClassifier(random_state=seed, device=device, **settings).fit(X_pool, y_pool)
    started = time.perf_counter()
    plan = clf.plan(X)
    planned = time.perf_counter()
    proba = clf.predict_proba(X, plan=plan)
    return {
        "table": name,
        "variant": variant,
        "seed": seed,
        "rows": len(X_pool),
        **score(y, proba, clf.classes_, n_classes),
        "plan_s": planned - started,
        "pass_s": time.perf_counter() - planned,
        "mmd2": float(np.nanmean(plan.final_mmd2)),
        "swapped": int(plan.swapped.sum()),
        "contexts_lacking_a_class": int(
            sum(len(np.unique(y_pool[context])) < len(clf.classes_) for context in plan.contexts)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, default=Path("../shared/datasets"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/defaults.json"))
    parser.add_argument("--report", type=Path, help="only report what a file of results says")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if options.report:
        print(report(json.loads(options.report.read_text())))
        return
    runs = [
        delayed(run)(options.datasets, name, variant, seed, options.device)
        for seed in range(options.seeds)
        for name in options.tables
        for variant in options.variants
    ]
    records: list[dict[str, Any]] = []
    for record in Parallel(n_jobs=options.jobs, return_as="generator")(runs):
        records.append(record)
        print(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}, flush=True
        )
        with atomic_write(options.out) as file:
            file.write(json.dumps(records, indent=1).encode())
    print(report(records))


def report(records: list[dict[str, Any]]) -> str:
    frame = pd.DataFrame(records)
    columns = ["auc", "log_loss", "accuracy", "plan_s", "pass_s", "mmd2"]
    means = frame.groupby("variant", sort=False)[columns].mean()
    pairs = {
        name: frame.pivot_table(index=["table", "seed"], columns="variant", values=name)
        for name in columns[:2]
    }
    means.insert(1, "rank", pairs["auc"].rank(axis=1, ascending=False).mean())
    loss, lines = pairs["log_loss"], [means.round(4).to_string(), ""]
    for first, second in TESTED:
        if {first, second} <= set(loss):
            gap = loss[first] - loss[second]
            p = wilcoxon(gap).pvalue if gap.any() else 1.0
            lines.append(
                f"log-loss, {first} against {second}: {(gap < 0).sum()} wins, {(gap > 0).sum()} losses, p = {p:.2g}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
