"""Pictures of plans: where the context of a cluster lies, how its MMD² fell, how strategies differ.

Everything is drawn on a ``Figure`` of its own, never through pyplot: no window, no global state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from crumb.rng import generator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from crumb.plan import Plan

POOL, QUERIES, CONTEXT, INK = "#c3c9d3", "#2166ac", "#e6730f", "#333a45"
FITTED_ROWS = 5_000  # pool rows behind the two axes
DRAWN_ROWS = 3_000  # more points than that only blacken the paper
DRAWN_TRACES = 200
ROUNDING = 1e-12  # an MMD² below this is noise
KERNEL_VALUES = 500_000_000  # spent on the exact MMD² of one context before it is left unmeasured


def draw_plan(
    plan: Plan, pool: Any = None, queries: Any = None, cluster: int | None = None, path: Any = None
) -> Figure:
    """The context of one cluster (by default the largest) among pool and queries, and the MMD² of all."""
    shown = largest_cluster(plan) if cluster is None else _checked_cluster(plan, cluster)
    with_points = pool is not None and queries is not None
    figure = new_figure(11 if with_points else 6, 4.6)
    axes = figure.subplots(1, 2 if with_points else 1, squeeze=False)[0]
    if with_points:
        pool, queries = _points(plan, pool, queries)
        members = plan.labels == shown
        scatter(axes[0], flatten(pool), pool, queries, members, plan.contexts[shown])
        counted = (
            f"{members.sum():,} queries, {len(plan.contexts[shown]):,} of {len(pool):,} pool rows"
        )
        axes[0].set_title(f"cluster {shown} of {plan.n_clusters}: {counted}")
        axes[0].legend(loc="best", markerscale=1.6)
    _draw_traces(axes[-1], plan, shown)
    return finish(figure, path)


def draw_comparison(
    plans: Mapping[str, Plan], pool: Any, queries: Any, query_members: Any, path: Any = None
) -> Figure:
    """One group of queries (a mask or row numbers) and the context that it gets under each strategy."""
    for plan in plans.values():
        pool, queries = _points(plan, pool, queries)
    plane, members = flatten(pool), np.zeros(len(queries), dtype=bool)
    members[query_members] = True
    rows = -(-len(plans) // 4)
    columns = -(-len(plans) // rows)
    figure = new_figure(3.5 * columns + 0.3, 3.7 * rows + 0.7)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, (name, plan) in zip(panels, plans.items(), strict=False):
        own = serving_cluster(plan, members)
        scatter(panel, plane, pool, queries, members, plan.contexts[own], axis_names=False)
        mmd2 = group_mmd2(plan, pool, queries, [members])[0]
        value = f"MMD² = {mmd2:.2g}" if np.isfinite(mmd2) else "MMD² not measured"
        panel.set_title(
            f"{'mmd (CRUMB)' if name == 'mmd' else name}\n{value} · {len(plan.contexts[own]):,} rows"
        )
    for panel in panels[len(plans) :]:
        panel.set_axis_off()
    _set_limits(panels[0], plane, pool, [queries[members]])
    figure.suptitle(
        f"{members.sum():,} queries of one cluster, and the context that they get",
        color=INK,
        fontsize=11,
    )
    handles, names = panels[0].get_legend_handles_labels()
    look = {"frameon": False, "markerscale": 1.6, "fontsize": 9, "labelcolor": INK}
    figure.legend(handles, names, loc="outside lower center", ncols=4, **look)
    return finish(figure, path)


def largest_cluster(plan: Plan) -> int:
    return int(np.bincount(plan.labels, minlength=plan.n_clusters).argmax())


def query_groups(plans: Mapping[str, Plan]) -> list[np.ndarray]:
    """The clusters by which strategies are compared: those of mmd, or of the first plan that has several."""
    several = [plan for plan in plans.values() if 1 < plan.n_clusters < len(plan.labels)]
    plan = plans["mmd"] if "mmd" in plans else (several or list(plans.values()))[0]
    return [
        plan.labels == cluster
        for cluster in range(plan.n_clusters)
        if (plan.labels == cluster).any()
    ]


def serving_cluster(plan: Plan, members: np.ndarray) -> int:
    """The cluster whose context answers most of these queries."""
    return int(np.bincount(plan.labels[members], minlength=plan.n_clusters).argmax())


def group_mmd2(
    plan: Plan, pool: np.ndarray, queries: np.ndarray, groups: Sequence[np.ndarray]
) -> np.ndarray:
    """Exact MMD² between each group of queries and the context that most of them get; NaN where too dear."""
    import torch

    from crumb.herding.kernel import Rbf

    kernel = Rbf(plan.settings["bandwidth"])
    within: dict[
        int, float
    ] = {}  # one context may serve many groups; its own kernel mean is the dear part
    values = np.full(len(groups), np.nan)
    for index, members in enumerate(groups):
        cluster = serving_cluster(plan, members)
        if len(plan.contexts[cluster]) ** 2 > KERNEL_VALUES:
            continue
        context, points = (
            torch.from_numpy(pool[plan.contexts[cluster]]),
            torch.from_numpy(queries[members]),
        )
        if cluster not in within:
            within[cluster] = float(kernel.mean(context, context))
        values[index] = within[cluster] + float(
            kernel.mean(points, points) - 2 * kernel.mean(context, points)
        )
    return values


@dataclass(frozen=True)
class Plane:
    """Two directions in which the pool varies most, and the share of its variance in each."""

    centre: np.ndarray  # (d,)
    directions: np.ndarray  # (d, 2)
    shares: np.ndarray  # (2,)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        at = (points - self.centre) @ self.directions
        if self.is_line:
            at[:, 1] = generator(0, "picture").uniform(
                -1, 1, len(at)
            )  # points on a line would hide each other
        return at

    @property
    def is_line(self) -> bool:
        return bool(self.shares[1] < 1e-12)


def flatten(pool: np.ndarray) -> Plane:
    """Principal components of a sample of the pool; a space of one dimension has no second one."""
    sample = pool[_sample(len(pool), FITTED_ROWS)]
    centre = sample.mean(axis=0)
    _, spread, directions = np.linalg.svd(sample - centre, full_matrices=False)
    flat, shares = np.zeros((pool.shape[1], 2)), np.zeros(2)
    found = min(2, len(directions))
    flat[:, :found] = directions[:found].T
    shares[:found] = spread[:found] ** 2 / max(float((spread**2).sum()), np.finfo(float).tiny)
    return Plane(centre, flat, shares)


def scatter(
    axes: Axes,
    plane: Plane,
    pool: np.ndarray,
    queries: np.ndarray,
    members: np.ndarray,
    context: np.ndarray,
    axis_names: bool = True,
) -> None:
    """Pool, queries and the context of some of the queries on a plane."""
    chosen = pool[context[_sample(len(context), DRAWN_ROWS)]]
    _dots(axes, plane(pool[_sample(len(pool), DRAWN_ROWS)]), POOL, 5, 0.6, "pool")
    if not members.all():
        others = queries[~members]
        _dots(
            axes, plane(others[_sample(len(others), DRAWN_ROWS)]), QUERIES, 6, 0.3, "other queries"
        )
    _dots(axes, plane(chosen), CONTEXT, 11, 0.7, "context")
    own = queries[members]
    _dots(
        axes,
        plane(own[_sample(len(own), DRAWN_ROWS)]),
        QUERIES,
        24,
        1.0,
        "queries of the cluster",
        edge="white",
    )
    _set_limits(axes, plane, pool, [chosen, own])
    axes.set(xticks=[], yticks=[])
    if axis_names:
        axes.set_xlabel(f"first principal component ({plane.shares[0]:.0%} of the variance)")
        axes.set_ylabel("" if plane.is_line else f"second ({plane.shares[1]:.0%})")


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def finish(figure: Figure, path: Any) -> Figure:
    """One look for all panels; written whole or not at all where a path is given."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#9aa1ac")
        axes.title.set(fontsize=10, color=INK)
        axes.xaxis.label.set(fontsize=9, color=INK)
        axes.yaxis.label.set(fontsize=9, color=INK)
        axes.tick_params(labelsize=8, color="#9aa1ac", labelcolor=INK)
        if legend := axes.get_legend():
            legend.set_frame_on(True)
            legend.get_frame().set(edgecolor="none", alpha=0.85)
            for text in legend.get_texts():
                text.set(fontsize=8, color=INK)
    if path is not None:
        with atomic_write(path) as file:
            figure.savefig(file, format=Path(path).suffix.lstrip(".").lower() or "png", dpi=150)
    return figure


def _points(plan: Plan, pool: Any, queries: Any) -> tuple[np.ndarray, np.ndarray]:
    pool, queries = np.asarray(pool, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    if pool.ndim != 2 or queries.ndim != 2 or pool.shape[1] != queries.shape[1]:
        raise InvalidInput(
            "pool and queries must be matrices of the selection space with the same columns."
        )
    if len(pool) != plan.pool_size or len(queries) != len(plan.labels):
        raise InvalidInput(
            f"The plan is for {plan.pool_size} pool rows and {len(plan.labels)} queries; these are "
            f"{len(pool)} and {len(queries)}."
        )
    return pool, queries


def _checked_cluster(plan: Plan, cluster: int) -> int:
    if not 0 <= cluster < plan.n_clusters:
        raise InvalidInput(
            f"The plan has the clusters 0 to {plan.n_clusters - 1}; there is no cluster {cluster}."
        )
    return int(cluster)


def _sample(size: int, limit: int) -> np.ndarray:
    """Row numbers, at most ``limit`` of them; the same ones every time."""
    if size <= limit:
        return np.arange(size)
    return generator(0, "picture").choice(size, limit, replace=False)


def _dots(
    axes: Axes,
    at: np.ndarray,
    colour: str,
    size: float,
    alpha: float,
    label: str,
    edge: str = "none",
) -> None:
    axes.scatter(
        at[:, 0],
        at[:, 1],
        s=size,
        c=colour,
        alpha=alpha,
        edgecolors=edge,
        linewidths=0.5,
        label=label,
        rasterized=True,
    )


def _set_limits(axes: Axes, plane: Plane, pool: np.ndarray, shown: Sequence[np.ndarray]) -> None:
    """The bulk of the pool and all that matters: a few far outliers must not squeeze the rest together."""
    bulk = np.quantile(plane(pool[_sample(len(pool), FITTED_ROWS)]), [0.01, 0.99], axis=0)
    corners = np.concatenate(
        [bulk, *(np.quantile(plane(rows), [0.02, 0.98], axis=0) for rows in shown)]
    )
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = np.where(high > low, 0.08 * (high - low), 1.0)
    axes.set_xlim(low[0] - margin[0], high[0] + margin[0])
    axes.set_ylim(low[1] - margin[1], high[1] + margin[1])


def _draw_traces(axes: Axes, plan: Plan, shown: int) -> None:
    """MMD² against the rows taken so far, the shown cluster before all others."""
    axes.set(xlabel="rows in the context", ylabel="MMD² to the queries of the cluster")
    measured = [trace for trace in plan.mmd2 if np.isfinite(trace).any()]
    if not measured:
        axes.text(
            0.5,
            0.5,
            "MMD² was not measured",
            ha="center",
            va="center",
            transform=axes.transAxes,
            color=INK,
        )
        axes.set(xticks=[], yticks=[], title="MMD²")
        return
    others = [cluster for cluster in range(plan.n_clusters) if cluster != shown]
    for index, cluster in enumerate(others[:DRAWN_TRACES]):
        _line(axes, plan.mmd2[cluster], "#9fb3cc", 0.9, None if index else "other clusters")
    _line(axes, plan.mmd2[shown], CONTEXT, 2.0, f"cluster {shown}")
    if any(
        (trace > ROUNDING).any() for trace in measured
    ):  # equal sets have an MMD² of 0: no logarithm
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], ROUNDING))
    axes.set_title(f"strategy {plan.settings.get('strategy', '')!r}: MMD² as the context grows")
    axes.legend(loc="best")


def _line(axes: Axes, trace: np.ndarray, colour: str, width: float, label: str | None) -> None:
    marker = "o" if len(trace) == 1 else None
    axes.plot(
        np.arange(1, len(trace) + 1),
        trace,
        color=colour,
        linewidth=width,
        marker=marker,
        label=label,
    )
