"""Work that is done again and again, after a pause of some seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from crumb.serve.logs import event, where


class Timer:
    """Calls something every ``every`` seconds in a thread of its own; 0: never."""

    def __init__(self, every: float, call: Callable[[], object], name: str):
        self._every, self._call = every, call
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._once()

    def _once(self) -> None:
        try:
            self._call()
        except Exception as error:  # the next time may go better
            event("a timer's work failed", logging.ERROR, **where(error))

    def __enter__(self) -> Timer:
        if self._every > 0:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is under way; nothing comes after it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
