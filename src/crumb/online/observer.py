"""What a stream reports to the outside: events to an ``Observer``, and ``Stats`` when asked."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from crumb.online.drift import Drift

log = logging.getLogger("crumb.online")


@dataclass(frozen=True)
class Stats:
    """Where a stream stands. Counts are since it was first made, restarts included.

    Parameters
    ----------
    accepted, answered, refused, cancelled : int
        Queries; ``cancelled`` by the client.
    failed : int
        Queries that were answered with an exception.
    passes, refreshes, refresh_failures : int
        Runs of the model, new plans, and plans that could not be made.
    pending : int
        Queries that wait.
    learned, taught : int
        Labelled rows that wait for the next refresh, and in all.
    refreshing : bool
        Whether a new plan is being made.
    version, pool_version : int
        Numbers of the plan and of the pool.
    plan_age : float
        Seconds since the plan was made.
    drift : Drift or None
        What the last look found.
    fill : dict
        Queries that wait, by cluster.

    Examples
    --------
    >>> Stats(accepted=12, answered=9, pending=3, fill={0: 1, 4: 2}).pending
    3
    """

    accepted: int = 0
    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0
    passes: int = 0
    refreshes: int = 0
    refresh_failures: int = 0
    pending: int = 0
    learned: int = 0
    taught: int = 0
    refreshing: bool = False
    version: int = 1
    pool_version: int = 1
    plan_age: float = 0.0
    drift: Drift | None = None
    fill: dict[int, int] = field(default_factory=dict)


class Observer:
    """Is told what happens in a stream: subclass it and override what you need.

    The stream's own threads call it, sometimes several at once, so be quick. The stream holds no
    lock meanwhile: an observer may call the stream. What it raises is logged and changes nothing.

    Examples
    --------
    >>> class Waits(Observer):
    ...     def answered(self, waits):
    ...         print(f"{len(waits)} answers, the slowest after {max(waits):.0f} s")
    >>> Waits().answered([0.1, 2.0])
    2 answers, the slowest after 2 s
    """

    def answered(self, waits: list[float]) -> None:
        """Queries are about to get their answers.

        Parameters
        ----------
        waits : list of float
            Seconds since each was submitted.
        """

    def passed(self, cluster: int, rows: int, seconds: float) -> None:
        """The model answered some rows of one cluster.

        Parameters
        ----------
        cluster, rows : int
        seconds : float
        """

    def failed(self, rows: int, error: BaseException) -> None:
        """Accepted queries get an exception instead of an answer.

        Parameters
        ----------
        rows : int
        error : BaseException
        """

    def refreshed(self, version: int, seconds: float) -> None:
        """A new plan replaced the old one.

        Parameters
        ----------
        version : int
        seconds : float
            That it took to make the plan.
        """

    def refresh_failed(self, error: BaseException) -> None:
        """A refresh, or the look for drift before it, failed; the old plan stays.

        Parameters
        ----------
        error : BaseException
        """

    def looked(self, drift: Drift) -> None:
        """The latest queries were compared with those behind the plan.

        Parameters
        ----------
        drift : Drift
        """


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
