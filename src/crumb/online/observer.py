"""What a stream tells those who measure it: subclass ``Observer`` and override what you want to hear."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from crumb.online.drift import Drift

log = logging.getLogger("crumb.online")


class Observer:
    """Hears what happens in a stream, and does nothing.

    The stream's own threads call it, so that it should be quick; several may call at once. No lock of the stream is
    held meanwhile: it may ask the stream anything. What it raises is logged and changes nothing.
    """

    def answered(self, waits: list[float]) -> None:
        """Queries are about to get their answers: seconds since each was submitted."""

    def passed(self, cluster: int, rows: int, seconds: float) -> None:
        """The model answered some rows of one cluster."""

    def failed(self, rows: int, error: BaseException) -> None:
        """Queries that were accepted get an exception in the place of an answer."""

    def refreshed(self, version: int, seconds: float) -> None:
        """A new plan took the place of the old one; it took so long to make."""

    def refresh_failed(self, error: BaseException) -> None:
        """No new plan could be made, or drift not be looked for; the old plan stays."""

    def looked(self, drift: Drift) -> None:
        """The latest queries were held against those behind the plan."""


def tell(hear: Callable[..., None], *what: Any) -> None:
    """Call a method of an observer; what goes wrong there stays there."""
    try:
        hear(*what)
    except KeyboardInterrupt:
        raise
    except (
        BaseException
    ) as error:  # cancellations of asyncio are no Exceptions, and would end the stream's thread
        log.warning(
            "an observer failed in %s: %s", getattr(hear, "__name__", "?"), type(error).__name__
        )
