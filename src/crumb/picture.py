"""Pictures of plans: where a context lies, and how its MMD² fell.

Everything is drawn on a ``Figure`` of its own, never through pyplot: no window, no global state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from crumb.rng import generator

if TYPE_CHECKING:
    from crumb.plan import Plan

POOL, QUERIES, CONTEXT, OTHERS = "#c3c9d3", "#2166ac", "#e6730f", "#9fb3cc"
INK, LINES = "#333a45", "#9aa1ac"
LEGEND: Any = {"fontsize": 8, "labelcolor": INK, "edgecolor": "none", "framealpha": 0.85}
FITTED_ROWS = 5_000  # pool rows behind the two axes
DRAWN_ROWS = 3_000  # more points would only blacken the paper
DRAWN_TRACES = 200
RISEN = 1.05  # times its minimum: an MMD² that has risen
ROUNDING = 1e-12  # an MMD² below this is noise


@dataclass(frozen=True)
class Plane:
    """The two directions in which the pool varies most, and the share of its variance in each."""

    centre: np.ndarray  # (d,)
    directions: np.ndarray  # (d, 2)
    shares: np.ndarray  # (2,)

    @classmethod
    def of(cls, pool: np.ndarray) -> Plane:
        """Principal components of a sample; a space of one dimension has no second one."""
        sample = _sampled(pool, FITTED_ROWS)
        centre = sample.mean(axis=0)
        _, spread, directions = np.linalg.svd(sample - centre, full_matrices=False)
        shares = spread**2 / max(float((spread**2).sum()), np.finfo(float).tiny)
        missing = max(0, 2 - len(shares))
        directions = np.pad(directions[:2], ((0, missing), (0, 0)))
        return cls(centre, directions.T, np.pad(shares[:2], (0, missing)))

    @property
    def is_line(self) -> bool:
        return bool(self.shares[1] < 1e-12)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        at = (points - self.centre) @ self.directions
        if self.is_line:  # points on a line would hide each other
            at[:, 1] = generator(0, "picture").uniform(-1, 1, len(at))
        return at


def draw_plan(
    plan: Plan, pool: Any = None, queries: Any = None, cluster: int | None = None, path: Any = None
) -> Figure:
    """The context of one cluster (by default the largest) among pool and queries; all MMD²."""
    shown = largest_cluster(plan) if cluster is None else cluster
    last = plan.n_clusters - 1
    if not 0 <= shown <= last:
        raise InvalidInput(f"The plan has the clusters 0 to {last}; there is no cluster {shown}.")
    with_points = pool is not None and queries is not None
    figure = new_figure(11 if with_points else 6, 4.6)
    axes = figure.subplots(1, 2 if with_points else 1, squeeze=False)[0]
    if with_points:
        pool, queries = _points(plan, pool, queries)
        members, context, plane = plan.labels == shown, plan.contexts[shown], Plane.of(pool)
        _scatter(axes[0], plane, pool, queries, members, context)
        axes[0].set(
            xlabel=f"first principal component ({plane.shares[0]:.0%} of the variance)",
            ylabel="" if plane.is_line else f"second ({plane.shares[1]:.0%})",
            title=f"cluster {shown} of {plan.n_clusters}: {members.sum():,} queries, "
            f"{len(context):,} of {len(pool):,} pool rows",
        )
        axes[0].legend(markerscale=1.6, **LEGEND)
    _draw_traces(axes[-1], plan, shown)
    return finish(figure, path)


def largest_cluster(plan: Plan) -> int:
    return serving_cluster(plan, np.ones(len(plan.labels), dtype=bool))


def serving_cluster(plan: Plan, members: np.ndarray) -> int:
    """The cluster whose context most of these queries get."""
    return int(np.bincount(plan.labels[members], minlength=plan.n_clusters).argmax())


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def finish(figure: Figure, path: Any) -> Figure:
    """One look for all panels; written whole or not at all where a path is given."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(LINES)
        axes.title.set(fontsize=10, color=INK)
        axes.xaxis.label.set(fontsize=9, color=INK)
        axes.yaxis.label.set(fontsize=9, color=INK)
        axes.tick_params(labelsize=8, color=LINES, labelcolor=INK)
    if path is not None:
        with atomic_write(path) as file:
            figure.savefig(file, format=Path(path).suffix.lstrip(".").lower() or "png", dpi=150)
    return figure


def _sampled(rows: np.ndarray, limit: int) -> np.ndarray:
    """At most ``limit`` of these rows; the same ones every time."""
    if len(rows) <= limit:
        return rows
    return rows[generator(0, "picture").choice(len(rows), limit, replace=False)]


def _points(plan: Plan, pool: Any, queries: Any) -> tuple[np.ndarray, np.ndarray]:
    pool, queries = np.asarray(pool, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    if pool.ndim != 2 or queries.ndim != 2 or pool.shape[1] != queries.shape[1]:
        raise InvalidInput("pool and queries must be matrices with the same columns.")
    rows, asked = plan.pool_size, len(plan.labels)
    if (len(pool), len(queries)) != (rows, asked):
        these = f"these are {len(pool)} and {len(queries)}"
        raise InvalidInput(f"The plan is for {rows} pool rows and {asked} queries; {these}.")
    return pool, queries


def _scatter(
    axes: Axes, plane: Plane, pool: np.ndarray, queries: np.ndarray, members: Any, context: Any
) -> None:
    """Pool, queries and the context of some of the queries on a plane."""
    chosen, own = pool[_sampled(context, DRAWN_ROWS)], queries[members]

    def dots(points: np.ndarray, colour: str, size: int, alpha: float, label: str) -> None:
        edge = "white" if points is own else "none"
        look: Any = {"alpha": alpha, "edgecolors": edge, "linewidths": 0.5, "rasterized": True}
        x, y = plane(_sampled(points, DRAWN_ROWS)).T
        axes.scatter(x, y, s=size, c=colour, label=label, **look)

    dots(pool, POOL, 5, 0.6, "pool")
    if not members.all():
        dots(queries[~members], QUERIES, 6, 0.3, "other queries")
    dots(chosen, CONTEXT, 11, 0.7, "context")
    dots(own, QUERIES, 24, 1.0, "queries of the cluster")
    # All that matters and the bulk of the pool: far outliers must not squeeze the rest.
    corners = [np.quantile(plane(_sampled(pool, FITTED_ROWS)), [0.01, 0.99], axis=0)]
    corners += [np.quantile(plane(rows), [0.02, 0.98], axis=0) for rows in (chosen, own)]
    low, high = np.min(corners, axis=(0, 1)), np.max(corners, axis=(0, 1))
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    (left, bottom), (right, top) = low - margin, high + margin
    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[])


def _draw_traces(axes: Axes, plan: Plan, shown: int) -> None:
    """MMD² against the rows taken so far, the shown cluster before all others."""
    axes.set(xlabel="rows in the context", ylabel="MMD² to the queries of the cluster")
    measured = [trace for trace in plan.mmd2 if np.isfinite(trace).any()]
    if not measured:
        middle: Any = {"ha": "center", "va": "center", "transform": axes.transAxes}
        axes.text(0.5, 0.5, "MMD² was not measured", color=INK, **middle)
        axes.set(xticks=[], yticks=[], title="MMD²")
        return

    def line(cluster: int, colour: str, width: float, label: str | None) -> None:
        trace = plan.mmd2[cluster]
        rows, dot = np.arange(1, len(trace) + 1), "o" if len(trace) == 1 else None
        axes.plot(rows, trace, color=colour, linewidth=width, marker=dot, label=label)

    others = [cluster for cluster in range(plan.n_clusters) if cluster != shown]
    for cluster in others[:DRAWN_TRACES]:
        line(cluster, OTHERS, 0.9, "other clusters" if cluster == others[0] else None)
    line(shown, CONTEXT, 2.0, f"cluster {shown}")
    if any((trace > ROUNDING).any() for trace in measured):  # 0 has no logarithm
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], ROUNDING))
    axes.set_xlabel(axes.get_xlabel() + _why_it_rises(axes, plan.mmd2[shown]))
    axes.set_title(f"strategy {plan.settings.get('strategy', '')!r}: MMD² as the context grows")
    axes.legend(**LEGEND)


def _why_it_rises(axes: Axes, trace: np.ndarray) -> str:
    """Marks the minimum of a trace that rises after it, and says why it does."""
    if not np.isfinite(trace).any() or trace[-1] <= max(RISEN * np.nanmin(trace), ROUNDING):
        return ""
    least = int(np.nanargmin(trace))
    axes.plot(least + 1, max(trace[least], ROUNDING), "o", color=CONTEXT, markersize=5)
    return (
        f"\nMMD² is least with {least + 1:,} rows. It rises after that: a row is taken only once,\n"
        "and the rows most like the queries are used up"
    )
