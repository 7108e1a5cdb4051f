"""Work that goes wrong, for tests of engines: in a module that workers import in no time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crumb.errors import InvalidInput


def once(mark: Path) -> bool:
    """Whether this is the first time, in whatever process."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@dataclass(frozen=True)
class Task:
    number: int
    path: str = "some.parquet"


def square(task: int) -> int:
    time.sleep(0.01 * (task % 3))
    return task * task


@dataclass(frozen=True)
class DieOnce:
    """The worker that gets a certain task is killed, the first time."""

    folder: Path
    at: int = 3

    def __call__(self, task: Task) -> int:
        if task.number == self.at and once(self.folder / "died"):
            os.kill(os.getpid(), signal.SIGKILL)
        return task.number


class DieAlways:
    def __call__(self, task: Task) -> int:
        if task.number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task.number


class Poisoned:
    def __call__(self, task: Task) -> int:
        if task.number == 3:
            raise InvalidInput(f"{task.path} cannot be read.")
        return task.number


@dataclass(frozen=True)
class Beat:
    """Goes on for a long time, and shows that it does."""

    folder: Path

    def __call__(self, task: Task) -> int:
        for _ in range(600):
            (self.folder / f"beat-{task.number}").write_text(str(time.time()))
            time.sleep(0.1)
        return task.number


def beats(folder: Path) -> set[Any]:
    return {(path.name, path.stat().st_mtime_ns) for path in folder.glob("beat-*")}


def interrupted(results: Iterable[Any], folder: Path) -> None:
    """Ctrl-C in the main thread while it waits for results and two tasks are under way."""
    main = threading.main_thread().ident

    def when_under_way() -> None:
        while len(beats(folder)) < 2:
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=when_under_way, daemon=True).start()
    list(results)
