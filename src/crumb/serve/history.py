"""The last minutes, second by second, for the page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from crumb.online import Observer

LENGTH = 180  # seconds
LOOKS = 200  # for drift
MOST = 2_000  # latencies that are kept of one second


class History(Observer):
    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[dict[str, Any]] = deque(maxlen=LENGTH)
        self._second, self._rows = int(clock()), 0
        self._latencies: list[float] = []
        self._looks: deque[tuple[float, float]] = deque(maxlen=LOOKS)
        self._refreshes: deque[float] = deque(maxlen=LOOKS)

    def request(self, seconds: float) -> None:
        """A prediction went out, this many seconds after it was asked for."""
        with self._lock:
            self._turn()
            if len(self._latencies) < MOST:
                self._latencies.append(seconds)

    def answered(self, waits: list[float]) -> None:
        with self._lock:
            self._turn()
            self._rows += len(waits)

    def looked(self, drift: Any) -> None:
        with self._lock:
            self._looks.append((self._clock(), drift.score))

    def refreshed(self, version: int, seconds: float) -> None:
        with self._lock:
            self._refreshes.append(self._clock())

    def view(self) -> dict[str, Any]:
        """Complete seconds, oldest first; quiet ones are left out."""
        with self._lock:
            self._turn()
            oldest = self._second - LENGTH
            return {
                "now": self._clock(),
                "length": LENGTH,
                "seconds": [entry for entry in self._seconds if entry["time"] >= oldest],
                "drift": [{"time": moment, "score": score} for moment, score in self._looks],
                "refreshes": list(self._refreshes),
            }

    def _turn(self) -> None:
        """Close the second that is over."""
        second = int(self._clock())
        if second == self._second:
            return
        if self._rows or self._latencies:
            p50 = p99 = None
            if self._latencies:
                p50, p99 = np.percentile(self._latencies, [50, 99]).tolist()
            self._seconds.append({"time": self._second, "rows": self._rows, "p50": p50, "p99": p99})
        self._second, self._rows, self._latencies = second, 0, []
