"""Many runs: handed to worker processes, each under a time limit, each recorded the moment it ends."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from multiprocessing.connection import Connection, wait
from typing import Any

from crumb.bench.dataset import Source
from crumb.bench.protocol import Run
from crumb.bench.store import Store
from crumb.bench.worker import Execute, serve
from crumb.errors import CrumbError

START_SECONDS = 300.0  # within which a worker must have imported everything
Row = dict[str, Any]


@dataclass
class Campaign:
    """How runs are carried out."""

    sources: Mapping[str, Source]
    store: Store
    timeout: float
    device: str = "auto"
    jobs: int = 1
    execute: Execute | None = None  # None: run.execute
    advance: Callable[[int], object] = lambda done: None

    def carry_out(self, runs: Sequence[Run]) -> list[Row]:
        """Do all runs that the store does not have; returns their rows. Ctrl-C leaves no process behind."""
        todo = deque(run for run in runs if run.key not in self.store.done)
        self._rows: list[Row] = []
        self._environment: dict[str, Any] = {}
        workers = [self._hire() for _ in range(min(self.jobs, len(todo)))]
        try:
            while todo or any(worker.run for worker in workers):
                for worker in workers:
                    if worker.ready and worker.run is None and todo:
                        worker.give(todo.popleft(), self)
                self._listen(workers)
        finally:
            for worker in workers:
                worker.end()
        return self._rows

    def _hire(self) -> _Worker:
        from crumb.bench.run import execute

        threads = None if self.jobs == 1 else max(1, (os.cpu_count() or 1) // self.jobs)
        return _Worker(self.execute or execute, self.device, threads)

    def _listen(self, workers: list[_Worker]) -> None:
        """Wait for whatever happens next: news, a death, or the end of somebody's time."""
        now = time.monotonic()
        waiting = [worker for worker in workers if worker.run or not worker.ready]
        patience = min(worker.deadline for worker in waiting) - now if waiting else 0.0
        heard = wait([worker.link for worker in waiting], timeout=max(0.0, patience))
        for place, worker in enumerate(workers):
            if worker.link in heard:
                try:
                    kind, content = worker.link.recv()
                except (EOFError, OSError):
                    workers[place] = self._bury(worker, "error", worker.death())
                    continue
                self._hear(worker, kind, content)
            elif worker in waiting and time.monotonic() >= worker.deadline:
                workers[place] = self._bury(worker, "timeout", f"The run took longer than {self.timeout:g} s.")

    def _hear(self, worker: _Worker, kind: str, content: Any) -> None:
        if kind == "ready":
            worker.ready, self._environment = True, content
        elif kind == "prepared":
            worker.deadline = time.monotonic() + self.timeout
        else:
            assert worker.run is not None
            self._record(worker.run, content)
            worker.run = None

    def _bury(self, worker: _Worker, status: str, message: str) -> _Worker:
        """Record what a worker did not finish, and put another in its place."""
        from crumb.bench.run import outcome

        worker.end()
        if not worker.ready:
            raise CrumbError(f"A worker process could not start: {message}")
        if worker.run is not None:
            self._record(worker.run, outcome(status, message))
        return self._hire()

    def _record(self, run: Run, found: Mapping[str, Any]) -> None:
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        row = {**run.identity, **found, **self._environment, "when": when}
        self.store.append(row)
        self._rows.append(row)
        self.advance(1)


class _Worker:
    """One process, seen from the parent."""

    def __init__(self, execute: Execute, device: str, n_jobs: int | None):
        # Spawned, not forked: torch and CUDA do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.link: Connection
        self.link, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, execute, device, n_jobs), daemon=True)
        self.process.start()
        other.close()  # ours; the worker's own copy ends with it, and its death is then heard here
        self.ready = False
        self.run: Run | None = None
        self.deadline = time.monotonic() + START_SECONDS

    def give(self, run: Run, campaign: Campaign) -> None:
        self.run, self.deadline = run, time.monotonic() + campaign.timeout
        with suppress(OSError):  # it has died in its sleep, which the next listening finds out
            self.link.send((run, campaign.sources[run.dataset]))

    def death(self) -> str:
        self.process.join(5)
        return f"The process ended by itself (exit code {self.process.exitcode}), as when memory runs out."

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.link.close()
