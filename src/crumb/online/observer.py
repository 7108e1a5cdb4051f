"""What a stream reports to the outside: events to an ``Observer``, and ``Stats`` when asked."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from crumb.online.drift import Drift

log = logging.getLogger("crumb.online")


@dataclass(frozen=True)
class Stats:
    """Where a stream stands. Counts are since it was first made, restarts included."""

    accepted: int = 0
    answered: int = 0
    failed: int = 0  # answered with an exception
    cancelled: int = 0  # by the client
    refused: int = 0
    passes: int = 0
    refreshes: int = 0
    refresh_failures: int = 0
    pending: int = 0
    learned: int = 0  # labelled rows that wait for the next refresh
    taught: int = 0  # labelled rows in all
    refreshing: bool = False  # a new plan is being made
    version: int = 1
    pool_version: int = 1
    plan_age: float = 0.0  # seconds
    drift: Drift | None = None  # the last look
    fill: dict[int, int] = field(default_factory=dict)  # queries that wait, by cluster


class Observer:
    """Is told what happens in a stream: subclass it and override what you need.

    The stream's own threads call it, sometimes several at once, so be quick. The stream holds no
    lock meanwhile: an observer may call the stream. What it raises is logged and changes nothing.
    """

    def answered(self, waits: list[float]) -> None:
        """Queries are about to get their answers: seconds since each was submitted."""

    def passed(self, cluster: int, rows: int, seconds: float) -> None:
        """The model answered some rows of one cluster."""

    def failed(self, rows: int, error: BaseException) -> None:
        """Accepted queries get an exception instead of an answer."""

    def refreshed(self, version: int, seconds: float) -> None:
        """A new plan, made in this many seconds, replaced the old one."""

    def refresh_failed(self, error: BaseException) -> None:
        """A refresh, or the look for drift before it, failed; the old plan stays."""

    def looked(self, drift: Drift) -> None:
        """The latest queries were compared with those behind the plan."""


def tell(observers: Iterable[Observer], what: str, *about: Any) -> None:
    """Call one method of each observer; what goes wrong there stays there."""
    for observer in observers:
        _tell(observer, what, about)


def _tell(observer: Observer, what: str, about: tuple[Any, ...]) -> None:
    try:
        getattr(observer, what)(*about)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # asyncio's cancellations would end the stream's thread
        log.warning("an observer failed in %s: %s", what, type(error).__name__)
