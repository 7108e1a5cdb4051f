"""Does a prediction keep to its budget? CPU, embedded network.

python benchmarks/budget.py --out benchmarks/results/budget.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from crumb import CrumbClassifier
from crumb.files import atomic_write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--budgets", nargs="*", default=["2s", "8s", "20s", "10s 0.5GB"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    X = np.random.default_rng(0).normal(size=(options.rows + options.queries, options.columns))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    records = []
    for budget in options.budgets:
        model = CrumbClassifier(budget=budget, device="cpu").fit(
            X[options.queries :], y[options.queries :]
        )
        plan = model.plan(X[: options.queries])
        started = time.perf_counter()
        model.predict_proba(X[: options.queries])  # plans again; the passes have been timed
        seconds = time.perf_counter() - started
        record = {"budget": budget, "clusters": plan.n_clusters, "rows": int(plan.sizes.max())}
        records.append(record | plan.settings["budget"] | {"taken": round(seconds, 2)})
        print(records[-1], flush=True)
    if options.out:
        settings = {key: value for key, value in vars(options).items() if key != "out"}
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
