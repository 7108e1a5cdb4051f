"""Warnings of other packages, held back or shown once.

Python's filters are global, so only one thread at a time may change them.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.RLock()


@contextmanager
def quiet(message: str = "", category: type[Warning] = Warning) -> Iterator[None]:
    """Hold back warnings of a kind."""
    with _lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message, category)
        yield


@contextmanager
def said_once(said: set[str]) -> Iterator[None]:
    """Show each warning only the first time; ``said`` remembers. Packages warn in every pass."""
    try:
        with _lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for warning in caught:
            if str(warning.message) not in said:
                said.add(str(warning.message))
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
