"""The state of a service on disk: on a timer and at exit, whole or not at all."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from crumb.errors import InvalidInput, PlanMismatch
from crumb.files import atomic_write
from crumb.online import CrumbOnline, Observer
from crumb.online.child import Child
from crumb.serve.journal import Journal
from crumb.serve.schema import Schema
from crumb.serve.watch import Metrics, event, where

STREAM, SCHEMA = "stream.crumb", "columns.json"


class Snapshots:
    """Writes the stream to a folder; where that fails, the last good snapshot stays."""

    def __init__(
        self, stream: CrumbOnline, folder: Path, metrics: Metrics, journal: Journal | None = None
    ):
        self._stream, self._folder, self._metrics = stream, folder, metrics
        self._journal = journal
        self._saved: tuple[int, ...] | None = None
        self._lock = threading.Lock()  # the timer and the exit may meet

    def write(self) -> bool:
        """Whether the snapshot on disk is of now."""
        with self._lock:
            stats = self._stream.stats()
            state = (stats.accepted, stats.answered, stats.version, stats.taught)
            if state == self._saved:
                return True
            started = time.monotonic()
            try:
                self._stream.save(self._folder / STREAM)
                _sync(self._folder)
                if self._journal is not None:
                    self._journal.forget(before=stats.taught)  # at least these are in it
            except Exception as error:  # a full disk must not end the service
                self._metrics.snapshots.labels("failed").inc()
                about = {"errno": getattr(error, "errno", None), **where(error)}
                event("snapshot failed, the last one stays", logging.ERROR, **about)
                return False
            self._saved = state
            self._metrics.snapshots.labels("written").inc()
            self._metrics.snapshot_time.set_to_current_time()
            seconds = round(time.monotonic() - started, 3)
            event("snapshot written", version=stats.version, seconds=seconds)
            return True


def _sync(folder: Path) -> None:
    """The new name of a file is on disk: the log may forget what the file contains."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class PlanArchive(Observer):
    """Keeps the plan of every version: an answer names its version, and can be made again."""

    def __init__(self, stream: CrumbOnline, folder: Path):
        self._stream, self._folder = stream, folder
        self._keep()

    def refreshed(self, version: int, seconds: float) -> None:
        try:
            self._keep()
        except OSError as error:
            event("a plan could not be kept", logging.ERROR, **where(error))

    def _keep(self) -> None:
        current = self._stream.current
        current.plan.save(self._folder / f"plan-{current.number}.crumb")


def has_snapshot(folder: Path) -> bool:
    return (folder / STREAM).exists()


def write_schema(folder: Path, schema: Schema) -> None:
    with atomic_write(folder / SCHEMA) as file:
        file.write(schema.to_json())


def restore(
    folder: Path,
    observer: Observer | Sequence[Observer],
    allow_missing: bool,
    builder: Child | None = None,
) -> tuple[CrumbOnline, Schema]:
    """The stream of a snapshot, and its columns (of its pool, where no file has them)."""
    if not has_snapshot(folder):
        said = f"There is no snapshot in {folder}: start with --train and --target once."
        raise InvalidInput(said)
    stream = CrumbOnline.load(folder / STREAM, observer=observer, builder=builder)
    if not (folder / SCHEMA).exists():
        return stream, Schema.of(stream.estimator.pool_.rows, allow_missing)
    schema = Schema.from_json((folder / SCHEMA).read_bytes())
    try:
        schema.check(stream.estimator)
    except Exception as error:
        stream.close()
        said = f"{folder / SCHEMA} does not fit the table in {folder / STREAM}: {error}"
        raise PlanMismatch(said) from error
    return stream, schema
