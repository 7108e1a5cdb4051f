"""A process that does runs one after the other, and can be killed at any time without loss.

Tables and networks stay loaded between runs. The worker says when a run is prepared (the table
read, the network warm), so that the time limit is that of the method.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from experiments.dataset import Dataset, Source
from experiments.protocol import Run

Execute = Callable[[Run, Dataset, str, "int | None"], dict[str, Any]]
KEPT_BYTES = 1 << 30  # of tables
WARM_ROWS = 40


def serve(link: Connection, execute: Execute, device: str, n_jobs: int | None) -> None:
    """Answer (run, source) with what came out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent acts
    threading.Thread(target=_follow_parent, daemon=True).start()
    import torch

    from crumb.machine import resolve_device
    from experiments.environment import environment
    from experiments.run import failure

    if n_jobs is not None:
        torch.set_num_threads(n_jobs)
    link.send(("ready", environment(resolve_device(device))))
    tables, models = Tables(), Models(device)
    while True:
        try:
            run, source = link.recv()
        except EOFError:
            return
        try:
            dataset = tables.get(source)
            models.warm_up(run)
            link.send(("prepared", None))
            found = execute(run, dataset, device, n_jobs)
        except Exception as error:  # a broken method, model or table costs this run only
            found = failure(error)
        link.send(("done", found))


class Models:
    """Networks that were loaded. A missing one is looked for once, not for each of many runs."""

    def __init__(self, device: str):
        self.device = device
        self._tried: dict[tuple[str, str], Exception | None] = {}

    def warm_up(self, run: Run) -> None:
        """Load the network and start its kernels, which is no method's cost."""
        key = run.model, run.task
        if key not in self._tried:
            self._tried[key] = _error_of(lambda: _first_pass(run, self.device))
        if (error := self._tried[key]) is not None:
            raise error


class Tables:
    """Loaded tables, up to some bytes; the least recently used goes. A broken one fails once."""

    def __init__(self, most: int = KEPT_BYTES):
        self.most = most
        self._kept: OrderedDict[Source, tuple[Dataset, int]] = OrderedDict()
        self._failed: dict[Source, Exception] = {}

    def get(self, source: Source) -> Dataset:
        if source not in self._kept and source not in self._failed:
            error = _error_of(lambda: self._load(source))
            if error is not None:
                self._failed[source] = error
        if source in self._failed:
            raise self._failed[source]
        self._kept.move_to_end(source)
        while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self.most:
            self._kept.popitem(last=False)
        return self._kept[source][0]

    def _load(self, source: Source) -> None:
        dataset = source.load()
        self._kept[source] = dataset, int(dataset.X.memory_usage(deep=True).sum())


def _first_pass(run: Run, device: str) -> None:
    import numpy as np

    from experiments.run import estimator

    X = np.random.default_rng(0).normal(size=(WARM_ROWS, 3))
    y = (X[:, 0] > 0).astype(int) if run.task == "classification" else X[:, 0] + X[:, 1]
    estimator(run, device, strategy="uniform", context_size=20).fit(X, y).predict(X[:2])


def _error_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def _follow_parent() -> None:
    """End with the parent: one that was killed cannot stop its workers."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
