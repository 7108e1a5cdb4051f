"""Protocol ``complexity``: time of selection and passes against N and T (beside Table 5)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.common import time_columns
from experiments.report.numbers import NOTHING, fixed, whole

PROTOCOL, TITLE = "complexity", "Time against N and T"
ABOUT = (
    "The paper analyses how costs grow and measures none of it. Time here is wall-clock, mean over "
    "seeds."
)
COSTS = {"plan_seconds": "selection", "pass_seconds": "passes", "seconds": "all"}
WHERE = ["model", "device"]
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    good = statistics.ok_rows(rows)
    if good.empty:
        return ["No run ended well: there is nothing to time."]
    pictures = [_figure(good, varied) for varied in ("N", "T")]
    return [_growth_table(good), _break_even_table(good), *pictures, _time_table(good)]


def sweep(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """The rows in which N (or T) varies while the other stays where it varied most."""
    other = "T" if varied == "N" else "N"
    counts = rows.groupby(other)[varied].nunique()
    return rows[rows[other] == counts.idxmax()] if len(counts) else rows


def growth(rows: pd.DataFrame, varied: str, cost: str) -> float:
    """The exponent a of time ~ N^a, from the largest sizes; NaN where there are fewer than two."""
    means = rows.groupby(varied)[cost].mean()
    means = means[means > 0].tail(TAIL)
    if len(means) < 2:
        return float("nan")
    return float(np.polyfit(np.log(means.index.to_numpy(float)), np.log(means), 1)[0])


def break_even(
    rows: pd.DataFrame, method: str = "crumb", other: str = "full"
) -> tuple[float, bool]:
    """The N above which the method stays faster than the other; between sizes log-linear.

    (first N, True) if it is faster throughout, (last N, False) if not even at the largest size.
    """
    times = rows.groupby(["N", "method"])["seconds"].mean().unstack("method")
    if not {method, other} <= set(times.columns):
        return float("nan"), False
    gap = np.log(times[method] / times[other]).dropna()
    slower = np.flatnonzero(gap >= 0)
    if gap.empty or not len(slower):
        return (float(gap.index[0]), True) if len(gap) else (float("nan"), False)
    last = slower[-1]
    if last == len(gap) - 1:
        return float(gap.index[-1]), False
    at = np.interp(0, -gap.iloc[[last, last + 1]], np.log(gap.index[[last, last + 1]]))
    return float(np.exp(at)), True


def _growth_table(rows: pd.DataFrame) -> Table:
    lines = []
    for (model, device), part in rows.groupby(WHERE):
        over_n, over_t = sweep(part, "N"), sweep(part, "T")
        for method in figures.in_order(part["method"].unique()):
            theirs = paper.COMPLEXITY.get(method, (NOTHING,) * 3)
            ours_n, ours_t = (over[over["method"] == method] for over in (over_n, over_t))
            lines.append(
                (
                    figures.label(method),
                    model or NOTHING,
                    device or NOTHING,
                    fixed(growth(ours_n, "N", "plan_seconds"), 2),
                    theirs[0],
                    fixed(growth(ours_n, "N", "pass_seconds"), 2),
                    theirs[1],
                    fixed(growth(ours_t, "T", "seconds"), 2),
                    fixed(ours_n["contexts"].mean(), 1),
                    theirs[2],
                )
            )
    columns = (
        "Method", "model", "device", "selection, power of N", "paper selection",
        "passes, power of N", "paper passes", "all, power of T", "number of passes", "paper number",
    )  # fmt: skip
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return Table(caption, dict(zip(columns, map(list, zip(*lines, strict=True)), strict=True)))


def _break_even_table(rows: pd.DataFrame) -> Table:
    parts = dict(list(sweep(rows, "N").groupby(WHERE)))
    found = [break_even(part) for part in parts.values()]
    said = [
        NOTHING if not np.isfinite(at) else whole(float(f"{at:.2g}")) if seen else f"> {whole(at)}"
        for at, seen in found
    ]
    cells = {
        "Model": [model or NOTHING for model, _ in parts],
        "device": [device or NOTHING for _, device in parts],
        "N timed, smallest": [whole(part["N"].min()) for part in parts.values()],
        "largest": [whole(part["N"].max()) for part in parts.values()],
        "CRUMB is faster from N ≈": said,
    }
    return Table("From which N on CRUMB is faster than the full context", cells)


def _figure(rows: pd.DataFrame, varied: str) -> Figure | None:
    several = rows.groupby(WHERE).ngroups > 1
    panels, methods = [], set()
    for where, part in rows.groupby(WHERE):
        part = sweep(part, varied)
        if part[varied].nunique() > 1:
            methods |= set(part["method"])
            after = f", {', '.join(where)}" if several else ""
            panels += [
                _panel(part, varied, cost, f"{COSTS[cost].capitalize()}{after}") for cost in COSTS
            ]
    what = "rows of the pool, N" if varied == "N" else "queries, T"
    caption = f"Seconds of selection, passes and both against {what}; both axes are logarithmic."
    legend = figures.keys(figures.in_order(methods))
    return Figure(f"complexity-{varied.lower()}", caption, panels, legend) if panels else None


def _panel(rows: pd.DataFrame, varied: str, cost: str, title: str) -> Panel:
    means = rows.groupby(["method", varied])[cost].mean()
    means = means[means > 0]

    def draw(axes: Axes) -> None:
        for method in figures.in_order(means.index.unique("method")):
            _, colour, marker = figures.look(method)
            axes.plot(means[method].index, means[method], color=colour, marker=marker)
        axes.set(xscale="log", yscale="log", xlabel=varied, ylabel="seconds")
        figures.logarithmic(axes.xaxis)
        figures.logarithmic(axes.yaxis)

    return figures.panel(title, draw)


def _time_table(rows: pd.DataFrame) -> Table:
    means = rows.groupby([*WHERE, "N", "T", "method"], dropna=False)[[*COSTS]].mean()
    models, devices, pools, queries, methods = zip(*means.index, strict=True)
    cells = {
        "Model": [model or NOTHING for model in models],
        "Device": [device or NOTHING for device in devices],
        "N": [whole(value) for value in pools],
        "T": [whole(value) for value in queries],
        "Method": [figures.label(method) for method in methods],
        **time_columns(means),
    }
    return Table("All mean times", cells, long=True)
