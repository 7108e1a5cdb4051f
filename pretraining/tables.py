"""The development tables as a network sees them, in one small file: what a machine without the
tables can judge by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from crumb.pfn.tabicl_package import PreprocessingPipeline, TransformToNumerical
from pretraining import development

DEVELOPMENT = ("adult", "segment", "churn", "houses", "cpu_act")
SEEDS = 3
SIZES = (1_000, 4_000)  # rows of context, where a table has them and a few hundred more
QUERIES = 1_000


def write(path: Path, tasks: Iterable[tuple[str, str, pd.DataFrame, pd.Series]]) -> None:
    """Some draws of rows of every table, prepared as tabicl prepares them."""
    arrays: dict[str, np.ndarray] = {}
    for task, name, table, target in tasks:
        regression = task == "regression"
        y = (
            target.to_numpy(float)
            if regression
            else pd.factorize(target.astype(str), sort=True)[0].astype(float)
        )
        large = name in DEVELOPMENT
        for size in SIZES if large else (min(SIZES[0], int(0.7 * len(y))),):
            queries = min(QUERIES if large else QUERIES // 2, len(y) - size)
            if large and queries < 400:
                continue
            seeds = range(SEEDS if large else SEEDS - 1)
            draws = [_prepared(table, y, size, queries, seed, regression) for seed in seeds]
            key = f"{task}/{name.replace('/', '.')}-{size}"
            width = min(X.shape[1] for X, _ in draws)  # a column may be constant in one draw
            arrays[f"{key}/X"] = np.stack([X[:, :width] for X, _ in draws])
            arrays[f"{key}/y"] = np.stack([y for _, y in draws])
            arrays[f"{key}/train"] = np.array(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def named(datasets: Path | None) -> Iterator[tuple[str, str, pd.DataFrame, pd.Series]]:
    """The tables of development that have names here: the five at hand, and development.py's."""
    if datasets is not None:
        entries = json.loads((datasets / "index.json").read_text())
        about = {entry["name"]: entry for entry in entries}
        for name in DEVELOPMENT:
            table = pd.read_parquet(datasets / about[name]["file"])
            task = "regression" if about[name]["task"] == "regression" else "classification"
            yield task, name, table, table.pop(about[name]["target"])
    yield from development.tables()


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
