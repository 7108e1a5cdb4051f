"""Learned rows on disk before they are acknowledged: an append-only log beside the snapshot.

The log is SQLite's (``synchronous=FULL``, write-ahead): a commit is on disk when it returns, a
commit that fails leaves nothing, and one process at a time holds the file, which locks the folder.
Many requests share a commit. A snapshot makes what it contains superfluous in the log.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from crumb.errors import InvalidInput, PlanMismatch
from crumb.online import CrumbOnline
from crumb.online.memory import LabelledRows
from crumb.serve.bodies import learn_request
from crumb.serve.limits import Refusal
from crumb.serve.schema import Record, Schema
from crumb.serve.turns import Turns

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
