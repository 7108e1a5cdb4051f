"""Contexts that go through a network together, in pieces, or once more."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch

from crumb.pfn.base import Backend, Call, ContextTask, NetworkBackend
from crumb.table.encoder import Rows
from crumb.table.row import take

T = TypeVar("T")
A = TypeVar("A")
MOST_KEYS = 100_000  # for which the time of the last request is remembered


def in_groups(
    tasks: Iterable[T],
    key: Callable[[T], Hashable],
    run: Callable[[list[T]], Sequence[A]],
    size: Callable[[T], int],
    most: int,
) -> Iterator[A]:
    """Answers in the order of the tasks, where ``run`` answers tasks of one key together.

    The tasks that are held at a time have at most the size ``most`` in all, unless one is larger.
    """
    for held in bounded(tasks, size, most):
        groups: dict[Hashable, list[int]] = {}
        for i, task in enumerate(held):
            groups.setdefault(key(task), []).append(i)
        answers: dict[int, A] = {}
        for members in groups.values():
            answers.update(zip(members, run([held[i] for i in members]), strict=True))
        yield from (answers.pop(i) for i in range(len(held)))


def bounded(tasks: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Tasks in lists of at most the size ``most``, or of one task. None is made too early."""
    held: list[T] = []
    room = most
    for task in tasks:
        if held and size(task) > room:
            yield held
            held, room = [], most
        held.append(task)
        room -= size(task)
    if held:
        yield held


def halved(
    tasks: list[T], run: Callable[[list[T]], Sequence[A]], alone: Callable[[T], A]
) -> list[A]:
    """Answers to a group, which is split in two when memory runs out, down to single tasks."""
    if len(tasks) == 1:
        return [alone(tasks[0])]
    try:
        return list(run(tasks))
    except torch.OutOfMemoryError:
        pass  # leave the handler first: the error holds on to what filled the memory
    torch.cuda.empty_cache()
    middle = len(tasks) // 2
    return halved(tasks[:middle], run, alone) + halved(tasks[middle:], run, alone)


def pieces(rows: Rows, size: int, multiple: int = 1) -> list[Rows]:
    """Rows in pieces of ``size``; where a piece is no ``multiple``, its last row is repeated.

    Queries do not see each other, so neither changes an answer.
    """
    found = []
    for start in range(0, len(rows), size):
        count = min(size, len(rows) - start)
        index = np.arange(start, start + count + -count % multiple)
        found.append(take(rows, np.minimum(index, len(rows) - 1)))
    return found


class ContextCache(Generic[T]):
    """What a network has made of contexts, for the next queries that share them, up to a budget.

    A new context takes the place only of contexts that nobody has asked for since the new one was
    last asked for. So a plan that does not quite fit keeps most of its contexts. To drop the least
    recently used one instead would drop each one just before it is needed.
    """

    def __init__(self, budget: int):
        self.budget, self.used = budget, 0
        self._kept: dict[bytes, tuple[T, int]] = {}
        self._asked: dict[bytes, int] = {}  # when each key, kept or not, was last asked for
        self._clock = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ContextCache[T]], tuple[int]]:
        return type(self), (self.budget,)  # a copy or a pickle begins empty

    def get_or(self, key: bytes, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """What is kept under a key, or what ``make`` makes."""
        with self._lock:
            self._clock += 1
            before = self._asked.get(key, 0)  # the first time, nothing gives way
            self._asked[key] = self._clock
            if key in self._kept:
                return self._kept[key][0]
        thing = make()
        with self._lock:
            self._put(key, thing, size_of(thing), before)
        return thing

    def _put(self, key: bytes, thing: T, size: int, before: int) -> None:
        idle = [other for other in self._kept if self._asked[other] < before]
        free = self.budget - self.used
        if key in self._kept or size > free + sum(self._kept[other][1] for other in idle):
            return
        for other in sorted(idle, key=self._asked.__getitem__):
            if size <= self.budget - self.used:
                break
            self.used -= self._kept.pop(other)[1]
        self._kept[key] = thing, size
        self.used += size
        self._asked.setdefault(key, self._clock)  # it may have been dropped while it was made
        if len(self._asked) > MOST_KEYS:
            self._asked = {other: self._asked[other] for other in self._kept}

    def drop(self, keys: Iterable[bytes] | None = None) -> None:
        """Forget what will not be asked for again: these keys, or all."""
        with self._lock:
            for key in list(self._kept) if keys is None else keys:
                self.used -= self._kept.pop(key, (None, 0))[1]
                self._asked.pop(key, None)

    def keys(self) -> set[bytes]:
        with self._lock:
            return set(self._kept)

    def has_room(self, key: bytes, size: int) -> bool:
        """Whether something is kept, or could be without taking the place of anything else."""
        return key in self._kept or size <= self.budget - self.used

    def __len__(self) -> int:
        return len(self._kept)


class KeepingBackend(NetworkBackend):
    """A network whose contexts are kept where they will come again.

    ``travels``: what it makes of a context can be pickled, without the network.
    """

    travels: ClassVar[bool] = False

    def open(self) -> None:
        self.contexts: ContextCache[Any] = ContextCache(self.settings.cache_bytes)

    @abstractmethod
    def fitted(self, task: ContextTask) -> Any:
        """What answers the queries of a context: from ``contexts``, or made now."""

    @abstractmethod
    def kept_bytes(self, task: ContextTask) -> int:
        """Of what is kept of a context, about."""

    @abstractmethod
    def size_of(self, made: Any) -> int:
        """Bytes of what is kept of a context."""

    def kept_under(self, task: ContextTask) -> bytes | None:
        """The key of a context that may be kept; None: it may not."""
        fits = task.keep and self.kept_bytes(task) <= self.settings.cache_bytes
        return task.key if fits else None

    def keep(self, task: ContextTask, call: Call | None = None) -> None:
        key = self.kept_under(task)
        if key is None or not self.contexts.has_room(key, self.kept_bytes(task)):
            return
        if call is None or not self.travels or self.settings.device != "cpu":
            self.made(task)
        else:
            self.contexts.get_or(key, lambda: call(self.made, task), self.size_of)

    def made(self, task: ContextTask) -> Any:
        """``fitted``, while no other thread uses the network."""
        with self.alone():
            return self.fitted(task)

    def forget(self, keys: Iterable[bytes] | None = None) -> None:
        self.contexts.drop(keys)

    def share(self, other: Backend) -> None:
        if type(other) is type(self):
            self.contexts = other.contexts


def tensor_bytes(thing: Any) -> int:
    """Bytes of all tensors in nested dictionaries and dataclasses."""
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if isinstance(thing, dict):
        return sum(map(tensor_bytes, thing.values()))
    if is_dataclass(thing):
        return sum(tensor_bytes(getattr(thing, field.name)) for field in fields(thing))
    return 0
