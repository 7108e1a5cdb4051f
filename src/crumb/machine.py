"""The machine and the process: devices, threads, warnings and progress bars.

Herding is thousands of short operations. Torch splits each of them over threads, which then wait
for each other every time: on a busy machine that is much slower than one thread. So here each
thread takes whole blocks of the pool and works on them alone. The blocks do not depend on the
number of threads, and so neither does the answer.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from numbers import Integral
from typing import Any

from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput

DEVICES = ("auto", "cpu", "cuda", "mps")
UNKNOWN = 1 << 62  # bytes: nobody says how many are free

MapBlocks = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def resolve_device(device: str) -> str:
    """``"auto"`` takes a GPU that is there; a GPU that is asked for by name must be."""
    import torch

    kind = device.partition(":")[0] if isinstance(device, str) else None
    if kind not in DEVICES:
        raise InvalidInput(f"Unknown device {device!r}: choose one of {', '.join(DEVICES)}.")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there["cpu"] = True
    if device == "auto":
        return next(name for name, found in there.items() if found)
    if not there.get(kind):
        raise InvalidInput(f"The device {device!r} is not available here: use 'cpu' or 'auto'.")
    return device


def out_of_memory(error: BaseException) -> bool:
    """Whether this is what it looks like when memory runs out, of the machine or of a GPU."""
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    on_cpu = "can't allocate memory"
    return isinstance(error, RuntimeError) and on_cpu in str(error)


def collect_garbage(device: str) -> None:
    """Free memory: errors refer in circles to what filled it."""
    import torch

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def free_bytes(device: str) -> int:
    """What may be taken of the memory of a CUDA GPU, some left over; elsewhere nobody knows."""
    import torch

    if not device.startswith("cuda"):
        return UNKNOWN
    # Torch keeps what it has freed for the next tensors.
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(0.8 * (torch.cuda.mem_get_info(device)[0] + idle))


# Torch has one number of threads for the whole process. While one of ours has changed it, "as many
# as torch may use" means the number before the first change.
_threads = threading.Lock()
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

    with _threads:
        if not _changed:
            _usual = torch.get_num_threads()
        _changed += 1
        torch.set_num_threads(resolve_jobs(n_jobs))
    try:
        yield
    finally:
        with _threads:
            _changed -= 1
            torch.set_num_threads(_usual)


_blas_users = 0
_blas_limits: Any = None


@contextmanager
def blas_in_one_thread() -> Iterator[None]:
    """Matrix products of this process in one thread each.

    There is one limit for the whole process. It is lifted when its last user leaves: if all put
    back what they have found, the limit of another thread could stay for good.
    """
    global _blas_users, _blas_limits
    with _threads:
        if not _blas_users:
            _blas_limits = threadpool_limits(1, "blas")
        _blas_users += 1
    try:
        yield
    finally:
        with _threads:
            _blas_users -= 1
            if not _blas_users:
                _blas_limits.restore_original_limits()


@contextmanager
def one_thread() -> Iterator[None]:
    """All compiled code that this thread calls, in one thread."""
    with threadpool_limits(1, "openmp"), blas_in_one_thread():  # OpenMP has a limit per thread
        yield


def block_threads(n_jobs: int | None, device: str = "cpu") -> AbstractContextManager[MapBlocks]:
    """A ``map`` for work on blocks; a GPU gets the plain one."""
    jobs = resolve_jobs(n_jobs) if device == "cpu" else 1
    return task_threads(jobs, jobs)


@cache
def keep_freed_memory() -> None:
    """Fresh memory takes up to a tenth of a pass, so the process keeps what is freed.

    glibc keeps twice the size of the largest block that was ever freed, if that had at most 32 MiB.
    """
    bytes(31 << 20)


@contextmanager
def task_threads(n_jobs: int | None, tasks: int) -> Iterator[MapBlocks]:
    """A ``map`` for up to this many tasks at a time; few tasks get several threads each."""
    jobs = resolve_jobs(n_jobs)
    workers = max(1, min(jobs, tasks))
    keep_freed_memory()
    with torch_threads(jobs // workers):  # new threads take this over
        if workers == 1:
            yield map
        else:
            with ThreadPoolExecutor(workers, thread_name_prefix="crumb") as executor:
                yield executor.map


# Which warnings this thread (or asyncio task) holds back. Python's filters are one list for the
# whole process, and to change it for a while would need a lock around all the work.
_held_back: ContextVar[tuple[Callable[[str], bool], ...]] = ContextVar("held back", default=())


class _HeldBackHere:
    """Stands in a warning filter where Python has a regular expression."""

    pattern = "(?!)"  # for copies of the filter, such as scikit-learn makes: matches nothing

    def match(self, text: str) -> bool:
        return any(holds(text) for holds in _held_back.get())


_FILTER: Any = ("ignore", _HeldBackHere(), Warning, None, 0)


@contextmanager
def hold_back(holds: Callable[[str], bool]) -> Iterator[None]:
    """Show no warning of this thread whose text ``holds``; other threads notice nothing."""
    filters: Any = warnings.filters
    if not filters or filters[0] is not _FILTER:  # users and tests put filters in front, too
        with suppress(ValueError):
            filters.remove(_FILTER)
        filters.insert(0, _FILTER)
    before = _held_back.set((*_held_back.get(), holds))
    try:
        yield
    finally:
        _held_back.reset(before)


def quiet(*texts: str) -> AbstractContextManager[None]:
    """Hold back warnings that begin with one of these texts; all of them if none is given."""
    return hold_back(lambda text: text.startswith(texts or ""))


def said_once(said: set[str]) -> AbstractContextManager[None]:
    """Show each warning only the first time; ``said`` remembers. Packages warn in every pass."""

    def holds(text: str) -> bool:
        if text in said:
            return True
        said.add(text)
        return False

    return hold_back(holds)


Advance = Callable[..., object]  # moves a progress bar on, as ``no_progress`` does not


def no_progress(steps: int, more: int = 0) -> None:
    """For work that nobody watches. ``more``: steps that were not foreseen."""


@contextmanager
def progress_bar(total: int, what: str, verbose: int | bool) -> Iterator[Advance]:
    """A function that advances a bar on standard error, or one that does nothing."""
    if not verbose:
        yield no_progress
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=what, leave=False, dynamic_ncols=True) as bar:

        def advance(steps: int, more: int = 0) -> None:
            bar.total += more
            bar.update(steps)

        yield advance
