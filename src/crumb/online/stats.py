"""Where a stream stands, in numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from crumb.online.drift import Drift

COUNTERS = (
    *("accepted", "answered", "failed", "cancelled", "refused"),
    *("passes", "refreshes", "refresh_failures"),
)


@dataclass(frozen=True)
class Stats:
    """Where a stream stands. Counts are since the stream was first made, restarts included."""

    accepted: int = 0
    answered: int = 0
    failed: int = 0  # answered with an exception
    cancelled: int = 0  # by the client
    refused: int = 0
    passes: int = 0
    refreshes: int = 0
    refresh_failures: int = 0
    pending: int = 0
    version: int = 1
    pool_version: int = 1
    plan_age: float = 0.0  # seconds
    drift: Drift | None = None  # the last look
    fill: dict[int, int] = field(default_factory=dict)  # queries that wait, by cluster
