"""The development tables as a network sees them, in one small file: what a machine without the
tables can judge by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from crumb.pfn.tabicl_package import PreprocessingPipeline, TransformToNumerical

DEVELOPMENT = ("adult", "segment", "churn", "houses", "cpu_act")
SEEDS = 3
SIZES = (1_000, 4_000)  # rows of context, where a table has them and a few hundred more
QUERIES = 1_000


def write(datasets: Path, path: Path) -> None:
    """Some draws of rows of every table, prepared as tabicl prepares them."""
    about = {entry["name"]: entry for entry in json.loads((datasets / "index.json").read_text())}
    arrays: dict[str, np.ndarray] = {}
    for name in DEVELOPMENT:
        table = pd.read_parquet(datasets / about[name]["file"])
        target = table.pop(about[name]["target"])
        regression = about[name]["task"] == "regression"
        y = (
            target.to_numpy(float)
            if regression
            else pd.factorize(target.astype(str), sort=True)[0].astype(float)
        )
        for size in SIZES:
            queries = min(QUERIES, len(y) - size)
            if queries < 400:
                continue
            draws = [_prepared(table, y, size, queries, seed, regression) for seed in range(SEEDS)]
            key = f"{'regression' if regression else 'classification'}/{name}-{size}"
            arrays[f"{key}/X"] = np.stack([X for X, _ in draws])
            arrays[f"{key}/y"] = np.stack([y for _, y in draws])
            arrays[f"{key}/train"] = np.array(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _prepared(
    table: pd.DataFrame, y: np.ndarray, size: int, queries: int, seed: int, regression: bool
) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(seed).permutation(len(y))[: size + queries]
    context, y = table.iloc[rows[:size]], y[rows]
    encoder = TransformToNumerical().fit(context)
    numbers = [
        np.asarray(encoder.transform(part), float) for part in (context, table.iloc[rows[size:]])
    ]
    pipeline = PreprocessingPipeline("none", 4.0, 0).fit(numbers[0])
    X = np.concatenate([pipeline.transform(part) for part in numbers])
    if regression:
        y = (y - y[:size].mean()) / y[:size].std()
    return X.astype(np.float32), y.astype(np.float32)
