"""What the service says about itself: lines of JSON, one for every request, and metrics.

They hold no feature values: neither bodies nor messages that may quote them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crumb.online import Observer
from crumb.serve.limits import GONE, Limits, Refusal

if TYPE_CHECKING:
    from crumb.serve.page import History
    from crumb.serve.service import Service

# Without a token: the page asks for it, and holds no data itself.
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
METHODS = ("GET", "POST", "HEAD")
NO_TOKEN = JSONResponse(
    {"error": "A valid bearer token is needed."}, 401, {"WWW-Authenticate": 'Bearer realm="crumb"'}
)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MOST_LINES = 20
ROWS = tuple(2**i for i in range(13))
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


class Bounded(logging.Filter):
    """At most ``MOST_LINES`` errors and refusals of a kind in a second; how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._counts = 0, Counter[Any]()
        self._left_out = Counter[Any]()

    def filter(self, record: logging.LogRecord) -> bool:
        fields = getattr(record, "fields", {})
        if record.levelno < logging.WARNING and fields.get("status", 0) < 400:
            return True
        if int(record.created) != self._second:
            self._second, self._left_out = int(record.created), self._counts
            self._counts = Counter()
        kind = record.name, record.msg, fields.get("status")
        self._counts[kind] += 1
        more = self._left_out.pop(kind, 0) - MOST_LINES
        if more > 0:
            record.fields = {**fields, "left_out": more}
        return self._counts[kind] <= MOST_LINES


def set_up_logs(level: str, stream: TextIO | None = None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(Bounded())
    for name in ("crumb", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "crumb" else logging.WARNING)
    warnings.showwarning = _warned  # type: ignore[assignment]


def _warned(_: Any, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
    event("warning", logging.WARNING, category=category.__name__, at=f"{filename}:{lineno}")


class Metrics(Observer):
    """Counters and histograms; the gauges of ``Gauges`` are read when they are asked for."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        here: dict[str, Any] = {"namespace": "crumb", "registry": self.registry}
        counter, gauge = partial(prometheus.Counter, **here), partial(prometheus.Gauge, **here)
        histogram = partial(prometheus.Histogram, buckets=SECONDS, **here)
        self.requests = counter("requests", "Requests, by route and status.", ["route", "status"])
        self.errors = counter("errors", "Requests without a prediction, by reason.", ["reason"])
        said = "From the first byte to the answer."
        self.request_seconds = histogram("request_seconds", said, ["route"])
        self.wait_seconds = histogram("wait_seconds", "Of a row, from its coming to its answer.")
        self.pass_seconds = histogram("pass_seconds", "Of a pass.")
        self.pass_rows = histogram("pass_rows", "Rows that share a pass.", buckets=ROWS)
        self.pass_failures = counter("pass_failures", "Passes that failed.")
        self.refreshes = counter("refreshes", "Plans that replaced another.")
        self.refresh_failures = counter("refresh_failures", "Plans that could not be made.")
        longer = (*SECONDS, 60.0, 300.0)
        self.refresh_seconds = histogram("refresh_seconds", "What a new plan took.", buckets=longer)
        said = "The last look: above 1 the queries have left the plan."
        self.drift_score = gauge("drift_score", said)
        self.snapshots = counter("snapshots", "Snapshots, by outcome.", ["outcome"])
        self.snapshot_time = gauge("snapshot_timestamp_seconds", "Of the last snapshot.")
        for outcome in ("written", "failed"):
            self.snapshots.labels(outcome)  # 0 is an answer too

    def answered(self, waits: list[float]) -> None:
        for seconds in waits:
            self.wait_seconds.observe(seconds)

    def passed(self, cluster: int, rows: int, seconds: float) -> None:
        self.pass_seconds.observe(seconds)
        self.pass_rows.observe(rows)

    def failed(self, rows: int, error: BaseException) -> None:
        self.pass_failures.inc()

    def refreshed(self, version: int, seconds: float) -> None:
        self.refreshes.inc()
        self.refresh_seconds.observe(seconds)

    def refresh_failed(self, error: BaseException) -> None:
        self.refresh_failures.inc()

    def looked(self, drift: Any) -> None:
        self.drift_score.set(drift.score)


class Gauges(Collector):
    """Where the stream stands at the moment of reading."""

    def __init__(self, service: Service):
        self._service = service

    def collect(self) -> Iterable[Any]:
        service, stats = self._service, self._service.stream.stats()
        said = "Rows, by outcome; restarts included."
        rows = CounterMetricFamily("crumb_rows", said, labels=["outcome"])
        for outcome in ("accepted", "answered", "failed", "cancelled", "refused"):
            rows.add_metric([outcome], getattr(stats, outcome))
        yield rows
        said = "Rows in the buffer of a cluster."
        fill = GaugeMetricFamily("crumb_buffer_rows", said, labels=["cluster"])
        for cluster in range(service.stream.plan.n_clusters):
            fill.add_metric([str(cluster)], stats.fill.get(cluster, 0))
        yield fill
        for name, said, value in (
            ("queue_rows", "Rows accepted and not answered.", stats.pending),
            ("intake_rows", "Rows read and not yet encoded.", service.intake.rows),
            ("requests_active", "Requests that wait for their answer.", service.active),
            ("plan_version", "Of the plan that answers.", stats.version),
            ("pool_version", "Of the pool.", stats.pool_version),
            ("plan_age_seconds", "Since the plan was made.", stats.plan_age),
            ("learned_rows", "Labelled rows that wait for a refresh.", stats.learned),
            ("refreshing", "1 while a new plan is being made.", int(stats.refreshing)),
            ("ready", "1 while requests are taken.", int(service.ready)),
        ):
            yield GaugeMetricFamily(f"crumb_{name}", said, value=value)


class Body:
    """Knows whether the body of a request was read to its end."""

    def __init__(self, scope: Scope, receive: Receive):
        headers = dict(scope["headers"])
        there = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        self.read, self._receive = not there, receive

    async def receive(self) -> Message:
        message = await self._receive()
        if not message.get("more_body", False):
            self.read = True
        return message


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

        body = Body(scope, receive)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not body.read:  # nobody wants the rest of it
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        try:
            await self._entrance(scope)(scope, body.receive, sending)
        except Exception as error:  # the answer 500 has gone out
            told["reason"] = "fault"
            event("a request failed", logging.ERROR, **where(error))
        finally:
            self._note(scope, status, time.monotonic() - started)

    def _entrance(self, scope: Scope) -> ASGIApp:
        """The application, or who says why not."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            site = headers.get(b"host", ""), headers.get(b"origin")
            self._limits.check_site(scope["method"], *site)
        except Refusal as error:
            scope["state"]["reason"] = error.reason
            return JSONResponse({"error": error.detail}, error.status_code)
        given = headers.get(b"authorization", "").encode("latin-1")
        if scope["path"] in OPEN or self._limits.admits(given):
            return self._app
        scope["state"]["reason"] = "token"
        return NO_TOKEN

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        told: dict[str, Any] = scope["state"]
        route = getattr(scope.get("route"), "path", "other")  # the pattern, not what came
        self._metrics.requests.labels(route, status).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        if status >= 400:
            reason = told.get("reason", str(status))
            self._metrics.errors.labels(reason).inc()
            self._history.refused(reason)
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
