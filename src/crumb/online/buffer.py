"""Queries that wait for a pass: one buffer a cluster, each due when it is full enough or its oldest query is.

Knows neither threads nor models, and is told the time: everything here can be tested without waiting.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from crumb.errors import StreamFull

Item = TypeVar("Item", bound=Hashable)
Key = tuple[int, int]  # version of the plan, cluster: queries of two plans never share a pass


class Buffers(Generic[Item]):
    """At most ``max_pending`` items that were added and are not yet ``done``, by key, in the order of coming."""

    def __init__(self, b_min: int, timeout: float, max_pending: int):
        self.b_min, self.timeout, self.max_pending = b_min, timeout, max_pending
        self.pending = 0  # those in a buffer and those that were taken and are not done
        self._buffers: dict[Key, dict[Item, float]] = {}  # each item with the time at which it is due
        self._hurried: set[Key] = set()

    def add(self, items: Sequence[tuple[Key, Item]], now: float) -> None:
        """Take all of the items, or none of them."""
        if self.pending + len(items) > self.max_pending:
            raise StreamFull(
                f"{self.pending} queries wait for an answer and {len(items)} more would exceed max_pending="
                f"{self.max_pending}; try again when some are answered."
            )
        for key, item in items:
            self._buffers.setdefault(key, {})[item] = now + self.timeout
        self.pending += len(items)

    def due(self, now: float) -> Key | None:
        """The buffer to be answered now: of those that are due the one whose oldest query came first."""
        due = [
            (self._deadline(key), key)
            for key, buffer in self._buffers.items()
            if key in self._hurried or len(buffer) >= self.b_min or self._deadline(key) <= now
        ]
        return min(due)[1] if due else None

    def seconds_left(self, now: float) -> float | None:
        """How long until a buffer is due though nothing more comes; None where none waits."""
        if not self._buffers:
            return None
        return max(0.0, min(map(self._deadline, self._buffers)) - now)

    def take(self, key: Key) -> list[Item]:
        """Empty a buffer; its items stay pending until they are ``done``."""
        self._hurried.discard(key)
        return list(self._buffers.pop(key))

    def done(self, count: int) -> None:
        self.pending -= count

    def discard(self, key: Key, item: Item) -> bool:
        """Forget an item that nobody waits for any more; False where it was taken already."""
        buffer = self._buffers.get(key, {})
        if item not in buffer:
            return False
        del buffer[item]
        if not buffer:
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

    def fill(self, version: int) -> dict[int, int]:
        """How many queries wait in each cluster of one plan; clusters with none are left out."""
        return {cluster: len(buffer) for (number, cluster), buffer in self._buffers.items() if number == version}

    def _deadline(self, key: Key) -> float:
        return next(iter(self._buffers[key].values()))  # the oldest came first
