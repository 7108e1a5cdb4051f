"""What can go wrong, each with one sentence that says what, where and what to do."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


class CrumbError(Exception):
    """Base of the errors that CRUMB raises on purpose."""


class InvalidInput(CrumbError, ValueError):
    """A table, label column or setting that cannot be used as it is."""


class WeightsMissing(CrumbError, FileNotFoundError):
    """The weights of a model are not on this machine and could not be fetched."""

    def __str__(self) -> str:  # FileNotFoundError would print its arguments as a tuple
        return str(self.args[0]) if self.args else ""


class InvalidCheckpoint(CrumbError, ValueError):
    """A file that is not a usable checkpoint: wrong task, truncated, foreign, or unsafe to open."""


class PlanMismatch(CrumbError, ValueError):
    """A plan, a saved file and a pool that do not belong together."""


class BackendUnavailable(CrumbError, ImportError):
    """A model whose package is not installed."""


class StreamFull(CrumbError, RuntimeError):
    """More queries wait for an answer than a stream may hold: try again later."""


class StreamClosed(CrumbError, RuntimeError):
    """A stream that takes no more queries, or gave up those that it had."""
