"""The parts of a service put together, started, and taken down in order."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crumb.online import CrumbOnline, Observer
from crumb.serve.app import make_app
from crumb.serve.history import History
from crumb.serve.limits import Limits
from crumb.serve.memory import few_arenas, trim
from crumb.serve.metrics import Metrics
from crumb.serve.schema import Schema
from crumb.serve.server import many_files, run
from crumb.serve.service import NAME, Service
from crumb.serve.snapshot import PlanArchive, Snapshots, write_schema
from crumb.serve.timer import Timer

TRIM_EVERY = 15.0  # seconds


@dataclass(frozen=True)
class Options:
    name: str = NAME
    limits: Limits = field(default_factory=Limits)
    state: Path | None = None
    snapshot_every: float = 300.0
    drift_every: float = 30.0
    grace: float = 0.0
    keep_plans: bool = False  # beside the snapshots
    learn: bool = False
    as_json: bool = False  # the line that says where it answers


class Several(Observer):
    """Tells each of several observers everything."""

    def __init__(self, *observers: Observer):
        self._observers = observers

    def answered(self, waits: list[float]) -> None:
        self._tell("answered", waits)

    def passed(self, cluster: int, rows: int, seconds: float) -> None:
        self._tell("passed", cluster, rows, seconds)

    def failed(self, rows: int, error: BaseException) -> None:
        self._tell("failed", rows, error)

    def refreshed(self, version: int, seconds: float) -> None:
        self._tell("refreshed", version, seconds)

    def refresh_failed(self, error: BaseException) -> None:
        self._tell("refresh_failed", error)

    def looked(self, drift: Any) -> None:
        self._tell("looked", drift)

    def _tell(self, what: str, *about: Any) -> None:
        for observer in self._observers:
            getattr(observer, what)(*about)


def run_service(
    make_stream: Callable[[Observer], tuple[CrumbOnline, Schema]],
    bound: socket.socket,
    options: Options,
) -> None:
    """Serve until SIGTERM; the last snapshot is written when everything accepted is answered."""
    many_files()
    few_arenas()
    metrics, history = Metrics(), History()
    observers: list[Observer] = [metrics, history]
    if options.keep_plans and options.state is not None:
        observers.append(archive := PlanArchive(options.state))
    stream, schema = make_stream(Several(*observers))
    with stream:
        snapshots = None
        if options.state is not None:
            options.state.mkdir(parents=True, exist_ok=True)
            write_schema(options.state, schema)
            if options.keep_plans:
                archive.stream = stream
                archive.keep()
            snapshots = Snapshots(stream, options.state, metrics)
            snapshots.write()
        timers = [
            Timer(options.drift_every, Looks(stream), "crumb-drift"),
            Timer(TRIM_EVERY, trim, "crumb-memory"),
        ]
        if snapshots is not None:
            timers.append(Timer(options.snapshot_every, snapshots.write, "crumb-snapshots"))
        keep = None if snapshots is None else snapshots.keep
        service = Service(stream, schema, options.limits, options.name, keep)
        app = make_app(service, metrics, history, learn=options.learn)
        try:
            run(app, service, bound, options.grace, options.as_json)
        finally:
            for timer in timers:
                timer.stop()
            service.intake.close()
            stream.close()
            if snapshots is not None:
                snapshots.write()


class Looks:
    """Looks for drift when queries have come since the last look, also where no refresh depends on it."""

    def __init__(self, stream: CrumbOnline):
        self._stream, self._seen = stream, stream.stats().accepted

    def __call__(self) -> None:
        accepted = self._stream.stats().accepted
        if accepted != self._seen:
            self._stream.drift()
            self._seen = accepted
