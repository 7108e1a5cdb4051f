"""Who does the work: one small interface, and its implementation with processes. ``ray_engine.py`` has the other.

An engine maps a function over tasks, hands the results back in order, keeps few tasks in flight, survives the death of
a worker, and leaves nothing running behind. Tasks are taken from their iterator only when they are started, so a late
task may know what the early ones found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from crumb.errors import CrumbError, InvalidInput
from crumb.parallel import resolve_jobs

if TYPE_CHECKING:
    from crumb.pfn.base import Backend

Result = TypeVar("Result")
DEATHS = 3  # workers that may die over the same tasks before we give up


class WorkerDied(CrumbError, RuntimeError):
    """Workers died over and over; what was done so far is not lost where the work can be resumed."""


class Engine(ABC):
    """Where shards are scored and passes run."""

    name: str

    @abstractmethod
    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int) -> Iterator[Result]:
        """``function`` of every task, in order. ``total``: how many there are."""

    def backend(self, backend: Backend) -> Backend:
        """The model where this engine runs it."""
        return backend


class LocalEngine(Engine):
    """Processes on this machine; with one job, or one task, this process itself."""

    name = "local"

    def __init__(self, n_jobs: int | None = None, in_flight: int = 2):
        self.n_jobs, self.in_flight = n_jobs, in_flight

    def map(self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int) -> Iterator[Result]:
        jobs = min(resolve_jobs(self.n_jobs), total)
        if jobs <= 1:
            yield from map(function, tasks)
            return
        yield from self._in_processes(function, iter(tasks), jobs)

    def _in_processes(self, function: Callable[[Any], Result], tasks: Iterator[Any], jobs: int) -> Iterator[Result]:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        started: list[Any] = []  # tasks whose results are not here yet: those that a dead worker takes with it
        deaths = 0

        def calls(again: list[Any]) -> Iterator[Any]:
            for task in again:
                yield delayed(function)(task)
            for task in tasks:
                started.append(task)
                yield delayed(function)(task)

        while True:
            work = Parallel(jobs, pre_dispatch=self.in_flight * jobs, batch_size=1, return_as="generator")
            results = work(calls(list(started)))
            try:
                for result in results:
                    started.pop(0)
                    deaths = 0
                    yield result
                return
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths >= DEATHS:
                    raise WorkerDied(
                        f"Worker processes were killed {deaths} times at {_describe(started)}, perhaps for want of "
                        f"memory: use fewer of them (n_jobs=1)."
                    ) from error
            finally:
                results.close()


def _describe(tasks: Iterable[Any]) -> str:
    first = next(islice(tasks, 1), None)
    task = first[0] if isinstance(first, tuple) else first
    return str(getattr(task, "path", "the first task"))


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
