"""Clusters and the latest queries in two dimensions: the first two principal components of the selection space."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crumb.online import CrumbOnline
from crumb.online.version import PlanVersion
from crumb.online.window import latest
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
        stream = self._stream
        accepted = (
            stream.stats().accepted
        )  # until queries have come the window holds rows of the pool
        with stream._changed:
            version, pieces = stream._version, stream._window.pieces()
            count = min(QUERIES, len(stream._window), accepted)
        plan = version.plan
        view = {
            "version": version.number,
            "centroids": _rounded(self._flat(version, plan.centroids)),
        }
        if not count:
            return {**view, "queries": [], "clusters": []}
        points = version.encode(latest(pieces, count))[1]
        return {
            **view,
            "queries": _rounded(self._flat(version, points)),
            "clusters": plan.route(points).tolist(),
        }

    def _flat(self, version: PlanVersion, points: np.ndarray) -> np.ndarray:
        if self._axes is None or self._axes[0] is not version.estimator:
            self._axes = (version.estimator, *principal_axes(version.estimator.pool_.points))
        _, centre, axes = self._axes
        return (points - centre) @ axes.T


def principal_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and two directions (2, d); the same for the same pool."""
    rng = generator(0, "projection")
    chosen = (
        points
        if len(points) <= SAMPLE
        else points[np.sort(rng.choice(len(points), SAMPLE, replace=False))]
    )
    centre = chosen.mean(axis=0)
    directions = np.linalg.svd(chosen - centre, full_matrices=False)[2][:2]
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
    missing = np.zeros(
        (2 - len(directions), points.shape[1])
    )  # a table of one column has one direction
    return centre, np.concatenate([directions, missing])


def _rounded(places: np.ndarray) -> list[list[float]]:
    return np.round(places, 3).tolist()
