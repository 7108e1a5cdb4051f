"""Tasks that go through a network together, and queries that go through it in pieces."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
import torch

from crumb.table.encoder import Rows

T = TypeVar("T")
A = TypeVar("A")


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
        stop = min(start + size, len(rows))
        index: slice | np.ndarray = slice(start, stop)
        if filling := -(stop - start) % multiple:
            index = np.minimum(np.arange(start, stop + filling), stop - 1)
        found.append(rows.iloc[index] if isinstance(rows, pd.DataFrame) else rows[index])
    return found
