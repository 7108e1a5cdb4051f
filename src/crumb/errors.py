"""What can go wrong, each with one sentence that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any


class CrumbError(Exception):
    """Base of the errors that CRUMB raises on purpose.

    Examples
    --------
    >>> try:
    ...     positive("context_size", 0)
    ... except CrumbError as error:
    ...     print(error)
    context_size must be a whole number of at least 1, got 0.
    """


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


class InvalidFile(PlanMismatch):
    """A file that CRUMB did not save, or that is damaged."""


class BackendUnavailable(CrumbError, ImportError):
    """A model whose package is not installed."""


class StreamFull(CrumbError, RuntimeError):
    """More queries wait for an answer than a stream may hold: try again later."""


class StreamClosed(CrumbError, RuntimeError):
    """A stream that takes no more queries, or gave up those that it had."""


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around imports of what only an extra of ours installs. ``what`` needs them."""
    try:
        yield
    except ImportError as error:
        said = f"{what} needs {error.name}: pip install 'crumb-pfn[{name}]'."
        raise BackendUnavailable(said) from error


def positive(name: str, value: Any, least: int = 1) -> int:
    """A whole number that a user gave, checked."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}.")


def megabytes(name: str, value: Any) -> int:
    """A number of megabytes in bytes."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
    if 0 <= number < float("inf"):
        return int(number * 1e6)
    raise InvalidInput(f"{name} must be a number of megabytes, 0 or more, got {value!r}.")
