"""What Prometheus reads at ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
ROWS = tuple(2**i for i in range(13))
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Observer):
    """Counters and histograms; the gauges of ``Gauges`` are read when they are asked for."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, said: str, *labels: str) -> Counter:
            return Counter(f"crumb_{name}", said, labels, registry=registry)

        def gauge(name: str, said: str) -> Gauge:
            return Gauge(f"crumb_{name}", said, registry=registry)

        def histogram(
            name: str, said: str, *labels: str, buckets: Sequence[float] = SECONDS
        ) -> Histogram:
            return Histogram(f"crumb_{name}", said, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Requests, by route and status.", "route", "status")
        self.errors = counter("errors", "Requests without a prediction, by reason.", "reason")
        self.request_seconds = histogram(
            "request_seconds", "From the first byte to the answer.", "route"
        )
        self.wait_seconds = histogram("wait_seconds", "Of a row, from its coming to its answer.")
        self.pass_seconds = histogram("pass_seconds", "Of a pass.")
        self.pass_rows = histogram("pass_rows", "Rows that share a pass.", buckets=ROWS)
        self.pass_failures = counter("pass_failures", "Passes that failed.")
        self.refreshes = counter("refreshes", "Plans that replaced another.")
        self.refresh_failures = counter("refresh_failures", "Plans that could not be made.")
        self.refresh_seconds = histogram(
            "refresh_seconds", "What a new plan took.", buckets=(*SECONDS, 60.0, 300.0)
        )
        self.drift_score = gauge(
            "drift_score", "The last look: above 1 the queries have left the plan."
        )
        self.drift_looks = counter("drift_looks", "Looks for drift.")
        self.snapshots = counter("snapshots", "Snapshots, by outcome.", "outcome")
        self.snapshot_time = gauge("snapshot_timestamp_seconds", "Of the last snapshot.")
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
