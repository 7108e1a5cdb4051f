"""Clusters and the latest queries in two dimensions, for the page.

The axes are the first two principal components of the selection space.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crumb.online import CrumbOnline
from crumb.rng import generator

SAMPLE = 2_000  # rows of the pool that decide the axes
QUERIES = 200
EVERY = 1.0  # seconds: many may look, one computes


class Projection:
    def __init__(self, stream: CrumbOnline):
        self._stream = stream
        self._axes: tuple[Any, np.ndarray, np.ndarray] | None = None  # estimator, centre, axes
        self._made = -EVERY
        self._view: dict[str, Any] = {}

    def view(self) -> dict[str, Any]:
        if time.monotonic() - self._made >= EVERY:
            self._view, self._made = self._project(), time.monotonic()
        return self._view

    def _project(self) -> dict[str, Any]:
        version, plan = self._stream.current, self._stream.current.plan
        centroids = _rounded(self._flat(version.estimator, plan.centroids))
        view = {"version": version.number, "centroids": centroids, "queries": [], "clusters": []}
        count = min(QUERIES, self._stream.stats().accepted)
        if count:  # until queries come, the recent ones are rows of the pool
            points = version.encode(self._stream.recent(count))[1]
            view["queries"] = _rounded(self._flat(version.estimator, points))
            view["clusters"] = plan.route(points).tolist()
        return view

    def _flat(self, estimator: Any, points: np.ndarray) -> np.ndarray:
        if self._axes is None or self._axes[0] is not estimator:
            self._axes = (estimator, *principal_axes(estimator.pool_.points))
        _, centre, axes = self._axes
        return (points - centre) @ axes.T


def principal_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and two directions (2, d); the same for the same pool."""
    chosen = points
    if len(points) > SAMPLE:
        index = generator(0, "projection").choice(len(points), SAMPLE, replace=False)
        chosen = points[np.sort(index)]
    centre = chosen.mean(axis=0)
    directions = np.linalg.svd(chosen - centre, full_matrices=False)[2][:2]
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
    missing = np.zeros((2 - len(directions), points.shape[1]))  # a table of one column has one
    return centre, np.concatenate([directions, missing])


def _rounded(places: np.ndarray) -> list[list[float]]:
    return np.round(places, 3).tolist()
