"""What a process that runs for months needs: work done now and then, files, little memory."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from crumb.serve.watch import event, where

if TYPE_CHECKING:
    from crumb.online import CrumbOnline

MOST_FILES = 65_536
ARENAS = 2
M_ARENA_MAX = -8  # of mallopt(3)


@contextlib.contextmanager
def repeated(every: float, call: Callable[[], object], name: str) -> Iterator[None]:
    """Calls something every ``every`` seconds (0: never) in a thread, until the block ends.

    The end waits for what is under way; nothing comes after it.
    """
    stop = threading.Event()

    def once() -> None:
        try:
            call()
        except Exception as error:  # the next time may go better
            event("a timer's work failed", logging.ERROR, **where(error))

    def run() -> None:
        while not stop.wait(every):
            once()

    thread = threading.Thread(target=run, name=name, daemon=True)
    if every > 0:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join()


def looking(stream: CrumbOnline) -> Callable[[], None]:
    """Looks for drift where queries came since the last look, whether or not a refresh needs it."""
    seen = stream.stats().accepted

    def look() -> None:
        nonlocal seen
        accepted = stream.stats().accepted
        if accepted != seen:
            stream.drift()
            seen = accepted

    return look


def many_files() -> None:
    """As many connections as the system lets this process have: the usual 1,024 files are few."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


# Memory that is no longer used goes back to the system (Linux with glibc). A plan that was replaced
# leaves holes the size of its contexts in the allocator's arenas, of which every thread has one.
# Few arenas, and a trim now and then, keep the service as small as on its first day.


def few_arenas() -> None:
    """To be said before threads are started."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)


def trim() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
