"""What time it is, and how to wait: the only place where a stream meets real time, so that tests bring their own."""

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
        """Sleep until someone notifies the condition, or so many seconds have passed."""
        condition.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))
