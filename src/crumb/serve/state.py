"""What a service has on disk: learned rows before they are acknowledged, and snapshots.

The log of learned rows is SQLite's (``synchronous=FULL``, write-ahead): a commit is on disk when it
returns, a commit that fails leaves nothing, and one process at a time holds the file, which locks
the folder. Many requests share a commit. A snapshot, on a timer and at exit, is written whole or
not at all. It makes what it contains superfluous in the log.
"""

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import ValidationError

from crumb.errors import InvalidInput, PlanMismatch
from crumb.files import atomic_write
from crumb.online import CrumbOnline, Observer
from crumb.online.child import Child
from crumb.online.memory import LabelledRows
from crumb.serve.limits import Refusal
from crumb.serve.schema import Record, Schema, learn_request
from crumb.serve.watch import Metrics, event, where

Item = TypeVar("Item")
Result = TypeVar("Result")


class Turns(Generic[Item, Result]):
    """``work`` gets the items of a turn and gives a result for each.

    Where it raises, each item is tried alone: one is at fault, or not all find room.
    ``drop``: what to do with a result that nobody waits for any more.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], Sequence[Result]],
        drop: Callable[[Result], object] = lambda _: None,
    ):
        self._work, self._drop = work, drop
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._thread = ThreadPoolExecutor(1, name)
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> list[Item]:
        """What waits for the next turn."""
        return [item for item, _ in self._waiting]

    async def __call__(self, item: Item) -> Result:
        """The result for an item. An item that is cancelled before its turn is left out."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._pump is None:
            self._pump = asyncio.create_task(self._all())
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():  # both happened at once
                self._drop(done.result())
            raise

    async def _all(self) -> None:
        while self._waiting:
            turn, self._waiting = self._waiting, []
            await self._turn([one for one in turn if not one[1].done()])
        self._pump = None

    async def _turn(self, turn: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not turn:
            return
        loop, items = asyncio.get_running_loop(), [item for item, _ in turn]
        try:
            results = await loop.run_in_executor(self._thread, self._work, items)
        except Exception as error:
            if len(turn) > 1:
                for one in turn:
                    await self._turn([one])
            elif not turn[0][1].done():
                turn[0][1].set_exception(error)
            return
        for (_, done), result in zip(turn, results, strict=True):
            if done.done():  # cancelled
                self._drop(result)
            else:
                done.set_result(result)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


LOG = "learned.db"
MOST_LEARNED = 100_000  # labelled rows that may wait for the next refresh
AT_ONCE = 1_000  # entries that are read back together
# Bytes that the files have from the start: what SQLite logs between two checkpoints. The sync of a
# file that grows takes longer, most of all beside other writers (docs/serving.md).
ROOM = 1_000 * 4_096
PRAGMAS = ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL")
# ``first``: how many rows the stream had learned before those of this entry.
TABLE = """CREATE TABLE IF NOT EXISTS learned
    (first INTEGER PRIMARY KEY, rows INTEGER, came REAL, body BLOB)"""


class Entry(NamedTuple):
    first: int
    rows: int
    came: float  # seconds since 1970
    body: bytes  # of the request


class Journal:
    """The log of one folder; holds the folder until it is closed."""

    def __init__(self, folder: Path):
        self.folder, self._lock = folder, threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(folder / LOG, timeout=1.0, check_same_thread=False)
        try:
            for pragma in PRAGMAS:
                self._file.execute(f"PRAGMA {pragma}")
            self._file.execute(TABLE)
            self._make_room()  # takes the lock
        except sqlite3.DatabaseError as error:
            self._file.close()
            if "locked" in str(error):
                said = f"Another service uses the folder {folder}: stop it, or choose another one."
                raise InvalidInput(said) from error
            raise PlanMismatch(f"{folder / LOG} cannot be used: {error}.") from error
        for leftover in folder.glob(".*.part"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)

    def _make_room(self) -> None:
        """What is deleted leaves its place in the files to what comes."""
        with self._file:
            self._file.execute("REPLACE INTO learned VALUES (-1, 0, 0, zeroblob(?))", [ROOM])
        with self._file:
            self._file.execute("DELETE FROM learned WHERE first < 0")
        self._file.execute("PRAGMA wal_checkpoint")

    def append(self, entries: Sequence[Entry]) -> None:
        """All of them are on disk when this returns; where it raises, none is."""
        with self._lock, self._file:
            self._file.executemany("INSERT INTO learned VALUES (?, ?, ?, ?)", entries)

    def forget(self, before: int) -> None:
        """A snapshot has this many rows: entries that it contains are no longer needed."""
        with self._lock, self._file:
            self._file.execute("DELETE FROM learned WHERE first + rows <= ?", [before])

    def entries(self, first: int) -> Iterator[list[Entry]]:
        """What a stream that has learned ``first`` rows has yet to learn, in portions."""
        asked = "SELECT * FROM learned WHERE first + rows > ? ORDER BY first"
        with self._lock:
            found = self._file.execute(asked, [first])
            while portion := [Entry(*row) for row in found.fetchmany(AT_ONCE)]:
                if portion[0].first != first:
                    said = f"The log in {self.folder} goes on after {portion[0].first:,} rows, the"
                    raise PlanMismatch(
                        f"{said} snapshot after {first:,}: they do not fit together."
                    )
                first = portion[-1].first + portion[-1].rows
                yield portion

    def close(self) -> None:
        with self._lock:
            self._file.close()


class Lesson(NamedTuple):
    """A checked request of ``/learn``."""

    records: list[Record]
    labels: list[Any]
    body: bytes


class Teacher:
    """Takes lessons, many at once: they are checked, then on disk, then in the stream."""

    def __init__(self, stream: CrumbOnline, schema: Schema, journal: Journal | None):
        self._stream, self._schema, self._journal = stream, schema, journal
        self.learn: Turns[Lesson, int] = Turns("crumb-learn", self._turn)

    def replay(self) -> None:
        """Learn what the log has and the snapshot has not."""
        request = learn_request(self._schema, None, self._stream)
        for entries in self._journal.entries(self._stream.stats().taught) if self._journal else ():
            try:
                bodies: list[Any] = [request(**json.loads(entry.body)) for entry in entries]
                lessons = [Lesson(body.records, body.labels, b"") for body in bodies]
                read = self._read(lessons)
            except (InvalidInput, ValidationError, ValueError) as error:
                said = "The log of learned rows does not fit the table of the snapshot."
                raise PlanMismatch(said) from error
            dates = [entry.came for entry in entries]
            came = np.repeat(dates, [entry.rows for entry in entries])
            self._stream.add_labelled(replace(read, came=came))

    def _turn(self, lessons: list[Lesson]) -> list[int]:
        stats, rows = self._stream.stats(), sum(len(lesson.records) for lesson in lessons)
        if stats.learned + rows > MOST_LEARNED:
            said = f"{stats.learned:,} labelled rows wait for a refresh, at most"
            raise Refusal(503, "full", f"{said} {MOST_LEARNED:,} may.", retry_after=60)
        read = self._read(lessons)
        if self._journal is not None:
            self._keep(lessons, stats.taught)
        return [self._stream.add_labelled(read)] * len(lessons)

    def _read(self, lessons: list[Lesson]) -> LabelledRows:
        records = [record for lesson in lessons for record in lesson.records]
        labels = [label for lesson in lessons for label in lesson.labels]
        plain = [self._schema.row(record) for record in records]
        read = self._stream.current.read(plain, joining=True)
        if read is not None:
            return self._stream.label(read[0], labels)
        estimator = self._stream.estimator
        table = self._schema.table(records, estimator.pool_.columns)
        return self._stream.label([estimator.rows_to_join(table)], labels)

    def _keep(self, lessons: list[Lesson], first: int) -> None:
        assert self._journal is not None
        now, entries = time.time(), []
        for lesson in lessons:
            entries.append(Entry(first, len(lesson.records), now, lesson.body))
            first += len(lesson.records)
        try:
            self._journal.append(entries)
        except sqlite3.Error as error:
            said = "The rows could not be written to disk: try again later."
            raise Refusal(503, "disk", said, retry_after=60) from error


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
        raise InvalidInput(f"There is no snapshot in {folder}: start with --train and --target.")
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
