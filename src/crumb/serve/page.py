"""The live page: one document, style and script inside, and the numbers that it asks for."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from crumb.serve.service import Service


def _part(name: str) -> str:
    return (files("crumb.serve") / name).read_text(encoding="utf-8")


STYLE = _part("page.css")
PAGE = _part("page.html").replace("/*style*/", STYLE).replace("/*script*/", _part("page.js"))


def live(service: Service, now: float) -> dict[str, Any]:
    """Where the service stands; ``History`` and ``Projection`` add what was."""
    stream, stats = service.stream, service.stream.stats()
    clusters = stream.plan.n_clusters
    return {
        "name": service.name,
        "ready": service.ready,
        "uptime": now - service.started,
        "contexts": clusters,
        "version": stats.version,
        "plan_age": stats.plan_age,
        "pending": stats.pending + service.intake.rows,
        "max_pending": stream.options.max_pending,
        "b_min": stream.options.b_min,
        "fill": [stats.fill.get(cluster, 0) for cluster in range(clusters)],
        "accepted": stats.accepted,
        "answered": stats.answered,
        "refresh_failures": stats.refresh_failures,
    }
