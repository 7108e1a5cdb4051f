"""Queries that wait for a pass: one buffer a cluster.

A buffer is due when it is full enough, or when its oldest query has waited long enough. Knows
neither threads nor models and is told the time, so that it can be tested without waiting.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from crumb.errors import StreamFull

Item = TypeVar("Item", bound=Hashable)
Key = tuple[int, int]  # version of the plan, cluster: queries of two plans never share a pass


class Buffers(Generic[Item]):
    """At most ``max_pending`` items that were added and are not yet ``done``, in order."""

    def __init__(self, b_min: int, timeout: float, max_pending: int):
        self.b_min, self.timeout, self.max_pending = b_min, timeout, max_pending
        self.pending = 0  # items in a buffer, and items that were taken and are not done
        self._buffers: dict[Key, dict[Item, float]] = {}  # each item with the time it is due
        self._hurried: set[Key] = set()

    def add(self, items: Sequence[tuple[Key, Item]], now: float) -> float:
        """Take all of the items or none; returns the time at which the first buffer is due."""
        self.check_room(len(items))
        due = now + self.timeout
        for key, item in items:
            self._buffers.setdefault(key, {})[item] = due
        self.pending += len(items)
        return now if any(len(self._buffers[key]) >= self.b_min for key, _ in items) else due

    def check_room(self, count: int) -> None:
        if self.pending + count > self.max_pending:
            raise StreamFull(
                f"{self.pending} queries wait for an answer and {count} more would exceed "
                f"max_pending={self.max_pending}; try again when some are answered."
            )

    def due(self, now: float) -> Key | None:
        """The buffer to be answered now: of those that are due, the one with the oldest query."""
        due = [
            (first, key)
            for key, buffer in self._buffers.items()
            if (first := min(buffer.values())) <= now
            or len(buffer) >= self.b_min
            or key in self._hurried
        ]
        return min(due)[1] if due else None

    def next_due(self) -> float:
        """When there is something to do even if nothing more comes; infinity where none waits."""
        return min((min(buffer.values()) for buffer in self._buffers.values()), default=math.inf)

    def take(self, key: Key) -> list[Item]:
        """Empty a buffer; its items stay pending until they are ``done``."""
        self._hurried.discard(key)
        return list(self._buffers.pop(key))

    def done(self, count: int) -> None:
        self.pending -= count

    def discard(self, key: Key, item: Item) -> bool:
        """Forget an item that was cancelled; False where it was taken already."""
        if item not in self._buffers.get(key, {}):
            return False
        del self._buffers[key][item]
        if not self._buffers[key]:
            self.take(key)
        self.pending -= 1
        return True

    def hurry(self) -> None:
        """Everything that waits is due now; what comes later is not."""
        self._hurried.update(self._buffers)

    def take_all(self) -> list[Item]:
        return [item for key in list(self._buffers) for item in self.take(key)]

    def waiting(self) -> list[Item]:
        return [item for buffer in self._buffers.values() for item in buffer]

    def versions(self) -> set[int]:
        """Of the plans that items wait for."""
        return {number for number, _ in self._buffers}

    def fill(self, version: int) -> dict[int, int]:
        """How many queries wait in each cluster of one plan; empty clusters are left out."""
        mine = {key: buffer for key, buffer in self._buffers.items() if key[0] == version}
        return {cluster: len(buffer) for (_, cluster), buffer in mine.items()}
