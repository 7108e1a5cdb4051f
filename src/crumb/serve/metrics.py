"""What Prometheus reads at ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from crumb.online import Observer
from crumb.serve.service import Service

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Observer):
    """Counters and histograms that the stream and the requests feed; gauges are read when they are asked for."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "crumb_requests",
            "Requests, by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.errors = Counter(
            "crumb_errors",
            "Requests without a prediction, by reason.",
            ["reason"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "crumb_request_seconds",
            "From the first byte to the answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "crumb_wait_seconds",
            "Of a row, from its coming to its answer.",
            buckets=SECONDS,
            registry=registry,
        )
        self.pass_seconds = Histogram(
            "crumb_pass_seconds", "Of a pass.", buckets=SECONDS, registry=registry
        )
        self.pass_rows = Histogram(
            "crumb_pass_rows", "Rows that share a pass.", buckets=ROWS, registry=registry
        )
        self.pass_failures = Counter(
            "crumb_pass_failures", "Passes that failed.", registry=registry
        )
        self.refreshes = Counter(
            "crumb_refreshes", "Plans that took the place of another.", registry=registry
        )
        self.refresh_failures = Counter(
            "crumb_refresh_failures", "Plans that could not be made.", registry=registry
        )
        self.refresh_seconds = Histogram(
            "crumb_refresh_seconds",
            "What a new plan took.",
            buckets=(*SECONDS, 60.0, 300.0),
            registry=registry,
        )
        self.drift_score = Gauge(
            "crumb_drift_score",
            "The last look: above 1 the queries have left the plan.",
            registry=registry,
        )
        self.drift_looks = Counter("crumb_drift_looks", "Looks for drift.", registry=registry)
        self.snapshots = Counter(
            "crumb_snapshots", "Snapshots, by outcome.", ["outcome"], registry=registry
        )
        self.snapshot_time = Gauge(
            "crumb_snapshot_timestamp_seconds", "Of the last snapshot.", registry=registry
        )
        for outcome in ("written", "failed"):
            self.snapshots.labels(outcome)  # 0 is an answer too

    def watch(self, service: Service) -> None:
        self.registry.register(Gauges(service))

    def text(self) -> bytes:
        return generate_latest(self.registry)

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
        self.drift_looks.inc()
        self.drift_score.set(drift.score)


class Gauges(Collector):
    """Where the stream stands at the moment of reading."""

    def __init__(self, service: Service):
        self._service = service

    def collect(self) -> Iterable[Any]:
        stats = self._service.stream.stats()
        rows = CounterMetricFamily(
            "crumb_rows", "Rows, by outcome; restarts included.", labels=["outcome"]
        )
        for outcome in ("accepted", "answered", "failed", "cancelled", "refused"):
            rows.add_metric([outcome], getattr(stats, outcome))
        yield rows
        fill = GaugeMetricFamily(
            "crumb_buffer_rows", "Rows in the buffer of a cluster.", labels=["cluster"]
        )
        for cluster in range(self._service.stream.plan.n_clusters):
            fill.add_metric([str(cluster)], stats.fill.get(cluster, 0))
        yield fill
        for name, text, value in (
            (
                "crumb_queue_rows",
                "Rows accepted and not answered, in buffers and in a pass.",
                stats.pending,
            ),
            ("crumb_intake_rows", "Rows read and not yet encoded.", self._service.intake.rows),
            ("crumb_requests_active", "Requests that wait for their answer.", self._service.active),
            ("crumb_plan_version", "Of the plan that answers.", stats.version),
            ("crumb_pool_version", "Of the pool.", stats.pool_version),
            ("crumb_plan_age_seconds", "Since the plan was made.", stats.plan_age),
            ("crumb_ready", "1 while requests are taken.", int(self._service.ready)),
        ):
            yield GaugeMetricFamily(name, text, value=value)
