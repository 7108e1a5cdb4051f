"""What the service says about itself: lines of JSON on standard error, one for every request.

They hold no feature values: neither bodies nor messages that may quote them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import warnings
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crumb.serve.limits import GONE, Limits

if TYPE_CHECKING:
    from crumb.serve.metrics import History, Metrics

# Without a token: the page asks for it, and holds no data itself.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
METHODS = ("GET", "POST", "HEAD")
NO_TOKEN = JSONResponse(
    {"error": "A valid bearer token is needed."}, 401, {"WWW-Authenticate": 'Bearer realm="crumb"'}
)
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
    trace = [f"{frame.filename}:{frame.lineno}" for frame in frames[-8:]]
    return {"error": type(error).__name__, "trace": trace}


def set_up_logs(level: str, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("crumb", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "crumb" else logging.WARNING)
    warnings.showwarning = _warned  # type: ignore[assignment]


def _warned(_: Any, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
    event("warning", logging.WARNING, category=category.__name__, at=f"{filename}:{lineno}")


class Watch:
    """The outermost layer: no request passes it unseen, or without the token."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, history: History):
        self._app, self._limits, self._metrics, self._history = app, limits, metrics, history

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), GONE
        told = scope.setdefault("state", {})
        told["came"] = started

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        try:
            if scope["path"] in OPEN or self._limits.admits(given):
                await self._app(scope, receive, sending)
            else:
                told["reason"] = "token"
                await NO_TOKEN(scope, receive, sending)
        except Exception as error:  # the answer 500 has gone out
            told["reason"] = "fault"
            event("a request failed", logging.ERROR, **where(error))
        finally:
            self._note(scope, status, time.monotonic() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        told: dict[str, Any] = scope["state"]
        route = getattr(scope.get("route"), "path", "other")  # the pattern, not what came
        self._metrics.requests.labels(route, status).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        if status >= 400:
            self._metrics.errors.labels(told.get("reason", str(status))).inc()
        if "version" in told and status == 200:
            self._history.request(seconds)
        quiet = scope["method"] == "GET" and status < 400
        event(
            "request",
            logging.DEBUG if quiet else logging.INFO,
            method=scope["method"] if scope["method"] in METHODS else "other",
            route=route,
            status=status,
            seconds=round(seconds, 4),
            **{name: told[name] for name in ("rows", "version", "reason") if name in told},
        )
