"""Threads over blocks of the pool.

Herding is thousands of short operations. Torch splits each of them over threads, which then wait
for each other every time: on a busy machine that is much slower than one thread. So here each
thread takes whole blocks and works on them alone. The blocks do not depend on the number of
threads, and so neither does the answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from crumb.errors import InvalidInput

MapBlocks = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]


# Torch has one number of threads for the whole process. While one of ours has changed it, "as many
# as torch may use" means the number before the first change.
_lock = threading.Lock()
_changed = 0
_usual = 0


def resolve_jobs(n_jobs: int | None) -> int:
    """How many threads: None means as many as torch may use, −1 all cores, −2 all but one."""
    import torch

    if n_jobs is None:
        return _usual if _changed else torch.get_num_threads()
    if not isinstance(n_jobs, Integral) or isinstance(n_jobs, bool) or n_jobs == 0:
        raise InvalidInput(f"n_jobs must be a whole number other than 0, or None; got {n_jobs!r}.")
    cores = os.cpu_count() or 1
    return min(cores, int(n_jobs)) if int(n_jobs) > 0 else max(1, cores + 1 + int(n_jobs))


@contextmanager
def torch_threads(n_jobs: int | None) -> Iterator[None]:
    """Run torch with ``n_jobs`` threads (None: as many as it has), then as before."""
    global _changed, _usual
    import torch

    with _lock:
        if not _changed:
            _usual = torch.get_num_threads()
        _changed += 1
        torch.set_num_threads(resolve_jobs(n_jobs))
    try:
        yield
    finally:
        with _lock:
            _changed -= 1
            torch.set_num_threads(_usual)


@contextmanager
def block_threads(n_jobs: int | None, device: str = "cpu") -> Iterator[MapBlocks]:
    """A ``map`` for work on blocks; a GPU gets the plain one."""
    jobs = resolve_jobs(n_jobs)
    with torch_threads(1):  # new threads take this over
        if jobs == 1 or device != "cpu":
            yield map
        else:
            with ThreadPoolExecutor(jobs, thread_name_prefix="crumb") as executor:
                yield executor.map
