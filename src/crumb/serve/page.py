"""What people look at: the live page with its numbers, and a command for every operation.

The page is one document, with style and script inside: nothing is fetched from elsewhere.
"""

import json
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import numpy as np

from crumb.online import CrumbOnline, Observer
from crumb.picture import Plane
from crumb.serve.service import Service

LENGTH = 180  # seconds that the page shows
LOOKS = 200  # for drift
MOST = 2_000  # latencies that are kept of one second
QUERIES = 200  # the latest, on the map
EVERY = 1.0  # seconds: many may look, one computes


def _part(name: str) -> str:
    return (files("crumb.serve") / name).read_text(encoding="utf-8")


STYLE = _part("page.css")
PAGE = _part("page.html").replace("/*style*/", STYLE).replace("/*script*/", _part("page.js"))


def live(service: Service) -> dict[str, Any]:
    """Where the service stands; ``History`` and ``Map`` add what was."""
    stream, stats = service.stream, service.stream.stats()
    clusters = stream.plan.n_clusters
    return {
        **asdict(stats),
        "name": service.name,
        "ready": service.ready,
        "uptime": time.time() - service.started,
        "contexts": clusters,
        "pending": stats.pending + service.intake.rows,
        "max_pending": stream.options.max_pending,
        "b_min": stream.options.b_min,
        "fill": [stats.fill.get(cluster, 0) for cluster in range(clusters)],
    }


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
        self._refusals, self._last_refusal = 0, ""

    def request(self, seconds: float) -> None:
        """A prediction went out, this many seconds after it was asked for."""
        with self._lock:
            self._turn()
            if len(self._latencies) < MOST:
                self._latencies.append(seconds)

    def refused(self, reason: str) -> None:
        """A request got no prediction, for a reason that the metrics know."""
        with self._lock:
            self._refusals += 1
            self._last_refusal = reason

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
                "refusals": self._refusals,
                "last_refusal": self._last_refusal,
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


class Map:
    """Clusters and the latest queries in two dimensions."""

    def __init__(self, stream: CrumbOnline):
        self._stream = stream
        self._plane: tuple[Any, Plane] | None = None  # and the estimator that it is of
        self._made, self._view = -EVERY, dict[str, Any]()

    def view(self) -> dict[str, Any]:
        if time.monotonic() - self._made >= EVERY:
            self._view, self._made = self._draw(), time.monotonic()
        return self._view

    def _draw(self) -> dict[str, Any]:
        version = self._stream.current
        plan, estimator = version.plan, version.estimator
        if self._plane is None or self._plane[0] is not estimator:
            self._plane = estimator, Plane.of(estimator.pool_.points)
        plane = self._plane[1]
        points = np.empty((0, plan.centroids.shape[1]))
        count = min(QUERIES, self._stream.stats().accepted)
        if count:  # until queries come, the recent ones are rows of the pool
            points = estimator.encode(self._stream.recent(count))[1]
        return {
            "version": version.number,
            "centroids": plane(plan.centroids).round(3).tolist(),
            "queries": plane(points).round(3).tolist(),
            "clusters": plan.route(points).tolist() if count else [],
        }


def commands(described: dict[str, Any], base: str) -> str:
    """Every operation of the OpenAPI description as a command that works as pasted into a shell."""
    return "\n".join(
        f"# {operation['summary']}\n{_curl(base + path, operation)}\n"
        for path, operations in described["paths"].items()
        for operation in operations.values()
    )


def _curl(url: str, operation: dict[str, Any]) -> str:
    words = ["curl", "-s", url]
    if "security" in operation:
        words += ["-H", "Authorization: Bearer $CRUMB_TOKEN"]
    if "requestBody" in operation:
        example = operation["requestBody"]["content"]["application/json"]["example"]
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(example)]
    return " ".join(f'"{word}"' if "$CRUMB_TOKEN" in word else shlex.quote(word) for word in words)
