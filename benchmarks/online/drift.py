"""A stream that drifts: a plan that follows the queries, one that stays, and MICP's routing.

    python benchmarks/online/drift.py --out FILE                                   (a made table)
    python benchmarks/online/drift.py --data FOLDER --tables electricity,adult --out FILE

Queries come from an interval along the first principal component of a table. It slides from the
lower to the upper end. Queries are never rows of the pool, and no labelled rows join the pool. The
pool reaches over the whole table (the interval is a quarter of it), or with ``--pool half`` over
its lower half (the interval is a half): then what the stream drifts to was never labelled. All
ways answer the same queries in the same order with the same model. The queries of each step are
answered before the stream may look at them.

- ``drift``: a plan for the first queries, and a new one for the latest whenever drift is found
- ``never``: the plan for the first queries
- ``drift alone``, ``never alone``: the same with ``plan_ahead=False``: for the queries alone
- ``micp``: support sets of as many clusters of the pool, each query routed to its nearest
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from service import common
from sklearn.decomposition import PCA

from crumb import CrumbClassifier, select_contexts
from crumb.online import CrumbOnline
from crumb.selection import MICP

WAYS = ("drift", "never", "drift alone", "never alone", "micp")
WIDTHS = {"whole": 0.25, "half": 0.5}  # of the interval, by what the pool reaches over
BLOCK = 5  # neighbours along the first component, of which one is set aside for queries
MOST_ROWS = 50_000
TABLES = "electricity,adult,covertype_20k,eeg-eye-state,letter,pendigits,SDSS17_ugriz"


def board(rows: int = 3_000) -> tuple[pd.DataFrame, np.ndarray]:
    """Two classes on a board of 6 × 6 squares, beside two columns of noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, size=(rows, 4))
    y = (np.floor(X[:, 0]) + np.floor(X[:, 1])).astype(int) % 2
    names = [f"x{j}" for j in range(4)]
    return pd.DataFrame(X, columns=names), np.where(rng.random(rows) < 0.05, 1 - y, y)


class Slide:
    """Which rows are pool, which the first plan is made for, and the queries of every step."""

    def __init__(self, name: str, X: pd.DataFrame, seed: int, options: argparse.Namespace):
        rng = np.random.default_rng([seed, zlib.crc32(b"split"), zlib.crc32(name.encode())])
        drawn = np.sort(rng.permutation(len(X))[:MOST_ROWS])
        points = select_contexts(X.iloc[drawn], X.iloc[drawn[:1]], strategy="uniform").pool_points
        pca = PCA(n_components=1, svd_solver="covariance_eigh")
        self.order = drawn[np.argsort(pca.fit_transform(points)[:, 0], kind="stable")]
        place = np.arange(len(drawn))
        self.quantile = place / max(1, len(drawn) - 1)
        self.aside = (
            place % BLOCK == rng.integers(BLOCK, size=len(drawn) // BLOCK + 1)[place // BLOCK]
        )
        self.width, self.rng = WIDTHS[options.pool], np.random.default_rng([seed, 7])
        self.first = self._draw(0.0, options.recent)
        self.taus = np.linspace(0.0, 1.0, options.steps)
        self.queries = [self._draw(tau, options.queries) for tau in self.taus]
        self.pool = self.order[~self.aside & ((self.quantile < 0.5) | (options.pool == "whole"))]

    def _draw(self, tau: float, count: int) -> np.ndarray:
        start = tau * (1 - self.width)
        inside = (self.quantile >= start) & (self.quantile <= start + self.width)
        rows = self.order[inside & self.aside]
        return self.rng.choice(rows, count, replace=len(rows) < count)


def stream_for(
    way: str, pool: pd.DataFrame, y: np.ndarray, first: pd.DataFrame, options: argparse.Namespace
) -> CrumbOnline:
    settings = {"context_size": options.context_size, "random_state": 0, "device": options.device}
    never = {"timeout": 60, "b_min": 10**6}  # passes run when the stream is flushed
    if way == "micp":
        clf = CrumbClassifier(strategy=MICP(n_clusters=options.clusters), **settings).fit(pool, y)
        return CrumbOnline(clf, pool, **never)  # all of its support sets
    clf = CrumbClassifier(n_clusters=options.clusters, **settings).fit(pool, y)
    return CrumbOnline(
        clf,
        first,
        refresh=way.removesuffix(" alone"),
        recent=options.recent,
        refresh_every=options.queries,
        plan_ahead=not way.endswith(" alone"),
        **never,
    )


def steps(
    way: str, name: str, X: pd.DataFrame, y: np.ndarray, seed: int, options: argparse.Namespace
) -> Iterator[common.Record]:
    slide = Slide(name, X, seed, options)
    pool, first = X.iloc[slide.pool], X.iloc[slide.first]
    with stream_for(way, pool, y[slide.pool], first, options) as stream:
        for step, (tau, rows) in enumerate(zip(slide.taus, slide.queries, strict=True)):
            futures = stream.submit_many(X.iloc[rows])
            stream.flush()
            answers = [future.result() for future in futures]
            said = np.array([answer.classes[answer.value.argmax()] for answer in answers])
            stream.settle()  # plans come between the steps, however fast the machine is
            yield {
                "table": name,
                "way": way,
                "seed": seed,
                "step": step,
                "tau": round(float(tau), 4),
                "queries": len(rows),
                "accuracy": float((said == y[rows]).mean()),
                "version": answers[0].version,
            }


def tables(folder: Path | None, names: str) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    if folder is None:
        yield "board", *board()
        return
    about = common.index(folder)
    for name in names.split(","):
        X, target = common.read_table(folder, about[name])
        yield name, X, np.unique(target.astype(str).to_numpy(dtype=object), return_inverse=True)[1]


def summary(rows: list[common.Record]) -> dict[str, Any]:
    accuracy = [row["accuracy"] for row in rows]
    return {
        **{key: rows[0][key] for key in ("table", "seed", "way")},
        "accuracy": float(np.mean(accuracy)),
        "second_half": float(np.mean(accuracy[len(rows) // 2 :])),
        "new_plans": rows[-1]["version"] - 1,
    }


def main() -> None:
    parser = common.parser(
        __doc__, steps=40, queries=256, recent=512, clusters=20, context_size=1_000, seeds=1
    )
    common.add_data(parser, required=True)
    parser.add_argument("--tables", default=TABLES, help="with --data: names, with commas")
    parser.add_argument("--pool", choices=list(WIDTHS), default="whole")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    records: list[common.Record] = []
    for name, X, y in tables(options.data, options.tables):
        for seed in range(options.seeds):
            for way in options.ways.split(","):
                rows = list(steps(way, name, X, y, seed, options))
                common.say(summary(rows))
                records += rows
    common.write(options, records, options.device)


if __name__ == "__main__":
    main()
