"""Protocol ``complexity``: time of selection and of passes against N and T (beside the paper's Table 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, paper, words
from crumb.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Panel,
    Section,
    Table,
    Text,
)
from crumb.bench.report.common import slug, what_was_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "complexity", "Time against N and T"
COSTS = {"plan_seconds": "selection", "pass_seconds": "passes", "seconds": "all"}
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


def section(rows: pd.DataFrame) -> Section:
    blocks: list[Block] = [
        Text("The paper analyses how costs grow and measures none of it. Time here is wall-clock, mean over seeds."),
        *what_was_run(rows, PROTOCOL),
    ]
    good = statistics.ok_rows(rows)
    if good.empty:
        return Section(PROTOCOL, TITLE, [*blocks, Text("No run ended well: there is nothing to time.")])
    blocks.append(_growth_table(good))
    blocks.append(Bullets(break_even_sentences(good)))
    for varied in ("N", "T"):
        blocks += _figure(good, varied)
    blocks.append(_time_table(good))
    return Section(PROTOCOL, TITLE, blocks)


def sweep(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """The rows in which N (or T) varies while the other stays at the value with which it varied most."""
    other = "T" if varied == "N" else "N"
    counts = rows.groupby(other)[varied].nunique()
    return rows[rows[other] == counts.idxmax()] if len(counts) else rows


def growth(rows: pd.DataFrame, varied: str, cost: str) -> float:
    """The exponent a of time ~ N^a, from the largest sizes; NaN where there are fewer than two."""
    means = rows.groupby(varied)[cost].mean()
    means = means[means > 0].tail(TAIL)
    if len(means) < 2:
        return float("nan")
    return float(np.polyfit(np.log(means.index.to_numpy(float)), np.log(means.to_numpy(float)), 1)[0])


def break_even(rows: pd.DataFrame, method: str = "crumb", other: str = "full") -> tuple[float, bool]:
    """The N above which the method stays faster than the other, and whether that was seen; between sizes log-linear.

    (first N, True) if it is faster throughout, (last N, False) if it is not faster at the largest size.
    """
    times = rows.groupby(["N", "method"])["seconds"].mean().unstack("method")
    if not {method, other} <= set(times.columns):
        return float("nan"), False
    gap = np.log(times[method] / times[other]).dropna()
    if gap.empty:
        return float("nan"), False
    slower = np.flatnonzero(gap.to_numpy() >= 0)
    if not len(slower):
        return float(gap.index[0]), True
    last = slower[-1]
    if last == len(gap) - 1:
        return float(gap.index[-1]), False
    below, above = gap.iloc[last], gap.iloc[last + 1]
    share = below / (below - above)
    start, end = np.log(gap.index[last]), np.log(gap.index[last + 1])
    return float(np.exp(start + share * (end - start))), True


def break_even_sentences(rows: pd.DataFrame) -> list[str]:
    found = []
    for (model, device), part in sweep(rows, "N").groupby(["model", "device"], dropna=False):
        at, seen = break_even(part)
        where = f"{model} on {device or 'an unnamed device'}"
        smallest = part["N"].min()
        if not np.isfinite(at):
            found.append(f"**{where}:** CRUMB and full context were not both timed.")
        elif not seen:
            found.append(f"**{where}:** CRUMB was not faster than full context up to N = {at:,.0f}.")
        elif at <= smallest:
            found.append(f"**{where}:** CRUMB was faster than full context at every N, from {at:,.0f} rows on.")
        else:
            found.append(
                f"**{where}:** CRUMB is faster than full context from about N = {float(f'{at:.2g}'):,.0f} rows on."
            )
    return found


def _growth_table(rows: pd.DataFrame) -> Table:
    lines: list[list[Cell | str]] = []
    several = rows.groupby(["model", "device"], dropna=False).ngroups > 1
    for (model, device), part in rows.groupby(["model", "device"], dropna=False):
        over_n, over_t = sweep(part, "N"), sweep(part, "T")
        for method in palette.in_order(part["method"].unique()):
            theirs = paper.COMPLEXITY.get(method, (words.NOTHING,) * 3)
            ours_n, ours_t = over_n[over_n["method"] == method], over_t[over_t["method"] == method]
            passes = ours_n["contexts"].dropna()
            lines.append(
                [
                    palette.label(method) + (f", {model}, {device or 'device not said'}" if several else ""),
                    words.fixed(growth(ours_n, "N", "plan_seconds"), 2),
                    theirs[0],
                    words.fixed(growth(ours_n, "N", "pass_seconds"), 2),
                    theirs[1],
                    words.fixed(growth(ours_t, "T", "seconds"), 2),
                    words.fixed(float(passes.mean()), 1) if len(passes) else words.NOTHING,
                    theirs[2],
                ]
            )
    columns = [
        Column("Method", number=False),
        Column("selection, power of N"),
        Column("paper", number=False, paper=True),
        Column("passes, power of N"),
        Column("paper", number=False, paper=True),
        Column("all, power of T"),
        Column("number of passes"),
        Column("paper", number=False, paper=True),
    ]
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return Table(caption, columns, lines)


def _figure(rows: pd.DataFrame, varied: str) -> list[Block]:
    panels = []
    several = rows.groupby(["model", "device"], dropna=False).ngroups > 1
    methods: set[str] = set()
    for (model, device), part in rows.groupby(["model", "device"], dropna=False):
        part = sweep(part, varied)
        if part[varied].nunique() < 2:
            continue
        methods |= set(part["method"])
        for cost, name in COSTS.items():
            title = f"{name.capitalize()}{f', {model}, {device}' if several else ''}"
            panels.append(_panel(part, varied, cost, title, slug("complexity", varied, model, device, cost)))
    if not panels:
        return []
    what = "rows of the pool, N" if varied == "N" else "queries, T"
    caption = f"Seconds of selection, of passes and of both against {what}; both axes are logarithmic."
    return [Figure(slug("complexity", varied), caption, panels, drawing.keys(palette.in_order(methods)))]


def _panel(rows: pd.DataFrame, varied: str, cost: str, title: str, name: str) -> Panel:
    means = rows.groupby(["method", varied])[cost].mean()
    means = means[means > 0]

    def draw(axes: Axes) -> None:
        for method in palette.in_order(means.index.get_level_values(0).unique()):
            look = palette.look(method)
            axes.plot(means[method].index, means[method], color=look.light, marker=look.marker)
        axes.set(xscale="log", yscale="log", xlabel=varied, ylabel="seconds")
        drawing.plain_logarithm(axes.xaxis)
        drawing.plain_logarithm(axes.yaxis)

    largest = rows[rows[varied] == rows[varied].max()].groupby("method")[cost].mean()
    alt = f"At {varied} = {rows[varied].max():,.0f}: " + ", ".join(
        f"{palette.label(method)} {seconds:.3g} s" for method, seconds in largest.items()
    )
    return drawing.panel(name, title, alt, draw)


def _time_table(rows: pd.DataFrame) -> Table:
    means = rows.groupby(["model", "device", "N", "T", "method"], dropna=False)[[*COSTS]].mean()
    lines: list[list[Cell | str]] = [
        [
            *(str(model), str(device or words.NOTHING), words.whole(n), words.whole(t), palette.label(method)),
            *(words.seconds(line[cost]) for cost in COSTS),
        ]
        for (model, device, n, t, method), line in means.iterrows()
    ]
    columns = [
        Column("Model", number=False),
        Column("Device", number=False),
        Column("N"),
        Column("T"),
        Column("Method", number=False),
        *(Column(f"{name}, s") for name in COSTS.values()),
    ]
    return Table("All mean times", columns, lines, long=True)
