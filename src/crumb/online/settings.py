"""The settings of a stream: checked before anything starts."""

from __future__ import annotations

from typing import Any

from crumb.checks import positive
from crumb.errors import InvalidInput
from crumb.online.refresh import RefreshPolicy


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a stream, checked, with what depends on others filled in."""
    checked = dict(settings)
    for name in ("b_min", "max_pending", "window"):
        checked[name] = positive(name, settings[name])
    if settings["refresh_every"] is None:
        checked["refresh_every"] = (
            checked["window"] if settings["refresh"] != "drift" else max(1, checked["window"] // 4)
        )
    else:
        checked["refresh_every"] = positive("refresh_every", settings["refresh_every"])
    if settings["max_rows"] is not None and positive("max_rows", settings["max_rows"]) < 2:
        raise InvalidInput("max_rows must be at least 2.")
    if not settings["timeout"] >= 0:
        raise InvalidInput(f"timeout must be a number of seconds, got {settings['timeout']!r}.")
    if settings["max_age"] is not None and not settings["max_age"] > 0:
        raise InvalidInput(
            f"max_age must be a positive number of seconds, got {settings['max_age']!r}."
        )
    if not 0 < settings["significance"] < 1:
        raise InvalidInput(
            f"significance must lie between 0 and 1, got {settings['significance']!r}."
        )
    RefreshPolicy(settings["refresh"], checked["refresh_every"])
    return checked
