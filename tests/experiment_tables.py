"""Small folders of tables, and things that go wrong in a worker."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.dataset import Dataset
from experiments.protocol import Run
from experiments.run import execute, outcome


def make_folder(folder: Path, rows: int = 120) -> Path:
    """Two good tables; no Parquet file, no such target, no such file."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)}
    )
    table["kind"] = np.where(table["a"] + (table["c"] == "x") > 0, "good", "bad")
    table["price"] = 3 * table["b"] + table["a"]
    table.loc[0, "kind"] = None
    table.drop(columns="price").to_parquet(folder / "kinds.parquet")
    table.drop(columns="kind").to_parquet(folder / "prices.parquet")
    table.to_parquet(folder / "untold.parquet")
    whole = (folder / "prices.parquet").read_bytes()
    (folder / "torn.parquet").write_bytes(whole[: len(whole) // 2])
    entries = [
        {"name": "kinds", "file": "kinds.parquet", "task": "binary", "target": "kind"},
        {"name": "prices", "file": "prices.parquet", "task": "regression", "target": "price"},
        {"name": "torn", "file": "torn.parquet", "task": "regression", "target": "price"},
        {"name": "untold", "file": "untold.parquet", "task": "binary", "target": "answer"},
        {"name": "gone", "file": "gone.parquet", "task": "binary", "target": "kind"},
    ]
    (folder / "index.json").write_text(json.dumps(entries))
    return folder


TIMES = ("plan_seconds", "pass_seconds", "seconds", "when")


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What must come out again: everything but times, in an order of its own."""
    kept = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return sorted(kept, key=lambda row: json.dumps(row))


def troubled(run: Run, dataset: Dataset, device: str, n_jobs: int | None) -> dict[str, Any]:
    """In the place of ``execute``, in a worker: hangs, dies or fails, as the method says."""
    if run.method == "knn":
        time.sleep(600)
    if run.method == "micp":
        os._exit(7)
    if run.method == "full":
        raise ZeroDivisionError("by\nnought")
    return outcome("ok", None, accuracy=1.0)


def slow(run: Run, dataset: Dataset, device: str, n_jobs: int | None) -> dict[str, Any]:
    """The real thing, at a pace at which it can be interrupted."""
    time.sleep(0.2)
    return execute(run, dataset, device, n_jobs)
