"""The whole ``predict_proba``: CRUMB's defaults against the full context, with the same network and members.

    python benchmarks/whole.py --out benchmarks/results/whole.json                  (CPU, embedded network; 20 minutes)
    python benchmarks/whole.py --device cuda --network official --rows 1000000 --columns 50 --queries 10000 \
        --budget 2000 --skip full --out benchmarks/results/whole_gpu.json              (GPU, random weights)

Each way runs in a process of its own: first once with few queries, which loads and compiles what there is to, then
timed. Memory is the peak of the process (of the GPU with cuda) above what it holds once it is fitted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pass_speed import OFFICIAL
from sklearn.datasets import make_blobs
from tabicl._model.tabicl import TabICL

from crumb import CrumbClassifier
from crumb.files import atomic_write


class PeakMemory:
    """Resident memory, looked at a hundred times a second: the peak of a process cannot be set back."""

    def __enter__(self) -> PeakMemory:
        self.start = self.peak = self._now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.01):
            self.peak = max(self.peak, self._now())

    @staticmethod
    def _now() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()


def table(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    X, group = make_blobs(
        options.rows + options.queries, options.columns, centers=20, random_state=0, cluster_std=3.0
    )
    noise = np.random.default_rng(0).normal(size=len(X)) * X[:, 0].std()
    return X, ((X[:, 0] + noise > np.median(X[:, 0])) ^ (group % 2 == 0)).astype(int)


def network(options: argparse.Namespace, folder: str) -> Any:
    if options.network == "embedded":
        return "embedded"
    torch.manual_seed(0)
    path = Path(folder) / "official.ckpt"
    torch.save({"config": OFFICIAL, "state_dict": TabICL(**OFFICIAL).state_dict()}, path)
    return path


def run(options: argparse.Namespace, way: str) -> dict[str, Any]:
    X, y = table(options)
    pool, queries = X[options.queries :], X[: options.queries]
    cuda = options.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = (
            {"strategy": "full"} if way == "full" else {"context_size": options.budget}
        )
        started = time.perf_counter()
        model = CrumbClassifier(model=network(options, folder), device=options.device, **settings)
        model.fit(pool, y[options.queries :])
        fit_seconds = time.perf_counter() - started
        if way != "full":
            model.predict_proba(queries[: len(queries) // 2])
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds = []
        with PeakMemory() as memory:
            for _ in range(1 if way == "full" else options.repeats):
                started = time.perf_counter()
                proba = model.predict_proba(queries)
                seconds.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() if cuda else memory.peak - memory.start
    right = float((proba.argmax(1) == y[: options.queries]).mean())
    return {
        "way": way,
        "seconds": round(min(seconds), 3),
        "fit_seconds": round(fit_seconds, 3),
        "peak_gb": round(peak / 1e9, 3),
        "process_peak_gb": round(memory.peak / 1e9, 3),
        "accuracy": round(right, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--budget", type=int, default=1_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--network", choices=["embedded", "official"], default="embedded")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records = []
    for way in ("crumb", "full"):
        if way not in options.skip:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                records.append(pool.apply(run, (options, way)))
            print(records[-1], flush=True)
    if options.out:
        settings = {
            key: value for key, value in vars(options).items() if key not in ("out", "skip")
        }
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
