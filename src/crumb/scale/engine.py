"""Who does the work: one small interface, and its implementation with processes. ``ray_engine.py`` has the other.

An engine maps a function over tasks, hands the results back in order, keeps few tasks in flight, survives the death of
a worker, and leaves nothing running behind. Tasks are taken from their iterator only when they are started, so a late
task may know what the early ones found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from crumb.errors import CrumbError, InvalidInput
from crumb.parallel import resolve_jobs

if TYPE_CHECKING:
    from crumb.pfn.base import Backend

Result = TypeVar("Result")
DEATHS = 2  # workers that may die over the same tasks before we give up at the next
IDLE_SECONDS = 30
_executors: dict[int, Any] = {}  # by the number of processes


class WorkerDied(CrumbError, RuntimeError):
    """Workers died over and over; what was done so far is not lost where the work can be resumed."""


class Engine(ABC):
    """Where shards are scored and passes run."""

    name: str

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

    name = "local"

    def __init__(self, n_jobs: int | None = None, in_flight: int = 2):
        self.n_jobs, self.in_flight = n_jobs, in_flight

    def map(
        self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int
    ) -> Iterator[Result]:
        jobs = min(resolve_jobs(self.n_jobs), total)
        if jobs <= 1:
            yield from map(function, tasks)
            return
        yield from self._in_processes(function, iter(tasks), jobs)

    def _in_processes(
        self, function: Callable[[Any], Result], tasks: Iterator[Any], jobs: int
    ) -> Iterator[Result]:
        from joblib.externals.loky.process_executor import BrokenProcessPool

        waiting: deque[tuple[Any, Any]] = deque()  # tasks and their results to come
        started: Iterator[Any] = iter(())  # tasks to be started again
        deaths = 0
        try:
            while True:
                try:
                    for task in islice(chain(started, tasks), self.in_flight * jobs - len(waiting)):
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
                            f"Worker processes were killed {deaths} times at {describe(waiting[0])}, perhaps for want "
                            f"of memory: use fewer of them (n_jobs=1)."
                        ) from error
                    started = chain([task for task, _ in waiting], started)
                    waiting.clear()
                    continue
                waiting.popleft()
                deaths = 0
                yield result
        except Exception:
            for _, future in waiting:
                future.cancel()
            raise
        except BaseException:  # Ctrl-C, or nobody listens any more
            if waiting and jobs in _executors:
                _executors.pop(jobs).shutdown(wait=False, kill_workers=True)
            raise


def _processes(jobs: int) -> Any:
    """Processes that stay for the next pass, and end when nothing comes for a while.

    Of loky, which joblib brings: unlike the standard library's they do not run the user's script again. Not those that
    joblib shares: scikit-learn back-ends use these at the same time.
    """
    from joblib.externals.loky.backend import get_context
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    if jobs not in _executors:
        _executors[jobs] = ProcessPoolExecutor(
            jobs, context=get_context("loky"), timeout=IDLE_SECONDS
        )
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
