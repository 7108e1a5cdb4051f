"""The results: JSON lines, one a finished run, appended and forced to disk before the next run is counted as done.

A process that is killed while it writes leaves at most one line without its end. That line is cut off when the file is
opened again, and its run repeated: nothing that was finished is lost, and nothing is there twice.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from crumb.bench.protocol import key_of
from crumb.errors import InvalidInput
from crumb.files import atomic_write

FAILED = ("error", "timeout")  # ended, but not well; "missing" was never tried, and is tried again every time


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """All complete rows of a results file."""
    content = Path(path).read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    rows = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "status" not in row or "protocol" not in row:
            raise InvalidInput(f"{path} is no file of benchmark results: line {number} is not a row.")
        rows.append(row)
    return rows


class Store:
    """A results file that is open for one campaign; ``done`` holds the keys of the runs that need not be repeated.

    ``planned`` are the keys of the runs of the campaign: of the others, such as those of another protocol in the same
    file, every row stays.
    """

    def __init__(
        self, path: str | Path, resume: bool = False, retry_failed: bool = False, planned: Collection[str] = ()
    ):
        self.path = Path(path)
        self.planned = frozenset(planned)
        self.done: set[str] = set()
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder: give the name of a file in it.")
        there = self.path.exists() and self.path.stat().st_size > 0
        if there and not resume:
            raise InvalidInput(f"{self.path} already holds results: --resume continues it, or give another name.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("ab")
        try:
            _lock(self._file, self.path)
            if there:
                self._tidy(retry_failed)
        except BaseException:
            self._file.close()
            raise

    def _tidy(self, retry_failed: bool) -> None:
        """Keep one row a run, and none of those that will be run again."""
        rows = read_rows(self.path)
        again = ("missing", *FAILED) if retry_failed else ("missing",)
        keyed = {key_of(row): row for row in rows}
        kept = {key: row for key, row in keyed.items() if row["status"] not in again or key not in self.planned}
        if len(kept) < len(rows) or not self.path.read_bytes().endswith(b"\n"):
            with atomic_write(self.path) as file:
                file.writelines(map(_line, kept.values()))
            self._file.close()
            self._file = self.path.open("ab")  # the name now belongs to another file
            _lock(self._file, self.path)
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
        if self.path.exists() and not self.path.stat().st_size:  # nothing came of it: leave nothing
            self.path.unlink()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(_finite(row), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    """NaN and infinity as null: JSON has no word for them."""
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
        raise InvalidInput(f"Another `crumb bench run` is writing to {path}.") from error


def by_status(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    return counts
