"""What one pass costs on a CPU: the embedded network against one of the official TabICLv2 size with random weights.

    python benchmarks/pass_speed.py --out benchmarks/results/pass_speed.json

A context of 1,000 rows, 100 queries, 20 features, one member. Weights do not change the cost, so random ones do.
Fitting and loading are not timed; the two networks take turns, so that a busy machine slows down both.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from tabicl._model.tabicl import TabICL

from crumb import CrumbClassifier, CrumbRegressor
from crumb.files import atomic_write
from crumb.pfn.architecture import V2_ARCHITECTURE
from crumb.pfn.checkpoint import read_checkpoint
from crumb.pfn.registry import card_for
from crumb.pfn.weights import fetch

OFFICIAL: dict[str, Any] = {
    **V2_ARCHITECTURE,
    "num_quantiles": 999,
    "embed_dim": 128,
    "col_num_blocks": 3,
    "col_nhead": 8,
    "col_num_inds": 128,
    "row_num_blocks": 3,
    "row_nhead": 8,
    "row_num_cls": 4,
    "icl_num_blocks": 12,
    "icl_nhead": 8,
    "ff_factor": 2,
    "zero_init": False,  # otherwise a network without training answers a constant
}


def official(folder: Path, task: str) -> tuple[Path, int]:
    """A checkpoint of the official size, and its number of parameters."""
    torch.manual_seed(0)
    regression = task == "regression"
    config = {**OFFICIAL, "max_classes": 0 if regression else 10, "bias_free_ln": regression}
    network = TabICL(**config)
    path = folder / f"{task}.ckpt"
    torch.save({"config": config, "state_dict": network.state_dict()}, path)
    return path, sum(parameter.numel() for parameter in network.parameters())


def parameters_of(model: str, task: str) -> int:
    path = fetch(card_for(model, task)) if model == "embedded" else model
    return sum(tensor.numel() for tensor in read_checkpoint(path).state_dict.values())


def measure(task: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    path, parameters = official(folder, task)
    weights = options.weights[1 if task == "regression" else 0]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rows + options.queries, options.features))
    signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
    y = signal if task == "regression" else (signal > 0).astype(int)
    kind = CrumbRegressor if task == "regression" else CrumbClassifier
    passes = {}
    for name, model in (("embedded", weights), ("official size", str(path))):
        estimator = kind(
            model=model, strategy="full", n_estimators=1, device="cpu", n_jobs=options.threads
        )
        estimator.fit(X[: options.rows], y[: options.rows])
        passes[name] = estimator.predict if task == "regression" else estimator.predict_proba
    times: dict[str, list[float]] = {name: [] for name in passes}
    for repeat in range(options.repeats + 1):
        for name, predict in passes.items():
            started = time.perf_counter()
            predict(X[options.rows :])
            if repeat:  # the first is a warm-up
                times[name].append(1_000 * (time.perf_counter() - started))
    ours, theirs = (median(times[name]) for name in ("embedded", "official size"))
    return {
        "task": task,
        "embedded_ms": round(ours, 2),
        "official_size_ms": round(theirs, 2),
        "ratio": round(theirs / ours, 2),
        "embedded_parameters": parameters_of(weights, task),
        "official_size_parameters": parameters,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--weights",
        nargs=2,
        default=["embedded", "embedded"],
        metavar=("CLASSIFIER", "REGRESSOR"),
        help='checkpoint files instead of the shipped ones ("embedded")',
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [measure(task, Path(folder), options) for task in ("classification", "regression")]
    for one in found:
        print(
            f"{one['task']}: embedded {one['embedded_ms']:.1f} ms ({one['embedded_parameters'] / 1e6:.1f}M weights), "
            f"official size {one['official_size_ms']:.1f} ms ({one['official_size_parameters'] / 1e6:.1f}M), "
            f"{one['ratio']:.1f} times"
        )
    if options.out:
        settings = {k: v for k, v in vars(options).items() if k != "out"}
        settings |= {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "tabicl")},
        }
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "results": found}, indent=1).encode())


if __name__ == "__main__":
    main()
