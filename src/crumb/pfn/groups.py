"""Tasks that can go through a network together: taken a bounded number at a time, answered in their own order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

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

    At most ``most`` of ``size`` is held at a time, or one task.
    """
    for held in bounded(tasks, size, most):
        groups: dict[Hashable, list[int]] = {}
        for i, task in enumerate(held):
            groups.setdefault(key(task), []).append(i)
        answers: dict[int, A] = {}
        for members in groups.values():
            answers.update(zip(members, run([held[i] for i in members]), strict=True))
        yield from (answers.pop(i) for i in range(len(held)))


def halved(
    tasks: list[T],
    run: Callable[[list[T]], Sequence[A]],
    alone: Callable[[T], A],
    too_large: type[Exception],
) -> list[A]:
    """Answers to a group, which ``too_large`` splits in two, and again down to single tasks."""
    if len(tasks) == 1:
        return [alone(tasks[0])]
    try:
        return list(run(tasks))
    except too_large:
        pass  # out of the handler before another try: the error holds on to what filled the memory
    middle = len(tasks) // 2
    return [
        answer
        for half in (tasks[:middle], tasks[middle:])
        for answer in halved(half, run, alone, too_large)
    ]


def bounded(tasks: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Tasks are made one by one; at most ``most`` of ``size``, or one task, are taken together."""
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


def padded(rows: Rows, multiple: int) -> Rows:
    """A multiple of so many rows, the last one repeated: queries do not see each other."""
    if len(rows) % multiple == 0:
        return rows
    index = np.minimum(np.arange(len(rows) + -len(rows) % multiple), len(rows) - 1)
    return rows.iloc[index] if isinstance(rows, pd.DataFrame) else rows[index]
