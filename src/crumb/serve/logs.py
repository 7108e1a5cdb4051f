"""Logs as lines of JSON on standard error.

They hold no feature values: neither bodies nor messages that may quote them.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from datetime import datetime, timezone
from typing import Any, TextIO

log = logging.getLogger("crumb.serve")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= where(record.exc_info[1])
        return json.dumps(line, default=str)


def event(message: str, level: int = logging.INFO, **fields: Any) -> None:
    log.log(level, message, extra={"fields": fields})


def where(error: BaseException) -> dict[str, Any]:
    """Type and place of an error. Its message is left out: it may hold a value of a table."""
    frames = traceback.extract_tb(error.__traceback__)
    return {
        "error": type(error).__name__,
        "trace": [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]],
    }


def setup(level: str = "info", stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("crumb", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "crumb" else logging.WARNING)
    warnings.showwarning = _warned  # type: ignore[assignment]


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    event("warning", logging.WARNING, category=category.__name__, at=f"{filename}:{lineno}")
