"""Many runs: given to worker processes, each under a time limit, each recorded when it ends."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from multiprocessing.connection import Connection, wait
from typing import Any

from crumb.errors import CrumbError
from experiments.dataset import Source
from experiments.protocol import Run
from experiments.run import execute, outcome
from experiments.store import Row, Store
from experiments.worker import Execute, serve

START_SECONDS = 300.0  # in which a worker must have imported everything


@dataclass
class Campaign:
    """How runs are done, and the rows that came out."""

    sources: Mapping[str, Source]
    store: Store
    timeout: float
    device: str = "auto"
    jobs: int = 1
    execute: Execute = execute
    advance: Callable[[int], object] = lambda done: None
    rows: list[Row] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)

    def carry_out(self, runs: Sequence[Run]) -> list[Row]:
        """Do all runs that the store lacks; returns their rows. Ctrl-C leaves no process behind."""
        todo = deque(run for run in runs if run.key not in self.store.done)
        workers = [self._start() for _ in range(min(self.jobs, len(todo)))]
        try:
            while todo or any(worker.run for worker in workers):
                for worker in workers:
                    if worker.ready and worker.run is None and todo:
                        run = todo.popleft()
                        worker.give(run, self.sources[run.dataset], self.timeout)
                self._wait(workers)
        finally:
            for worker in workers:
                worker.end()
        return self.rows

    def _start(self) -> Worker:
        threads = None if self.jobs == 1 else max(1, (os.cpu_count() or 1) // self.jobs)
        return Worker(self.execute, self.device, threads)

    def _wait(self, workers: list[Worker]) -> None:
        """Until something happens: a message, the death of a worker, or the end of its time."""
        busy = [worker for worker in workers if worker.run or not worker.ready]
        deadline = min((worker.deadline for worker in busy), default=0.0)
        links = [worker.link for worker in busy]
        spoke = wait(links, timeout=max(0.0, deadline - time.monotonic()))
        for place, worker in enumerate(workers):
            if worker.link in spoke:
                try:
                    self._receive(worker, *worker.link.recv())
                except (EOFError, OSError):
                    workers[place] = self._replace(worker, "error", worker.death())
            elif worker in busy and time.monotonic() >= worker.deadline:
                message = f"The run took longer than {self.timeout:g} s."
                workers[place] = self._replace(worker, "timeout", message)

    def _receive(self, worker: Worker, kind: str, content: Any) -> None:
        if kind == "ready":
            worker.ready, self.environment = True, content
        elif kind == "prepared":
            worker.deadline = time.monotonic() + self.timeout
        elif worker.run is not None:
            self._record(worker.run, content)
            worker.run = None

    def _replace(self, worker: Worker, status: str, message: str) -> Worker:
        """Record what a worker did not finish, and start another in its place."""
        worker.end()
        if not worker.ready:
            raise CrumbError(f"A worker process could not start: {message}")
        if worker.run is not None:
            self._record(worker.run, outcome(status, message))
        return self._start()

    def _record(self, run: Run, found: Mapping[str, Any]) -> None:
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        row = {**run.identity, **found, **self.environment, "when": when}
        self.store.append(row)
        self.rows.append(row)
        self.advance(1)


class Worker:
    """One process, seen from the parent."""

    def __init__(self, execute: Execute, device: str, n_jobs: int | None):
        # Spawned, not forked: torch and CUDA do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.link: Connection
        self.link, other = context.Pipe()
        arguments = (other, execute, device, n_jobs)
        self.process = context.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        other.close()  # the worker has its own copy, so its death closes the link
        self.ready = False
        self.run: Run | None = None
        self.deadline = time.monotonic() + START_SECONDS

    def give(self, run: Run, source: Source, timeout: float) -> None:
        self.run, self.deadline = run, time.monotonic() + timeout
        with suppress(OSError):  # if it has died, the next wait finds out
            self.link.send((run, source))

    def death(self) -> str:
        self.process.join(5)
        code = self.process.exitcode
        return f"The process ended by itself (exit code {code}), as when memory runs out."

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.link.close()
