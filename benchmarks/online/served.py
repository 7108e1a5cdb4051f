"""A table, and ``crumb serve`` on it in a process of its own: what the benchmarks of the service share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd

from crumb import CrumbClassifier

COLUMNS = 10
TARGET = "y"


def table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three blobs a direction, so that clusters are there; the label needs two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS))
    X[:, :2] += rng.choice([-3.0, 0.0, 3.0], size=(rows, 2))
    return X, (X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0).astype(int)


def names() -> list[str]:
    return [f"x{i}" for i in range(COLUMNS)]


def write_train(path: Path, rows: int) -> None:
    X, y = table(rows, 0)
    pd.DataFrame(X, columns=names()).assign(**{TARGET: y}).to_parquet(path)


def fitted(path: Path, clusters: int, context: int, **more: Any) -> CrumbClassifier:
    """The estimator that the server makes of the same file."""
    frame = pd.read_parquet(path)
    model = CrumbClassifier(n_clusters=clusters, context_size=context, **more)
    return model.fit(frame.drop(columns=TARGET), frame[TARGET].to_numpy())


class Served:
    """A server that is ready when the constructor returns; ``command`` replaces ``crumb serve``."""

    def __init__(self, *words: Any, log: Path, command: list[Any] | None = None):
        command = command or [sys.executable, "-m", "crumb", "serve"]
        started = time.monotonic()
        with log.open("a") as file:
            self.process = subprocess.Popen(
                [*map(str, command), "--port", "0", "--json", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000")},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the server did not start: {log.read_text()[-500:]}")
        self.seconds_to_ready = time.monotonic() - started
        self.url: str = json.loads(line)["url"]

    def memory(self) -> int:
        """Resident bytes (Linux)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def metrics(self) -> dict[str, float]:
        lines = httpx.get(self.url + "/metrics", timeout=30).text.splitlines()
        return {
            name: float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")
        }

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(120)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
