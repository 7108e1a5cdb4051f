"""Which defaults? Context size, members, min_per_class, kernel and clusters on real tables.

    python benchmarks/defaults.py --device cuda --jobs 6 --out benchmarks/results/defaults.json
    python benchmarks/defaults.py --tables adult pendigits --seeds 1 --out cpu.json
    python benchmarks/defaults.py --report benchmarks/results/defaults.json

One knob moves at a time around the default; the embedded network. Reports mean ROC AUC, log-loss,
accuracy and seconds over the tables. Seconds mean something only with ``--jobs 1``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.preprocessing import LabelEncoder

from crumb import CrumbClassifier, paper_configuration

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
    "features": None,
    "context_size": 1_000,
    "n_clusters": 20,
    "contexts_per_query": 1,
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


def score(
    y: np.ndarray, proba: np.ndarray, classes: np.ndarray, n_classes: int
) -> dict[str, float]:
    """AUC (one against the rest, over the classes that the queries have), log-loss, accuracy."""
    full = np.zeros((len(y), n_classes))
    full[:, classes] = proba
    clipped = np.clip(full, 1e-6, None)
    clipped /= clipped.sum(axis=1, keepdims=True)
    asked = [1] if n_classes == 2 else np.unique(y)
    return {
        "auc": float(np.mean([roc_auc_score(y == c, full[:, c]) for c in asked])),
        "log_loss": float(log_loss(y, clipped, labels=range(n_classes))),
        "accuracy": float(accuracy_score(y, full.argmax(axis=1))),
        # Queries whose true class got probability 0.
        "impossible": int((full[np.arange(len(y)), y] == 0).sum()),
    }


def run(folder: Path, name: str, variant: str, seed: int, device: str) -> common.Record:
    """At most 20,000 pool rows and 400 queries of one table."""
    table, target = common.read_table(folder, common.index(folder)[name])
    order = table.sample(frac=1.0, random_state=seed).index
    table, y = table.loc[order], LabelEncoder().fit_transform(target[order].astype(str))
    X_pool, y_pool, X, y = table[400:20_400], y[400:20_400], table[:400], y[:400]
    n_classes = int(max(y_pool.max(), y.max())) + 1
    settings = {**BASE, **VARIANTS[variant]}
    clf = CrumbClassifier(random_state=seed, device=device, **settings).fit(X_pool, y_pool)
    plan, plan_s = common.timed(lambda: clf.plan(X))
    proba, pass_s = common.timed(lambda: clf.predict_proba(X, plan=plan))
    lacking = [len(np.unique(y_pool[context])) < len(clf.classes_) for context in plan.contexts]
    return {
        "table": name,
        "variant": variant,
        "seed": seed,
        "rows": len(X_pool),
        **score(y, proba, clf.classes_, n_classes),
        "plan_s": plan_s,
        "pass_s": pass_s,
        "mmd2": float(np.nanmean(plan.final_mmd2)),
        "swapped": int(plan.swapped.sum()),
        "contexts_lacking_a_class": sum(lacking),
    }


def report(records: list[common.Record]) -> str:
    frame = pd.DataFrame(records)
    columns = ["auc", "log_loss", "accuracy", "plan_s", "pass_s", "mmd2"]
    means = frame.groupby("variant", sort=False)[columns].mean()
    auc, loss = (
        frame.pivot_table(index=["table", "seed"], columns="variant", values=name)
        for name in ("auc", "log_loss")
    )
    means.insert(1, "rank", auc.rank(axis=1, ascending=False).mean())
    lines = [means.round(4).to_string(), ""]
    for first, second in TESTED:
        if {first, second} <= set(loss):
            gap = loss[first] - loss[second]
            p = wilcoxon(gap).pvalue if gap.any() else 1.0
            lines.append(
                f"log-loss, {first} and {second}: "
                f"{(gap < 0).sum()} wins, {(gap > 0).sum()} losses, p = {p:.2g}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = common.parser(__doc__, seeds=3, jobs=1)
    common.add_data(parser)
    parser.add_argument("--report", type=Path, help="only report what a file of results says")
    parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--tables", nargs="*", default=TABLES)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.report:
        print(report(json.loads(options.report.read_text())["records"]))
        return
    runs = [
        delayed(run)(options.data, name, variant, seed, options.device)
        for seed in range(options.seeds)
        for name in options.tables
        for variant in options.variants
    ]
    records = []
    for record in Parallel(n_jobs=options.jobs, return_as="generator")(runs):
        records.append(common.say(record))
        common.write(options, records, options.device)
    print(report(records))


if __name__ == "__main__":
    main()
