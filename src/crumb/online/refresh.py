"""When a stream gets a new plan, and the thread that makes it beside the old one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from crumb.errors import InvalidInput

KINDS = ("never", "periodic", "drift")
MOST_DOUBLINGS = 6  # of the queries before the next try
log = logging.getLogger("crumb.online")


@dataclass(frozen=True)
class RefreshPolicy:
    """After ``every`` queries: a new plan (``"periodic"``), or a look (``"drift"``)."""

    kind: str
    every: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise InvalidInput(f"refresh must be one of {known}, got {self.kind!r}.")

    def due(self, queries: int, failures: int = 0) -> bool:
        """After each failure in a row the next try takes twice as many queries."""
        return self.kind != "never" and queries >= self.every << min(failures, MOST_DOUBLINGS)


class Refresher:
    """A thread that refreshes when enough queries have come.

    ``needed`` looks at the queries and ``refresh`` makes the new plan; where either fails,
    ``failed`` gets the error and the old plan stays. All three run in this thread, where no query
    waits for them.
    """

    def __init__(
        self,
        policy: RefreshPolicy,
        needed: Callable[[], bool],
        refresh: Callable[[], object],
        failed: Callable[[BaseException], object],
    ):
        self._policy, self._needed, self._refresh, self._failed = policy, needed, refresh, failed
        self._seen, self._failures, self._busy, self._closed = 0, 0, False, False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        if policy.kind != "never":
            self._thread = threading.Thread(target=self._run, name="crumb-refresh", daemon=True)
            self._thread.start()

    def saw(self, queries: int) -> None:
        """Queries came."""
        if self._thread is None:
            return
        with self._changed:
            self._seen += queries
            if self._is_due():
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing is under way and nothing is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not (self._busy or self._is_due()))

    def close(self) -> None:
        """No further refresh; wait for the one that is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _is_due(self) -> bool:
        return self._policy.due(self._seen, self._failures)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._is_due())
                if self._closed:
                    return
                self._seen, self._busy = 0, True
            self._once()

    def _once(self) -> None:
        try:
            if self._needed():
                self._refresh()
            self._failures = 0
        except Exception as error:  # whatever it was, the old plan goes on answering
            log.warning("a refresh failed, the plan stays as it was: %s", type(error).__name__)
            self._failures += 1
            self._failed(error)
