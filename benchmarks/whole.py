"""The whole ``predict_proba``: CRUMB's defaults beside the full context, with the same network.

    python benchmarks/whole.py --out benchmarks/results/whole.json   (CPU, 20 minutes)
    python benchmarks/whole.py --device cuda --network official --rows 1000000 --columns 50 \\
        --queries 10000 --context-size 2000 --skip full --out benchmarks/results/whole_gpu.json
    python benchmarks/whole.py --rows 50000 --budgets 2s 8s 20s "10s 0.5GB" \\
        --out benchmarks/results/budget.json                         (does it keep to its budget?)

Each way runs in a process of its own: first once with few queries, which loads and compiles what
there is to load and compile, then timed. Memory is the peak of the process (of the GPU with cuda)
above what it holds once it is fitted.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import common
import numpy as np
import torch
from sklearn.datasets import make_blobs

from crumb import CrumbClassifier


def table(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Twenty blobs; what a column means for the class depends on the blob."""
    X, group = make_blobs(
        options.rows + options.queries, options.columns, centers=20, random_state=0, cluster_std=3.0
    )
    noise = np.random.default_rng(0).normal(size=len(X)) * X[:, 0].std()
    return X, ((X[:, 0] + noise > np.median(X[:, 0])) ^ (group % 2 == 0)).astype(int)


def run(options: argparse.Namespace, way: str) -> common.Record:
    X, y = table(options)
    pool, queries = X[options.queries :], X[: options.queries]
    full, cuda = way == "full", options.device == "cuda"
    settings: dict[str, Any] = {"context_size": options.context_size}
    with tempfile.TemporaryDirectory() as folder:
        network = "embedded" if options.network == "embedded" else common.write_network(folder)
        model = CrumbClassifier(
            model=network, device=options.device, **({"strategy": "full"} if full else settings)
        )
        _, fit_seconds = common.timed(lambda: model.fit(pool, y[options.queries :]))
        if not full:
            model.predict_proba(queries[: len(queries) // 2])
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        work = {way: lambda: model.predict_proba(queries)}
        with common.PeakMemory() as memory:
            found, seconds = common.in_turn(work, options.repeats, once=["full"])
    peak = torch.cuda.max_memory_allocated() if cuda else memory.peak - memory.start
    return {
        "way": way,
        "seconds": round(min(seconds[way]), 3),
        "fit_seconds": round(fit_seconds, 3),
        "peak_gb": round(peak / 1e9, 3),
        "process_peak_gb": round(memory.peak / 1e9, 3),
        "accuracy": round(float((found[way].argmax(1) == y[: options.queries]).mean()), 4),
    }


def within(options: argparse.Namespace, budget: str) -> common.Record:
    """What a budget chooses, what it expects, and what the prediction takes."""
    X = np.random.default_rng(0).normal(size=(options.rows + options.queries, options.columns))
    y, queries = (X[:, 0] + X[:, 1] > 0).astype(int), X[: options.queries]
    model = CrumbClassifier(budget=budget, device=options.device)
    model.fit(X[options.queries :], y[options.queries :])
    plan = model.plan(queries)
    _, seconds = common.timed(lambda: model.predict_proba(queries))  # it plans again
    record = {"budget": budget, "clusters": plan.n_clusters, "rows": int(plan.sizes.max())}
    return record | plan.settings["budget"] | {"taken": round(seconds, 2)}


def main() -> None:
    parser = common.parser(
        __doc__, rows=100_000, columns=20, queries=1_000, context_size=1_000, repeats=3
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", choices=["embedded", "official"], default="embedded")
    parser.add_argument("--skip", nargs="*", default=[], choices=["crumb", "full"])
    parser.add_argument("--budgets", nargs="*", help="measure these budgets instead")
    options = parser.parse_args()
    work, words = (within, options.budgets) if options.budgets else (run, ("crumb", "full"))
    records = [
        common.say(common.in_own_process(work, options, word))
        for word in words
        if word not in options.skip
    ]
    common.write(options, records, options.device)


if __name__ == "__main__":
    main()
