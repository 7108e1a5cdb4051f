"""What is measured: counters that Prometheus reads at ``/metrics``, and minutes for the page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from crumb.online import Observer
from crumb.serve.service import Service

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = tuple(2**i for i in range(13))
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LENGTH = 180  # seconds that the page shows
LOOKS = 200  # for drift
MOST = 2_000  # latencies that are kept of one second


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

    def text(self) -> bytes:
        return prometheus.generate_latest(self.registry)

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
            ("ready", "1 while requests are taken.", int(service.ready)),
        ):
            yield GaugeMetricFamily(f"crumb_{name}", said, value=value)


class History(Observer):
    """The last minutes, second by second, for the page."""

    def __init__(self, clock: Callable[[], float] = time.time):
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: deque[dict[str, Any]] = deque(maxlen=LENGTH)
        self._second, self._rows = int(clock()), 0
        self._latencies: list[float] = []
        self._looks: deque[dict[str, float]] = deque(maxlen=LOOKS)
        self._refreshes: deque[float] = deque(maxlen=LOOKS)

    def request(self, seconds: float) -> None:
        """A prediction went out, this many seconds after it was asked for."""
        with self._lock:
            self._turn()
            if len(self._latencies) < MOST:
                self._latencies.append(seconds)

    def answered(self, waits: list[float]) -> None:
        with self._lock:
            self._turn()
            self._rows += len(waits)

    def looked(self, drift: Any) -> None:
        with self._lock:
            self._looks.append({"time": self._clock(), "score": drift.score})

    def refreshed(self, version: int, seconds: float) -> None:
        with self._lock:
            self._refreshes.append(self._clock())

    def view(self) -> dict[str, Any]:
        """Complete seconds, oldest first; quiet ones are left out."""
        with self._lock:
            self._turn()
            oldest = self._second - LENGTH
            return {
                "now": self._clock(),
                "length": LENGTH,
                "seconds": [entry for entry in self._seconds if entry["time"] >= oldest],
                "drift": list(self._looks),
                "refreshes": list(self._refreshes),
            }

    def _turn(self) -> None:
        """Close the second that is over."""
        second = int(self._clock())
        if second == self._second:
            return
        if self._rows or self._latencies:
            p50 = p99 = None
            if self._latencies:
                p50, p99 = np.percentile(self._latencies, [50, 99]).tolist()
            self._seconds.append({"time": self._second, "rows": self._rows, "p50": p50, "p99": p99})
        self._second, self._rows, self._latencies = second, 0, []
