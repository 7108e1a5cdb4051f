"""What can go wrong, each with one sentence that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CrumbError(Exception):
    """Base of the errors that CRUMB raises on purpose.

    Examples
    --------
    >>> from crumb import select_contexts
    >>> try:
    ...     select_contexts([[1.0], [2.0]], [[1.5]], n_clusters=0)
    ... except CrumbError as error:
    ...     print(error)
    n_clusters must be a whole number of at least 1, got 0.
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
