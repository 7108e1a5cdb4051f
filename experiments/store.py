"""The results: one JSON line for each finished run, forced to disk before the next one counts.

A process that is killed while it writes leaves at most one line without its end. That line is cut
off when the file is opened again, and its run repeated: no finished run is lost or there twice.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from experiments.protocol import key_of

Row = dict[str, Any]
NEEDED = ("protocol", "dataset", "method", "status")
FAILED = ("error", "timeout")  # "missing" was never tried, and is tried again every time


def parse_row(line: str | bytes) -> Row | None:
    """The row of a line, or None where the line is something else."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and all(row.get(name) for name in NEEDED) else None


def read_rows(path: str | Path) -> list[Row]:
    """All complete rows of a results file."""
    content = Path(path).read_bytes()
    rows = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        row = parse_row(line)
        if row is None:
            raise InvalidInput(f"{path} is no file of results: line {number} is not a row.")
        rows.append(row)
    return rows


class Store:
    """A results file that is open for one campaign; ``done`` holds the keys of its finished runs.

    ``planned`` are the keys of the campaign's runs. Rows of other runs in the file, such as those
    of another protocol, all stay.
    """

    def __init__(
        self,
        path: str | Path,
        resume: bool = False,
        retry_failed: bool = False,
        planned: Collection[str] = (),
    ):
        self.path = Path(path)
        self.planned = frozenset(planned)
        self.done: set[str] = set()
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder: give the name of a file in it.")
        there = self.path.exists() and self.path.stat().st_size > 0
        if there and not resume:
            raise InvalidInput(
                f"{self.path} already holds results: --resume continues it, or give another name."
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()
        try:
            if there:
                self._tidy(retry_failed)
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> IO[bytes]:
        file = self.path.open("ab")
        try:
            _lock(file, self.path)
        except BaseException:
            file.close()
            raise
        return file

    def _tidy(self, retry_failed: bool) -> None:
        """Keep one row for each run, and none of those that will be run again."""
        rows = read_rows(self.path)
        again = ("missing", *FAILED) if retry_failed else ("missing",)
        by_key = {key_of(row): row for row in rows}
        kept = {
            key: row
            for key, row in by_key.items()
            if row["status"] not in again or key not in self.planned
        }
        if len(kept) < len(rows) or not self.path.read_bytes().endswith(b"\n"):
            with atomic_write(self.path) as file:
                file.writelines(map(_line, kept.values()))
            self._file.close()
            self._file = self._open()  # the name now belongs to another file
        self.done = set(kept)

    def append(self, row: Mapping[str, Any]) -> None:
        """Returns when the row is on disk."""
        key = key_of(row)
        if key in self.done:
            return
        self._file.write(_line(row))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(key)

    def close(self) -> None:
        self._file.close()
        if self.path.exists() and not self.path.stat().st_size:  # no results: leave no empty file
            self.path.unlink()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(_finite(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """NaN and infinity as null, which is all that JSON has for them."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lock(file: IO[bytes], path: Path) -> None:
    """Two campaigns that write to one file would repeat each other's runs."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InvalidInput(f"Another campaign is writing to {path}.") from error
