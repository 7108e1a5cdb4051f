"""Protocol ``complexity``: time of selection and passes against N and T (beside Table 5)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments import statistics
from experiments.report import common, figures, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, figure
from experiments.report.numbers import NOTHING, fixed, whole

PROTOCOL, TITLE = "complexity", "Time against N and T"
ABOUT = """The paper analyses how costs grow and measures none of it. Time here is wall-clock, mean
over seeds."""
WHERE = ["model", "device"]
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


def blocks(rows: pd.DataFrame) -> list[Block]:
    good = statistics.ok_rows(rows)
    if good.empty:
        return ["No run ended well: there is nothing to time."]
    drawn = [_figure(good, "N", "rows of the pool, N"), _figure(good, "T", "queries, T")]
    return [_growth_table(good), _break_even_table(good), *drawn, _time_table(good)]


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


def break_even(rows: pd.DataFrame) -> tuple[float, bool]:
    """The N above which CRUMB stays faster than the full context; between sizes log-linear.

    (first N, True) if it is faster throughout, (last N, False) if not even at the largest size.
    """
    times = rows.groupby(["N", "method"])["seconds"].mean().unstack("method")
    gap = np.log(times["crumb"] / times["full"]).dropna() if {"crumb", "full"} <= set(times) else ()
    if not len(gap):
        return float("nan"), False
    slower = np.flatnonzero(gap >= 0)
    if not len(slower):
        return float(gap.index[0]), True
    last = gap.iloc[slower[-1] : slower[-1] + 2]
    if len(last) == 1:
        return float(gap.index[-1]), False
    return float(np.exp(np.interp(0, -last, np.log(last.index)))), True


def _growth_table(rows: pd.DataFrame) -> Table | None:
    lines = []
    for (model, device, method), part in rows.groupby([*WHERE, "method"]):
        theirs = paper.COMPLEXITY.get(method, (NOTHING,) * 3)
        over_n, over_t = sweep(part, "N"), sweep(part, "T")
        powers = [growth(over_n, "N", cost) for cost in ("plan_seconds", "pass_seconds")]
        selection, passes, all_t = (fixed(p, 2) for p in (*powers, growth(over_t, "T", "seconds")))
        count = fixed(over_n["contexts"].mean(), 1)
        name = (figures.label(method), model or NOTHING, device or NOTHING)
        lines.append((*name, selection, theirs[0], passes, theirs[1], all_t, count, theirs[2]))
    columns = """Method | model | device | selection, power of N | paper selection | passes, power of
        N | paper passes | all, power of T | number of passes | paper number"""
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return by_lines(caption, columns, lines)


def _break_even_table(rows: pd.DataFrame) -> Table | None:
    lines = []
    for (model, device), part in sweep(rows, "N").groupby(WHERE):
        at, seen = break_even(part)
        said = whole(float(f"{at:.2g}")) if seen else f"> {whole(at)}" if at > 0 else NOTHING
        sizes = [whole(part["N"].min()), whole(part["N"].max())]
        lines.append((model or NOTHING, device or NOTHING, *sizes, said))
    columns = "Model | device | smallest N timed | largest N timed | CRUMB is faster from N ≈"
    return by_lines("Where CRUMB overtakes the full context", columns, lines)


def _figure(rows: pd.DataFrame, varied: str, what: str) -> Figure | None:
    panels = []
    for (model, device), part in rows.groupby(WHERE):
        swept = sweep(part, varied)
        for cost, name in common.COSTS.items() if swept[varied].nunique() > 1 else ():
            labels = {"xscale": "log", "yscale": "log", "xlabel": varied, "ylabel": "seconds"}
            timed = swept[swept[cost] > 0]
            title = f"{name.capitalize()}, {model}, {device}"
            panels.append(figures.panel(title, figures.curves, timed, varied, cost, **labels))
    caption = f"Seconds of selection, passes and both against {what}; both axes are logarithmic."
    return figure(f"complexity-{varied.lower()}", caption, panels, figures.keys(rows["method"]))


def _time_table(rows: pd.DataFrame) -> Table:
    means = (
        rows.groupby([*WHERE, "N", "T", "method"], dropna=False)[[*common.COSTS]]
        .mean()
        .reset_index()
    )
    names = {name.capitalize(): means[name].replace("", NOTHING) for name in WHERE}
    sizes = {name: means[name].map(whole) for name in ("N", "T")}
    methods = {"Method": means["method"].map(figures.label)}
    return Table("All mean times", names | sizes | methods | common.time_columns(means), long=True)
