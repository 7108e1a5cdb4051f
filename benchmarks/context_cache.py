"""Repeated prediction with a frozen plan, with and without what is kept of its contexts (CPU, embedded network).

python benchmarks/context_cache.py --out benchmarks/results/context_cache.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

from crumb import CrumbClassifier
from crumb.files import atomic_write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(20_000, 20)), rng.normal(size=(options.queries, 20))
    y = X[:, 0] + X[:, 1] > 0
    settings = {"n_clusters": 20, "context_size": 1_000, "device": "cpu"}
    models = {size: CrumbClassifier(cache_size=size, **settings).fit(X, y) for size in (0, 500)}
    plan = models[0].plan(queries)
    seconds: dict[int, list[float]] = {0: [], 500: []}
    answers = {}
    for _ in range(options.repeats + 1):
        for size, model in models.items():
            started = time.perf_counter()
            answers[size] = model.predict_proba(queries, plan=plan)
            seconds[size].append(time.perf_counter() - started)
    without, kept = (statistics.median(seconds[size][1:]) for size in (0, 500))
    result = {
        "first_without_s": round(seconds[0][0], 3),
        "first_with_s": round(seconds[500][0], 3),
        "without_s": round(without, 3),
        "with_s": round(kept, 3),
        "times_faster": round(without / kept, 1),
        "largest_difference": float(np.abs(answers[0] - answers[500]).max()),
        "megabytes": round(models[500].backend_.contexts.used / 1e6, 1),
    }
    print(result)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(json.dumps(result, indent=1).encode())


if __name__ == "__main__":
    main()
