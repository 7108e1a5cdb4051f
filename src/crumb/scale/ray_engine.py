"""The same work on a Ray cluster: shards are tasks, passes run on actors with the network loaded.

Ray decides where things run, and runs again what was lost with a worker or a node. We keep few
tasks in flight and results in order, name the shard in an error, and leave nothing running.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from crumb.errors import extra
from crumb.pfn.base import TOGETHER, Backend, BackendSettings, ContextTask, Output, Tasks
from crumb.scale.engine import Engine, Result, WorkerDied, describe

OBJECT_STORE_BYTES = 1_000_000_000  # of a cluster that we start ourselves
PATIENCE = 5.0  # seconds in which tasks whose results are not wanted may end by themselves
# What is the same wherever passes run.
SAME: tuple[str, ...] = ("name", "path", "outputs", "window", "max_classes", "work", "bytes")
SAME += ("missing_is_a_value", "scales_targets")
Waiting = deque[tuple[str, Any]]  # what is under way, and the reference to its result


@dataclass(eq=False)
class RayEngine(Engine):
    """Ray tasks for shards and Ray actors for passes.

    Parameters
    ----------
    address : str or None, default=None
        Of a running cluster: ``"auto"``, ``"host:6379"``, ``"ray://host:10001"``. None: the one
        that this process is attached to, that of ``RAY_ADDRESS``, or a new one on this machine.
    in_flight : int or None, default=None
        Shards, and contexts for each actor, that are under way at most. None: two for each core,
        and two for each actor.
    actor_cpus : float, default=2
        Cores of an actor. There are as many actors as the cluster has room for.
    actor_gpus : float, default=1
        GPUs of an actor in their place, where the cluster has any. 0 leaves them alone.
    retries : int, default=3
        How often what was lost with a worker, an actor or a node is run again.

    Examples
    --------
    >>> from crumb import CrumbClassifier
    >>> CrumbClassifier(engine=RayEngine(in_flight=64)).engine.retries
    3
    """

    address: str | None = None
    in_flight: int | None = None
    actor_cpus: float = 2
    actor_gpus: float = 1
    retries: int = 3

    def __post_init__(self) -> None:
        ray_package()  # a missing package shows before the work

    def start(self) -> Any:
        """Ray, attached to a cluster; what the user has attached it to counts."""
        ray = ray_package()
        if not ray.is_initialized():
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
            address = self.address or os.environ.get("RAY_ADDRESS")
            if address is None:  # Ray would join any cluster that it finds on this machine
                options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            ray.init(address=address or "local", **options)
        return ray

    def map(
        self, function: Callable[[Any], Result], tasks: Iterable[Any], total: int
    ) -> Iterator[Result]:
        ray = self.start()
        call = ray.remote(scheduling_strategy="SPREAD", max_retries=self.retries)(_call)
        shared = ray.put(function)
        most = self.in_flight or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        started = ((f"scoring {describe(task)}", call.remote(shared, task)) for task in tasks)
        waiting: Waiting = deque()
        try:
            yield from _in_order(ray, started, most, waiting)
        finally:
            _end(ray, [reference for _, reference in waiting])

    def backend(self, backend: Backend) -> Backend:
        return OnActors(backend, self)


class OnActors(Backend):
    """A back-end whose passes run elsewhere.

    Actors start with the first pass. A context that comes again goes to the actor that keeps it.
    """

    def __init__(self, inner: Backend, engine: RayEngine):
        vars(self).update({name: getattr(inner, name) for name in SAME})
        self.inner, self.engine = inner, engine
        self._actors: list[Any] = []

    @property
    def settings(self) -> BackendSettings:
        return self.inner.settings

    @settings.setter
    def settings(self, settings: BackendSettings) -> None:
        self.inner.settings = settings

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        ray = self.engine.start()
        size, tasks = TOGETHER if self._start(ray) else 1, iter(tasks)
        actors = self._actors

        def start(number: int, group: list[ContextTask]) -> tuple[str, Any]:
            key = group[0].key
            turn = number if key is None else int.from_bytes(key[:4], "big")
            return f"pass {number}", actors[turn % len(actors)].run.remote(group, output)

        groups = iter(lambda: list(islice(tasks, size)), [])
        started = (start(number, group) for number, group in enumerate(groups))
        most = (self.engine.in_flight or 2) * len(actors)
        waiting: Waiting = deque()
        try:
            for answers in _in_order(ray, started, most, waiting):
                yield from answers
        finally:
            if waiting:
                self.close()  # what an actor has begun cannot be called back

    def close(self) -> None:
        """End the actors."""
        ray = ray_package()
        while self._actors:
            ray.kill(self._actors.pop())

    def _start(self, ray: Any) -> bool:
        """Actors, unless they are there; whether they have GPUs."""
        there = ray.cluster_resources()
        gpus = bool(self.engine.actor_gpus and there.get("GPU", 0))
        if not self._actors:
            cores = min(self.engine.actor_cpus, there.get("CPU", 1))
            # Actors stay between passes. They reserve no cores: the shards of the next plan would
            # wait for these for ever, and so would an actor whose node is gone.
            each = {"num_cpus": 0, **({"num_gpus": self.engine.actor_gpus} if gpus else {})}
            count = there["GPU"] // self.engine.actor_gpus if gpus else there.get("CPU", 1) // cores
            each |= {"max_restarts": self.engine.retries, "max_task_retries": self.engine.retries}
            runner = ray.remote(scheduling_strategy="SPREAD", **each)(_Runner)
            inner, device = copy(self.inner), "cuda" if gpus else "cpu"
            inner.settings = replace(inner.settings, device=device, n_jobs=max(1, int(cores)))
            self._actors = [runner.remote(inner) for _ in range(max(1, int(count)))]
        return gpus

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_actors": []}


class _Runner:
    def __init__(self, backend: Backend):
        self.backend = backend

    def run(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        return list(self.backend.predict_contexts(tasks, output))


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    return function(task)


def _in_order(
    ray: Any, started: Iterator[tuple[str, Any]], most: int, waiting: Waiting
) -> Iterator[Any]:
    """Results in the order of their tasks, at most ``most`` of which are ``waiting``."""
    while True:
        waiting.extend(islice(started, most - len(waiting)))
        if not waiting:
            return
        what, reference = waiting[0]
        try:
            result = ray.get(reference)
        except ray.exceptions.RayTaskError as error:  # the function itself failed
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise WorkerDied(
                f"Ray gave up {what} after several attempts ({type(error).__name__}): workers may "
                "lack memory; what is done can be resumed."
            ) from error
        waiting.popleft()
        yield result


def _end(ray: Any, left: list[Any]) -> None:
    """Leave no task behind.

    A task that is cancelled as it ends can bring down the whole process (a race in Ray). Shards
    take about a second, so they are given the time. What still runs then is cancelled.
    """
    try:
        if left:
            _, left = ray.wait(left, num_returns=len(left), timeout=PATIENCE, fetch_local=False)
    finally:
        for reference in left:
            ray.cancel(reference, force=True)


def ray_package() -> Any:
    with extra("ray", "engine='ray'"):
        import ray
        import ray.exceptions
    return ray
