"""Plausible rows of every protocol, made from a seed, to report without running anything.

A method has a strength; a data set a level and a spread. Scores follow both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.report.blocks import Table
from experiments.report.results import as_frame

Row = dict[str, Any]
STRENGTH = {
    "full": 1.0,
    "knn": 0.7,
    "crumb": 0.65,
    "micp": 0.35,
    "uniform": 0.0,
    "centroid": 0.3,
    "voronoi": 0.25,
    "case A": 0.0,
    "case B": 0.02,
    "case C": 0.1,
    "case D": 0.65,
}
FIVE = ("full", "knn", "crumb", "micp", "uniform")
ENVIRONMENT = {
    "crumb": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "tabicl": "2.2.0",
    "sklearn": "1.9.0",
    "device": "cpu",
    "machine": "Made-up CPU, 2 cores",
    "when": "2025-11-15T12:00:00",
}
FIELDS = ("N", "T", "n", "K", "p", "tau", "D", "B", "kernel", "drawn")
OUTCOME = (
    "accuracy",
    "auc",
    "log_loss",
    "rmse",
    "r2",
    "plan_seconds",
    "pass_seconds",
    "seconds",
    "context_mean",
)


class Maker:
    """Rows for some data sets; the same seed makes the same rows."""

    def __init__(self, classification: int = 6, regression: int = 3, seeds: int = 3, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.seeds = seeds
        self.sets = [(f"classes_{i:02d}", "classification") for i in range(classification)]
        self.sets += [(f"numbers_{i:02d}", "regression") for i in range(regression)]
        self.level = {name: self.rng.uniform(0.6, 0.93) for name, _ in self.sets}
        self.spread = {
            name: self.rng.uniform(-0.01, 0.06) for name, _ in self.sets
        }  # below 0: matching does harm
        self.size = {name: int(10 ** self.rng.uniform(2.8, 4.4)) for name, _ in self.sets}

    def row(
        self,
        protocol: str,
        dataset: str,
        task: str,
        model: str,
        method: str,
        seed: int,
        **fields: Any,
    ) -> Row:
        strength = fields.pop("strength", STRENGTH.get(method, 0.6))
        score = self.level[dataset] + self.spread[dataset] * strength + self.rng.normal(0, 0.008)
        score = round(float(np.clip(score, 0.05, 0.995)) * 200) / 200
        pool, queries = fields.setdefault("N", self.size[dataset]), fields.setdefault("T", 200)
        budget = pool if method == "full" else fields.setdefault("n", max(1, pool // 10))
        selection = {"full": 0.001, "uniform": 0.002, "knn": 4e-6 * pool * queries / 50}.get(
            method, 2e-5 * pool + 0.02
        )
        selection = fields.pop("selection", selection)
        passes = {"full": 1, "uniform": 1, "case A": 1, "case C": 1, "knn": queries}.get(
            method, fields.get("K") or 20
        )
        network = passes * (0.02 + 1e-5 * budget + 4e-10 * budget**2)
        numbers = task == "regression"
        return {
            **{
                "protocol": protocol,
                "dataset": dataset,
                "task": task,
                "model": model,
                "method": method,
                "seed": seed,
            },
            **dict.fromkeys(FIELDS),
            **fields,
            **{"status": "ok", "message": None},
            "accuracy": None if numbers else score,
            "auc": None if numbers else min(0.999, score + 0.05),
            "log_loss": None if numbers else 1.1 - score,
            "rmse": 10 * (1.2 - score) if numbers else None,
            "r2": score if numbers else None,
            "plan_seconds": float(selection * self.rng.uniform(0.9, 1.1)),
            "pass_seconds": float(network * self.rng.uniform(0.9, 1.1)),
            "seconds": float(selection + network),
            "context_mean": float(fields.pop("context_mean", budget)),
            "contexts": passes,
            "mmd2": float(0.01 * (1.2 - strength) * self.rng.uniform(0.8, 1.2)),
            **ENVIRONMENT,
        }

    def each(
        self, task: str | None = None, count: int | None = None
    ) -> Iterator[tuple[str, str, int]]:
        sets = [one for one in self.sets if task in (None, one[1])][:count]
        return ((name, kind, seed) for name, kind in sets for seed in range(self.seeds))

    def main(self) -> list[Row]:
        rows = [
            self.row("main", *one[:2], "embedded", method, one[2], K=20, drawn="max_rows=20000")
            for one in self.each()
            for method in FIVE
        ]
        failed = {
            "status": "timeout",
            "message": "not done after 300 s",
            **dict.fromkeys((*OUTCOME, "contexts", "mmd2")),
        }
        rows[1].update(failed)
        rows.append({**rows[0], "dataset": "broken", "N": None, "seed": 0, **failed})
        rows[-1].update(
            status="error", message="broken.parquet is no <Parquet> file | or a truncated one"
        )
        return rows

    def consistency(self) -> list[Row]:
        return [
            self.row(
                "consistency", *one[:2], model, method, one[2], N=pool, n=round(p * pool), p=p, K=20
            )
            for one in self.each("classification")
            for model in ("embedded", "tabicl-v2")
            for pool in (500, 1000, 2000)
            for p in (0.05, 0.1, 0.2, 0.5, 0.8)
            for method in ("crumb", "micp", "uniform")
        ]

    def large(self) -> list[Row]:
        rows = []
        for name, kind, seed in self.each("classification", 5):
            for model in ("embedded", "tabicl-v2"):
                for method in ("crumb", "micp", "uniform"):
                    size = self.rng.uniform(300, 3000) if method == "crumb" else 6000
                    fields = {"N": 60_000, "n": 6000, "K": 20, "context_mean": size}
                    rows.append(self.row("large", name, kind, model, method, seed, **fields))
        return rows

    def drift(self) -> list[Row]:
        rows = []
        sets = [*[one for one in self.sets if one[1] == "classification"][:3], self.sets[-1]]
        for name, kind in sets:
            for seed in range(self.seeds):
                for tau in np.arange(11) / 10:
                    for method in FIVE:
                        fall = {"micp": 5.0, "uniform": 2.5}.get(method, 2.0)
                        strength = STRENGTH[method] - fall * tau
                        fields = {
                            "N": 800,
                            "n": 80,
                            "K": 20,
                            "tau": float(tau),
                            "strength": strength,
                        }
                        rows.append(
                            self.row("drift", name, kind, "embedded", method, seed, **fields)
                        )
        return rows

    def clusters(self) -> list[Row]:
        settings = [(K, 0.1) for K in (1, 5, 10, 20, 30)] + [
            (20, p) for p in (0.02, 0.05, 0.2, 0.5)
        ]
        rows = []
        for name, kind, seed in self.each():
            for K, p in settings:
                pool = self.size[name]
                strength = 0.2 + 0.3 * np.log10(K) + 0.8 * p
                fields = {
                    "n": round(p * pool),
                    "p": p,
                    "K": K,
                    "strength": strength,
                    "selection": 0.01 * K + 0.3 * p,
                }
                rows.append(self.row("clusters", name, kind, "embedded", "crumb", seed, **fields))
        return rows

    def retrieval(self) -> list[Row]:
        kernels: tuple[Row, ...] = (
            {"kernel": "exact", "B": 1},
            {"kernel": "rff", "D": 64, "B": 50},
        )
        return [
            self.row("retrieval", *one[:2], "embedded", method, one[2], n=500, K=20, **kernel)
            for one in self.each()
            for kernel in kernels
            for method in ("crumb", "centroid", "voronoi")
        ]

    def factorial(self) -> list[Row]:
        return [
            self.row("factorial", *one[:2], "embedded", f"case {case}", one[2], n=n, K=20)
            for one in self.each()
            for n in (500, 1000, 2000)
            for case in "ABCD"
        ]

    def rff(self) -> list[Row]:
        rows = []
        for name, kind, seed in self.each():
            for D in (None, 16, 64, 256):
                for B in (1, 10, 50, 100):
                    method = f"rff D={D} B={B}" if D else f"exact B={B}"
                    strength = 0.65 + (-2 / D if D else 0) - 0.0005 * B
                    cost = (0.4 if D is None else 0.001 * D) / np.sqrt(B) + 0.01
                    fields = {"n": 500, "K": 20, "B": B, "D": D, "kernel": "rff" if D else "exact"}
                    row = self.row(
                        "rff",
                        name,
                        kind,
                        "embedded",
                        method,
                        seed,
                        strength=strength,
                        selection=cost,
                        **fields,
                    )
                    rows.append({**row, **self.by_cluster(strength)})
            for method in ("centroid", "voronoi"):
                row = self.row("rff", name, kind, "embedded", method, seed, n=500, K=20)
                rows.append({**row, **self.by_cluster(STRENGTH[method])})
        return rows

    def by_cluster(self, strength: float, clusters: int = 4) -> Row:
        matched = 0.01 * (1.2 - strength) * self.rng.uniform(0.8, 1.2, clusters)
        return {
            "cluster_queries": [50] * clusters,
            "cluster_score": [
                float(0.9 - 5 * value + self.rng.normal(0, 0.01)) for value in matched
            ],
            "cluster_mmd2": [float(value) for value in matched],
        }

    def complexity(self) -> list[Row]:
        points = [(N, 200) for N in (1000, 2000, 5000, 10_000, 20_000, 50_000)] + [
            (10_000, T) for T in (20, 1000, 5000)
        ]
        return [
            self.row("complexity", *one[:2], "embedded", method, one[2], N=N, T=T, n=500, K=20)
            for one in self.each("classification", 1)
            for N, T in points
            for method in FIVE
        ]

    def everything(self) -> list[Row]:
        return [row for protocol in PROTOCOLS for row in getattr(self, protocol)()]


PROTOCOLS = (
    "main",
    "consistency",
    "large",
    "drift",
    "clusters",
    "retrieval",
    "factorial",
    "rff",
    "complexity",
)


def write_rows(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(
    protocol: str, scores: dict[str, list[float]], metric: str = "accuracy", **fields
) -> pd.DataFrame:
    """One row a method and data set; ``fields`` are the same for all."""
    task = "classification" if metric in ("accuracy", "auc", "log_loss") else "regression"
    return as_frame(
        [
            {
                **{
                    "protocol": protocol,
                    "dataset": f"d{i}",
                    "task": task,
                    "model": "m",
                    "method": method,
                    "seed": 0,
                },
                **{"status": "ok", "N": 100, "T": 10, metric: score},
                **fields,
            }
            for method, values in scores.items()
            for i, score in enumerate(values)
        ]
    )


def of_kind(blocks, kind):
    return [block for block in blocks if isinstance(block, kind)]


def titled(blocks, start: str) -> Table:
    """The table whose caption starts so."""
    return next(table for table in of_kind(blocks, Table) if table.caption.startswith(start))


def cells(table: Table) -> list[list[str]]:
    return [list(line) for line in table.lines]


def column(table: Table, name: str) -> list[str]:
    return list(table.cells[name])
