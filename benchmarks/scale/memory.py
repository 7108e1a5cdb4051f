"""Resident memory of a process and all its descendants, from /proc (Linux)."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(root: int) -> int:
    """Of a process and everything that it started."""
    parents, pages = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
        except (OSError, IndexError):  # it has just ended
            continue
        parents[int(entry.name)] = int(fields[1])
    family, found = {root}, True
    while found:
        found = {child for child, parent in parents.items() if parent in family} - family
        family |= found
    return PAGE * sum(pages.get(process, 0) for process in family)


class Peak:
    """The most that was resident while the block ran, looked at ten times a second."""

    def __init__(self) -> None:
        self.bytes, self._over = 0, threading.Event()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.bytes = max(self.bytes, resident_bytes(os.getpid()))

    def __enter__(self) -> Peak:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.bytes = max(self.bytes, resident_bytes(os.getpid()))
