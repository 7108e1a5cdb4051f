"""The thread that makes a stream's new plans, beside the old ones."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable

from crumb.online.options import StreamOptions

NICENESS = 5  # of 19: what queries wait for comes first
log = logging.getLogger("crumb.online")


class Refresher:
    """A thread that refreshes when enough queries have come.

    ``needed`` looks at the queries and ``refresh`` makes the new plan; where either fails,
    ``failed`` gets the error and the old plan stays. All three run in this thread, where no query
    waits for them.
    """

    def __init__(
        self,
        options: StreamOptions,
        needed: Callable[[], bool],
        refresh: Callable[[], object],
        failed: Callable[[BaseException], object],
    ):
        self._options, self._needed, self._refresh, self._failed = options, needed, refresh, failed
        self._seen, self._failures, self._busy, self._closed = 0, 0, False, False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        if options.refresh != "never":
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

    def stopped(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """No further refresh; one that is under way may look at ``stopped``."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """No further refresh; wait for the one that is under way."""
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _is_due(self) -> bool:
        return self._options.refresh_due(self._seen, self._failures)

    def _run(self) -> None:
        step_back()
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
            if self._closed:  # dropped
                return
            log.warning("a refresh failed, the plan stays as it was: %s", type(error).__name__)
            self._failures += 1
            self._failed(error)


def step_back(niceness: int = NICENESS) -> None:
    """This thread, and those that it starts, let others go first. Linux has nice threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
