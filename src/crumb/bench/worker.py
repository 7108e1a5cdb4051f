"""A process that does runs one after the other, and can be killed at any time without loss.

Tables and networks stay loaded between runs. It says when a run is prepared (the table read, the network warm), so that the
time limit is that of the method.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from crumb.bench.dataset import Dataset, Source
from crumb.bench.protocol import Run

Execute = Callable[[Run, Dataset, str, "int | None"], dict[str, Any]]
KEPT_BYTES = 1 << 30  # of tables
WARM_ROWS = 40


def serve(link: Connection, execute: Execute, device: str, n_jobs: int | None) -> None:
    """Answer (run, source) with what came out, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_follow_parent, daemon=True).start()
    os.environ["GOMP_SPINCOUNT"] = os.environ.get("GOMP_SPINCOUNT", "1000")
    import torch

    from crumb.bench.environment import environment
    from crumb.bench.run import failure
    from crumb.devices import resolve_device

    if n_jobs is not None:
        torch.set_num_threads(n_jobs)
    link.send(("ready", environment(resolve_device(device))))
    tables, warm = Tables(), set[tuple[str, str]]()
    while True:
        try:
            run, source = link.recv()
        except EOFError:
            return
        try:
            dataset = tables.get(source)
            if (run.model, run.task) not in warm:
                warm_up(run, device)
                warm.add((run.model, run.task))
            link.send(("prepared", None))
            found = execute(run, dataset, device, n_jobs)
        except Exception as error:  # whatever a method, a model or a table does wrong costs this run only
            found = failure(error)
        link.send(("done", found))


def warm_up(run: Run, device: str) -> None:
    """Load the network and start its kernels: nobody's cost."""
    import numpy as np

    from crumb.estimator import CrumbClassifier, CrumbRegressor

    X = np.random.default_rng(0).normal(size=(WARM_ROWS, 3))
    kind = CrumbClassifier if run.task == "classification" else CrumbRegressor
    y = (X[:, 0] > 0).astype(int) if run.task == "classification" else X[:, 0]
    kind(model=run.model, device=device, strategy="uniform", context_size=20, cache_size=0).fit(X, y).predict(X[:2])


class Tables:
    """Tables that were loaded, as many as fit; the one asked for longest ago goes first."""

    def __init__(self, most: int = KEPT_BYTES):
        self.most = most
        self._kept: OrderedDict[Source, tuple[Dataset, int]] = OrderedDict()

    def get(self, source: Source) -> Dataset:
        if source not in self._kept:
            dataset = source.load()
            self._kept[source] = dataset, int(dataset.X.memory_usage(deep=True).sum())
        self._kept.move_to_end(source)
        while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self.most:
            self._kept.popitem(last=False)
        return self._kept[source][0]


def _follow_parent() -> None:
    """A parent that was killed cannot tell its workers: they must not go on without it."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        sys.stderr = None  # type: ignore[assignment]
        os._exit(1)
