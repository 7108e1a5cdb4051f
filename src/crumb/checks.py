"""Numbers that a user gave, checked; each mistake gets one sentence."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from crumb.errors import InvalidInput


def positive(name: str, value: Any) -> int:
    return _whole(name, value, 1)


def non_negative(name: str, value: Any) -> int:
    return _whole(name, value, 0)


def megabytes(name: str, value: Any) -> int:
    """A number of megabytes in bytes."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
    if 0 <= number < float("inf"):
        return int(number * 1e6)
    raise InvalidInput(f"{name} must be a number of megabytes, 0 or more, got {value!r}.")


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}.")
