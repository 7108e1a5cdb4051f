"""What the tests of crumb.serve share: ``crumb serve`` in a process, and a table for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd

FAST = ("--context-size", "40", "--n-clusters", "3", "--drift-every", "0")
SMALL = ("--snapshot-every", "0", *FAST)
JSON = {"Content-Type": "application/json"}


def table(rows: int = 240, seed: int = 0) -> pd.DataFrame:
    """Numbers, missing values, truth values and text, with a target of text."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows))
    city = rng.choice(["Rome", "Oslo", "Lima"], rows)
    frame = pd.DataFrame({"a": a, "b": b, "old": rng.random(rows) < 0.5, "city": city})
    frame["animal"] = np.where(a + (city == "Rome") > 0, "cat", "dog")
    frame.loc[::9, "b"] = np.nan
    return frame


def records(rows: int, seed: int = 1) -> list[dict[str, Any]]:
    frame = table(rows, seed).drop(columns="animal").astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(records).astype({"a": float, "b": float, "old": float})


# One process imports the heavy modules and forks a child for each server: a start takes a second.
_FORKS = multiprocessing.get_context("forkserver")
HEAVY = ["crumb.cli.serve", "crumb.serve.process", "crumb.pfn.tabicl", "tabicl"]
_FORKS.set_forkserver_preload(HEAVY)


def _serve(words: list[str], token: str | None, out: Connection, err: Connection) -> None:
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    if token is not None:
        os.environ["CRUMB_TOKEN"] = token
    from crumb.cli import main

    sys.exit(main(["serve", "--port", "0", "--json", *words]))


class Server:
    """``crumb serve`` in a process of its own, on a free port; ready when this returns."""

    def __init__(self, *words: object, token: str | None = None):
        pipes = [_FORKS.Pipe(duplex=False) for _ in range(2)]
        args = (list(map(str, words)), token, *(end for _, end in pipes))
        self.started = time.monotonic()
        self.process = _FORKS.Process(target=_serve, args=args, daemon=True)
        self.process.start()
        for _, end in pipes:
            end.close()
        out, self._err = (os.fdopen(os.dup(end.fileno())) for end, _ in pipes)
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = out.readline()
        assert line, "".join(self.log)
        self.url: str = json.loads(line)["url"]
        self.seconds_to_ready = time.monotonic() - self.started
        headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
        self.http = httpx.Client(base_url=self.url, timeout=60, headers=headers)

    def _read(self) -> None:
        self.log.extend(self._err)

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def predict(self, rows: list[dict[str, Any]], **more: Any) -> httpx.Response:
        return self.http.post("/predict", json={"records": rows, **more})

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels, or the one whose labels are given."""
        lines = [
            line for line in self.http.get("/metrics").text.splitlines() if line.startswith(name)
        ]
        assert lines, name
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal, wait for the end; the exit status."""
        with suppress(ProcessLookupError):  # it may end at any moment
            if self.process.is_alive():
                os.kill(self.process.pid, number)
        status = self.wait(timeout)
        self._reader.join(10)
        self.http.close()
        return status

    def wait(self, timeout: float = 60) -> int:
        """The exit status of a process that is about to end."""
        self.process.join(timeout)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.stop()


def train_words(folder: Path) -> list[object]:
    path = folder / "train.csv"
    table().to_csv(path, index=False)
    return ["--train", path, "--target", "animal"]


def eventually(holds: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
