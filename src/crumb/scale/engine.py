"""Where the work runs: one small interface, and its implementation with processes.

An engine maps a function over tasks. Results come in order, few tasks are in flight, a dead worker
is replaced, and nothing is left running. Tasks are taken from their iterator when they start, so a
late task may know what early ones found. ``ray_engine.py`` does the same on a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from crumb.errors import CrumbError, InvalidInput
from crumb.machine import resolve_jobs

if TYPE_CHECKING:
    from crumb.pfn.base import Backend

Result = TypeVar("Result")
DEATHS = 2  # times that workers may die at the same tasks
IDLE_SECONDS = 30
IN_FLIGHT = 2  # tasks for each process
Waiting = deque[tuple[Any, Any]]  # tasks, and their results to come
_executors: dict[int, Any] = {}  # by the number of processes


class WorkerDied(CrumbError, RuntimeError):
    """Workers died again and again."""


class Engine(ABC):
    """Where shards are scored and passes run."""

    @abstractmethod
    def map(
        self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int
    ) -> Iterator[Result]:
        """``function`` of every task, in order. ``total``: how many there are."""

    def backend(self, backend: Backend) -> Backend:
        """The model where this engine runs it."""
        return backend


class LocalEngine(Engine):
    """Processes on this machine; with one job, or one task, this process itself."""

    def __init__(self, n_jobs: int | None = None):
        self.n_jobs = n_jobs

    def map(
        self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int
    ) -> Iterator[Result]:
        jobs = min(resolve_jobs(self.n_jobs), total)
        if jobs <= 1:
            yield from map(function, tasks)
            return
        waiting: Waiting = deque()
        try:
            yield from self._in_processes(function, iter(tasks), jobs, waiting)
        except Exception:
            for _, future in waiting:
                future.cancel()
            raise
        except BaseException:  # Ctrl-C, or the results are no longer wanted
            if waiting and jobs in _executors:
                _executors.pop(jobs).shutdown(wait=False, kill_workers=True)
            raise

    def _in_processes(
        self, function: Callable[[Any], Result], tasks: Iterator[Any], jobs: int, waiting: Waiting
    ) -> Iterator[Result]:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        deaths = 0
        while True:
            try:
                for task in islice(tasks, IN_FLIGHT * jobs - len(waiting)):
                    waiting.append((task, None))
                    waiting[-1] = (task, _processes(jobs).submit(function, task))
                if not waiting:
                    return
                result = waiting[0][1].result()
            except BrokenProcessPool as error:
                _executors.pop(jobs, None)
                deaths += 1
                if deaths > DEATHS:
                    raise WorkerDied(
                        f"Worker processes were killed {deaths} times at {describe(waiting[0])}, "
                        "perhaps for want of memory: use fewer of them (n_jobs=1)."
                    ) from error
                tasks = chain([task for task, _ in waiting], tasks)  # once more
                waiting.clear()
                continue
            waiting.popleft()
            deaths = 0
            yield result


def _processes(jobs: int) -> Any:
    """Processes that stay for the next pass, and end when no task comes for a while.

    They are loky's, which joblib brings: unlike the standard library's they do not run the user's
    script again. Not those that joblib shares: scikit-learn back-ends use these at the same time.
    """
    from joblib.externals.loky.backend import get_context
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    if jobs not in _executors:
        context = get_context("loky")
        _executors[jobs] = ProcessPoolExecutor(jobs, context=context, timeout=IDLE_SECONDS)
    return _executors[jobs]


def describe(task: Any) -> str:
    """The file of a task: a shard, or a tuple that begins with one."""
    while isinstance(task, tuple):
        task = task[0]
    return str(getattr(task, "path", "a task"))


def resolve_engine(engine: Any, n_jobs: int | None = None) -> Engine:
    """An engine by name, or the configured object itself."""
    if isinstance(engine, Engine):
        return engine
    if engine == "local":
        return LocalEngine(n_jobs)
    if engine == "ray":
        from crumb.scale.ray_engine import RayEngine

        return RayEngine()
    raise InvalidInput(f"Unknown engine {engine!r}: choose 'local' or 'ray', or pass a RayEngine.")
