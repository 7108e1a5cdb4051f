"""Around every request: whether it is allowed, how long it took, and a line in the log."""

from __future__ import annotations

import logging
import time
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crumb.serve.history import History
from crumb.serve.limits import GONE, Limits
from crumb.serve.logs import event, where
from crumb.serve.metrics import Metrics

# Without a token: the page asks for it, and holds no data itself.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
METHODS = ("GET", "POST", "HEAD")


class Watch:
    """The outermost layer: no request passes it unseen."""

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

        try:
            if self._admits(scope):
                await self._app(scope, receive, sending)
            else:
                told["reason"] = "token"
                await _NO_TOKEN(scope, receive, sending)
        except Exception as error:  # the answer 500 has gone out
            told["reason"] = "fault"
            event("a request failed", logging.ERROR, **where(error))
        finally:
            self._note(scope, status, time.monotonic() - started)

    def _admits(self, scope: Scope) -> bool:
        if scope["path"] in OPEN:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return self._limits.admits(given)

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


_NO_TOKEN = JSONResponse(
    {"error": "A valid bearer token is needed."}, 401, {"WWW-Authenticate": 'Bearer realm="crumb"'}
)
