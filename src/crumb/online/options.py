"""The options of a stream: checked once, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crumb.errors import InvalidInput, positive

REFRESHES = ("never", "periodic", "drift")
MOST_DOUBLINGS = 6  # of the queries before the next try


@dataclass(frozen=True)
class StreamOptions:
    """What ``CrumbOnline`` was made with; its docstring says what each option does."""

    output: str | None = None
    quantiles: Sequence[float] | None = None
    b_min: int = 32
    timeout: float = 0.1
    max_pending: int = 10_000
    refresh: str = "never"
    refresh_every: int | None = None
    recent: int = 512
    significance: float = 0.01
    plan_ahead: bool = True
    max_rows: int | None = None
    max_age: float | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> StreamOptions:
        """``window`` is the name of ``recent`` in version 0.1, and in files."""
        named = {"recent" if name == "window" else name: value for name, value in given.items()}
        if named.get("quantiles") is not None:
            named["quantiles"] = [float(level) for level in named["quantiles"]]
        return cls(**named)

    def __post_init__(self) -> None:
        for name in ("b_min", "max_pending", "recent"):
            positive(name, getattr(self, name))
        if self.max_rows is not None and positive("max_rows", self.max_rows) < 2:
            raise InvalidInput("max_rows must be at least 2.")
        if not self.timeout >= 0:
            raise InvalidInput(f"timeout must be a number of seconds, got {self.timeout!r}.")
        if self.max_age is not None and not self.max_age > 0:
            raise InvalidInput(f"max_age must be a positive number, got {self.max_age!r}.")
        if not 0 < self.significance < 1:
            raise InvalidInput(f"significance must lie between 0 and 1, got {self.significance!r}.")
        if self.refresh not in REFRESHES:
            known = ", ".join(map(repr, REFRESHES))
            raise InvalidInput(f"refresh must be one of {known}, got {self.refresh!r}.")
        if self.refresh_every is not None:
            positive("refresh_every", self.refresh_every)

    def refresh_due(self, queries: int, failures: int = 0) -> bool:
        """After each failure in a row the next try takes twice as many queries."""
        every = self.refresh_every
        if every is None:  # as often as all the recent queries have changed
            every = self.recent if self.refresh != "drift" else max(1, self.recent // 4)
        return self.refresh != "never" and queries >= every << min(failures, MOST_DOUBLINGS)
