"""The latest queries, as many as a window holds: what the next plan is made for, and what is watched for drift."""

from __future__ import annotations

from collections import deque

import numpy as np

from crumb.table.encoder import Rows
from crumb.table.pieces import Piece, Record, stack, take


class Window:
    def __init__(self, size: int):
        self.size = size
        self.fresh = 0  # queries that came since the current plan was made, at most ``size`` of them still here
        self._pieces: deque[Piece] = deque()
        self._held = 0

    def add(self, rows: Piece, fresh: bool = True) -> None:
        if len(rows) > self.size and not isinstance(
            rows, Record
        ):  # a slice would keep the whole table in memory
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
        """To be put together by ``latest`` where nobody waits."""
        return list(self._pieces)


def latest(pieces: list[Piece], count: int) -> Rows:
    rows = stack(pieces)
    return take(rows, np.arange(max(0, len(rows) - count), len(rows)))
