"""Queries that wait for a pass: one buffer a cluster.

A buffer is due when it is full enough, or when its oldest query has waited long enough. Knows
neither threads nor models and is told the time, so that it can be tested without waiting.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import chain
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
        self._deadlines: dict[Item, tuple[float, Key]] = {}  # from then on: no pass
        self._hurried: set[Key] = set()

    def add(
        self, items: Sequence[tuple[Key, Item]], now: float, deadline: float | None = None
    ) -> float:
        """Take all of the items or none; returns the time at which the first buffer is due.

        Items are due after ``timeout``, and after half of their deadline (in seconds) at the
        latest.
        """
        self.check_room(len(items))
        due = now + (self.timeout if deadline is None else min(self.timeout, deadline / 2))
        for key, item in items:
            self._buffers.setdefault(key, {})[item] = due
            if deadline is not None:
                self._deadlines[item] = now + deadline, key
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
        passes = (min(buffer.values()) for buffer in self._buffers.values())
        deadlines = (when for when, _ in self._deadlines.values())
        return min(chain(passes, deadlines), default=math.inf)

    def expired(self, now: float) -> list[Item]:
        """Remove the items whose deadline has come; they stay pending until they are ``done``."""
        late = [(item, key) for item, (when, key) in self._deadlines.items() if when <= now]
        for item, key in late:
            self._remove(key, item)
        return [item for item, _ in late]

    def take(self, key: Key) -> list[Item]:
        """Empty a buffer; its items stay pending until they are ``done``."""
        self._hurried.discard(key)
        items = list(self._buffers.pop(key))
        for item in items if self._deadlines else ():
            self._deadlines.pop(item, None)
        return items

    def done(self, count: int) -> None:
        self.pending -= count

    def discard(self, key: Key, item: Item) -> bool:
        """Forget an item that was cancelled; False where it was taken already."""
        if item not in self._buffers.get(key, {}):
            return False
        self._remove(key, item)
        self.pending -= 1
        return True

    def _remove(self, key: Key, item: Item) -> None:
        del self._buffers[key][item]
        self._deadlines.pop(item, None)
        if not self._buffers[key]:
            self.take(key)

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
