"""What a network has made of a context, kept for the next queries that share it.

Most of a pass goes into the context. With a frozen plan the same contexts come again and again; the keys and values
that later queries look at are then kept in memory, as much as a budget allows, the least recently used going first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ContextCache(Generic[T]):
    """Things by key, up to a number of bytes."""

    def __init__(self, budget: int):
        self.budget, self.used = budget, 0
        self._kept: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ContextCache[T]], tuple[int]]:
        return type(self), (self.budget,)  # a copy or a pickle begins empty

    def get(self, key: bytes) -> T | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: bytes, thing: T, size: int) -> None:
        """Keep something, if it fits at all; others make room for it."""
        with self._lock:
            if key in self._kept or size > self.budget:
                return
            while self.used + size > self.budget:
                self.used -= self._kept.popitem(last=False)[1][1]
            self._kept[key] = thing, size
            self.used += size

    def __len__(self) -> int:
        return len(self._kept)

    def get_or(self, key: bytes, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        thing = self.get(key)
        if thing is None:
            thing = make()
            self.put(key, thing, size_of(thing))
        return thing


def tensor_bytes(thing: Any) -> int:
    """Bytes of all tensors in nested dictionaries and dataclasses."""
    if hasattr(thing, "nbytes"):
        return int(thing.nbytes)
    if isinstance(thing, dict):
        return sum(map(tensor_bytes, thing.values()))
    if is_dataclass(thing):
        return sum(tensor_bytes(getattr(thing, field.name)) for field in fields(thing))
    return 0
