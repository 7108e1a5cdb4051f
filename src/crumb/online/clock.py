"""The only place where a stream meets real time: tests bring a clock of their own."""

from __future__ import annotations

import threading
import time


class Clock:
    def now(self) -> float:
        """Seconds that never go back, for deadlines."""
        return time.monotonic()

    def date(self) -> float:
        """Seconds since 1970, for ages that must survive a restart."""
        return time.time()

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        """Sleep until the condition is notified, or for this many seconds."""
        condition.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
