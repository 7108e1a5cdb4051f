"""The parts of a service put together, started, and taken down in order."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

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
class ServeOptions:
    name: str = NAME
    limits: Limits = field(default_factory=Limits)
    state: Path | None = None
    snapshot_every: float = 300.0
    drift_every: float = 30.0
    grace: float = 0.0
    keep_plans: bool = False  # beside the snapshots
    learn: bool = False
    as_json: bool = False  # the line that says where it answers


def run_service(
    make_stream: Callable[[Sequence[Observer]], tuple[CrumbOnline, Schema]],
    bound: socket.socket,
    options: ServeOptions,
) -> None:
    """Serve until SIGTERM; the last snapshot is written when everything accepted is answered."""
    many_files()
    few_arenas()
    metrics, history, archive = Metrics(), History(), PlanArchive(options.state)
    observers = [metrics, history, *([archive] if options.keep_plans else [])]
    stream, schema = make_stream(observers)
    with ExitStack() as stack:
        keep = None
        if options.state is not None:
            snapshots = Snapshots(stream, options.state, metrics)
            keep = snapshots.keep
            options.state.mkdir(parents=True, exist_ok=True)
            write_schema(options.state, schema)
            if options.keep_plans:
                archive.start(stream)
            snapshots.write()
            stack.callback(snapshots.write)
        stack.callback(stream.close)
        service = Service(stream, schema, options.limits, options.name, keep)
        stack.callback(service.intake.close)
        stack.enter_context(Timer(options.drift_every, Looks(stream), "crumb-drift"))
        stack.enter_context(Timer(TRIM_EVERY, trim, "crumb-memory"))
        if options.state is not None:
            stack.enter_context(Timer(options.snapshot_every, snapshots.write, "crumb-snapshots"))
        app = make_app(service, metrics, history, learn=options.learn)
        run(app, service, bound, options.grace, options.as_json)


class Looks:
    """Looks for drift where queries came since the last look, whether or not a refresh needs it."""

    def __init__(self, stream: CrumbOnline):
        self._stream, self._seen = stream, stream.stats().accepted

    def __call__(self) -> None:
        accepted = self._stream.stats().accepted
        if accepted != self._seen:
            self._stream.drift()
            self._seen = accepted
