"""Memory that is no longer used goes back to the system (Linux with glibc; elsewhere not).

A plan that was replaced leaves holes the size of its contexts in the allocator's arenas, of which
every thread has one. Few arenas, and a trim now and then, keep the size of a service that runs for
months what it was on its first day.
"""

from __future__ import annotations

import contextlib
import ctypes

ARENAS = 2
M_ARENA_MAX = -8  # of mallopt(3)


def few_arenas() -> None:
    """To be said before threads are started."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(M_ARENA_MAX, ARENAS)


def trim() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
