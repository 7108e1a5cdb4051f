"""A stream that drifts: does a plan that follows the queries beat one that stays, and MICP's routing?

    python benchmarks/online/drift.py --out benchmarks/results/online_drift.json                # made tables
    python benchmarks/online/drift.py --data FOLDER --tables electricity,adult --out FILE       # Parquet and index.json

Queries come from a window along the first principal component of a table that slides from its lower to its upper end,
and are never rows of the pool. The pool stays as it is: labelled rows do not join. It reaches over the whole table (the
window is a quarter of it), or with ``--pool half`` over its lower half only (the window is a half): then what the
stream drifts to was never labelled. All ways answer the same queries in the same order with the same model; each step's
queries are answered before the stream may look at them.

- ``drift``: a plan for the first queries, and a new one for the latest whenever drift is found
- ``never``: the plan for the first queries
- ``drift alone``, ``never alone``: the same with ``plan_ahead=False``: plans are made for the queries alone
- ``micp``: support sets of as many clusters of the pool, the same for all queries, each routed to its nearest
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crumb import CrumbClassifier
from crumb.bench import folder, synthetic
from crumb.bench.dataset import Dataset
from crumb.bench.protocol import Run
from crumb.bench.split import set_aside
from crumb.files import atomic_write
from crumb.table.pieces import take
from crumb.online import CrumbOnline
from crumb.selection import MICP

WAYS = ("drift", "never", "drift alone", "never alone", "micp")
WIDTHS = {"whole": 0.25, "half": 0.5}  # of the window, by what the pool reaches over
TABLES = (
    "electricity,adult,covertype_20k,eeg-eye-state,letter,pendigits,SDSS17_ugriz,bank-marketing"
)


def windows(
    dataset: Dataset, seed: int, options: Any
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Rows of the pool, those that the first plan is made for (a window's worth), and the queries of every step."""
    order, quantile, aside = set_aside(
        Run("online-drift", dataset.name, dataset.task, "", "", seed), dataset.X
    )
    rng = np.random.default_rng([seed, 7])

    width = WIDTHS[options.pool]

    def draw(tau: float, count: int) -> np.ndarray:
        start = tau * (1 - width)
        window = order[(quantile >= start) & (quantile <= start + width) & aside]
        return rng.choice(window, count, replace=len(window) < count)

    first = draw(0.0, options.window)
    pool = order[~aside & ((quantile < 0.5) | (options.pool == "whole"))]
    return pool, first, [draw(tau, options.queries) for tau in taus(options)]


def taus(options: Any) -> np.ndarray:
    return np.linspace(0.0, 1.0, options.steps)


def stream_for(
    way: str, pool: pd.DataFrame, y: np.ndarray, first: pd.DataFrame, options: Any
) -> CrumbOnline:
    settings = {"context_size": options.context_size, "random_state": 0, "device": options.device}
    if way == "micp":
        clf = CrumbClassifier(strategy=MICP(n_clusters=options.clusters), **settings).fit(pool, y)
        return CrumbOnline(
            clf, pool, timeout=60, b_min=10**6
        )  # all of its support sets, whoever asks first
    clf = CrumbClassifier(n_clusters=options.clusters, **settings).fit(pool, y)
    return CrumbOnline(
        clf,
        first,
        timeout=60,
        b_min=10**6,
        refresh=way.removesuffix(" alone"),
        recent=options.window,
        refresh_every=options.queries,
        plan_ahead=not way.endswith(" alone"),
    )


def accuracies(way: str, dataset: Dataset, seed: int, options: Any) -> Iterator[dict[str, Any]]:
    pool, first, asked = windows(dataset, seed, options)
    X, y = dataset.X.reset_index(drop=True), dataset.y
    with stream_for(way, take(X, pool), y[pool], take(X, first), options) as stream:
        for step, (tau, rows) in enumerate(zip(taus(options), asked, strict=True)):
            futures = stream.submit_many(take(X, rows))
            stream.flush()
            answers = [future.result() for future in futures]
            said = np.array([answer.classes[answer.value.argmax()] for answer in answers])
            stream.settle()  # plans come between the steps, however fast the machine is
            yield {
                "table": dataset.name,
                "way": way,
                "seed": seed,
                "step": step,
                "tau": round(float(tau), 4),
                "queries": len(rows),
                "accuracy": float((said == y[rows]).mean()),
                "version": answers[0].version,
            }


def datasets(options: Any) -> Iterator[Dataset]:
    found = synthetic.sources() if options.data is None else folder.sources(options.data)
    wanted = None if options.tables is None else options.tables.split(",")
    if wanted is None and options.data is not None:
        wanted = TABLES.split(",")
    for source in found:
        if source.task == "classification" and (wanted is None or source.name in wanted):
            yield source.load()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder of Parquet files with an index.json; default: made tables"
    )
    parser.add_argument("--tables", help="names, with commas")
    parser.add_argument(
        "--pool", choices=list(WIDTHS), default="whole", help="what the pool reaches over"
    )
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--device", default="cpu")
    for name, value in {
        "steps": 40,
        "queries": 256,
        "window": 512,
        "clusters": 20,
        "context-size": 1_000,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records: list[dict[str, Any]] = []
    for dataset in datasets(options):
        for seed in range(options.seeds):
            for way in options.ways.split(","):
                rows = list(accuracies(way, dataset, seed, options))
                late = np.mean([row["accuracy"] for row in rows[len(rows) // 2 :]])
                whole = np.mean([row["accuracy"] for row in rows])
                print(
                    f"{dataset.name} seed {seed} {way}: {whole:.4f}, second half {late:.4f}, "
                    f"{rows[-1]['version'] - 1} new plans",
                    flush=True,
                )
                records += rows
    if options.out is not None:
        names = ("pool", "steps", "queries", "window", "clusters", "context_size")
        kept = {name: getattr(options, name) for name in names}
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": kept, "records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
