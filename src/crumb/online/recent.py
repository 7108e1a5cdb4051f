"""The latest queries: the next plan is made for them, and they are watched for drift."""

from __future__ import annotations

from collections import deque

import numpy as np

from crumb.table.encoder import Rows
from crumb.table.pieces import Piece, Record, stack, take


class Recent:
    """The latest ``size`` queries, in the pieces in which they came."""

    def __init__(self, size: int):
        self.size = size
        self.fresh = 0  # queries since the current plan was made, counted up to ``size``
        self._pieces: deque[Piece] = deque()
        self._held = 0

    def add(self, rows: Piece, fresh: bool = True) -> None:
        if len(rows) > self.size and not isinstance(rows, Record):
            # A slice would keep the whole table in memory.
            rows = take(rows, np.arange(len(rows) - self.size, len(rows)))
        self._pieces.append(rows)
        self._held += len(rows)
        if fresh:
            self.fresh = min(self.size, self.fresh + len(rows))
        while self._held - len(self._pieces[0]) >= self.size:
            self._held -= len(self._pieces.popleft())

    def __len__(self) -> int:
        return min(self.size, self._held)

    def pieces(self) -> list[Piece]:
        """Quick, so that it can be called under a lock; ``latest`` puts them together."""
        return list(self._pieces)


def latest(pieces: list[Piece], count: int) -> Rows:
    rows = stack(pieces)
    return take(rows, np.arange(max(0, len(rows) - count), len(rows)))
