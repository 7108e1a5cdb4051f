"""What drift does to the scores and size to the time: protocols ``drift`` and ``complexity``."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import blocks, figures, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, sweep
from experiments.report.numbers import (
    NOTHING,
    counted,
    fixed,
    means_and_errors,
    p_value,
    plus_minus,
    signed,
    whole,
)

PAIR = ["crumb", "micp"]
# The lead that has a common scale, and its unit.
LEADS = {
    "classification": ("lead", "accuracy points"),
    "regression": ("relative", "% of MICP's RMSE"),
}
WHERE, PARTS = ["model", "device"], ("plan_seconds", "pass_seconds")
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


def drift(rows: pd.DataFrame) -> list[Block]:
    scores = blocks.scores_of(rows, "drift")
    pairs = {task: pair for task in LEADS if len(pair := paired(rows, task))}
    return [
        blocks.left_out(scores),
        *(_lead_table(pair, task) for task, pair in pairs.items()),
        _slope_table(pairs),
        _lead_figure(pairs),
        _score_figure(statistics.ok_rows(rows)),
        blocks.rank_table(scores, "Ranks over all τ"),
    ]


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: a line for each (data set, model, seed, τ)."""
    scores = blocks.scores_of(rows[rows["task"] == task], "drift")
    pair = statistics.complete(scores, PAIR)
    lead = pair["crumb"] - pair["micp"]  # of −RMSE where that ranks: higher is better
    return pair.abs().assign(lead=lead, relative=lead / pair["micp"].abs().where(pair["micp"] != 0))


def _lead_table(pair: pd.DataFrame, task: str) -> Table:
    published = paper.DRIFT if task == "classification" else {}
    sets, by_tau = pair.index.get_level_values("dataset").nunique(), pair.groupby(level="tau")
    taus = [round(float(tau), 3) for tau in by_tau.groups]
    cells = {"τ": [f"{tau:g}" for tau in taus]}
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    for name in [*PAIR, "lead"] if published or sets == 1 else []:
        title, sign = ("lead", True) if name == "lead" else (figures.label(name), False)
        cells[title] = means_and_errors(by_tau[name].agg(["mean", "sem"]), sign=sign)
        if published:
            theirs = [published.get(tau, {}).get(name, (np.nan, np.nan)) for tau in taus]
            cells[f"paper {title}"] = [plus_minus(*one, sign=sign) for one in theirs]
    cells["lead, % of MICP"] = [signed(value, 1) for value in 100 * by_tau["relative"].mean()]
    cells["p over runs"] = [p_value(statistics.wilcoxon(part["lead"])) for _, part in by_tau]
    metric = blocks.METRICS[statistics.RANKED_BY[task]]
    beside = f"{counted(sets, 'data set')}{', beside Table 3' if published else ''}"
    return Table(f"{metric} of CRUMB and MICP, mean ± SEM over {beside}", cells)


def slopes(pair: pd.DataFrame, column: str) -> pd.Series:
    """Hundredths for each unit of τ: the slope of each (data set, model, seed)."""
    leads = 100 * pair[column].dropna().unstack("tau")
    several = leads[leads.notna().sum(axis=1) > 1]
    fits = [np.polyfit(each.dropna().index, each.dropna(), 1)[0] for _, each in several.iterrows()]
    return pd.Series(fits, dtype=float)


def _slope_table(pairs: dict[str, pd.DataFrame]) -> Table:
    lines = []
    for task, pair in pairs.items():
        column, unit = LEADS[task]
        means = 100 * pair[column].groupby(level="tau").mean()
        if len(found := slopes(pair, column)):
            ends = [signed(means.iloc[place], 1) for place in (0, -1)]
            lines.append((task, unit, *ends, *blocks.effect(found, 1)))
    theirs = [signed(100 * paper.DRIFT[tau]["lead"][0], 1) for tau in (0.0, 1.0)]
    lines += [("paper", LEADS["classification"][1], *theirs, *[NOTHING] * 4)] if lines else []
    title = "The lead over MICP at both ends of τ, and the slopes of all series (set, model, seed)"
    columns = f"Task | in | first τ | last τ | {blocks.EFFECT.replace('sets', 'series')}"
    return by_lines(title, columns, lines)


def _lead_figure(pairs: dict[str, pd.DataFrame]) -> Figure:
    panels = []
    for task, pair in pairs.items():
        column, unit = LEADS[task]
        leads = (100 * pair[column]).rename("lead").reset_index().assign(method="crumb")
        labels = {"xlabel": "drift τ", "ylabel": f"lead, {unit}"}
        panels.append(figures.panel(f"Lead over MICP, {task}", _leads, leads, task, **labels))
    caption = """CRUMB's lead over MICP against drift: a thin line for each data set, the mean of
        all in bold with ± SEM; dotted: the paper."""
    return Figure("drift-lead", caption, panels)


def _leads(axes: Axes, leads: pd.DataFrame, task: str) -> None:
    each = leads.pivot_table(index="tau", columns="dataset", values="lead")
    axes.plot(each.index, each, color=figures.MUTED, linewidth=0.9, alpha=0.7)
    figures.curves(axes, leads, "tau", "lead")
    if task == "classification":
        theirs = [100 * one["lead"][0] for one in paper.DRIFT.values()]
        axes.plot([*paper.DRIFT], theirs, color=figures.INK, marker="x", linestyle=":")
    figures.zero_line(axes)


def _score_figure(rows: pd.DataFrame) -> Figure:
    panels = []
    for (dataset, model, task), part in rows.groupby(["dataset", "model", "task"]):
        metric, title = statistics.RANKED_BY[task], f"{dataset} · {model}"
        labels = {"xlabel": "drift τ", "ylabel": blocks.METRICS[metric]}
        panels.append(figures.panel(title, figures.curves, part, "tau", metric, **labels))
    caption = """Accuracy, or RMSE for regression (lower is better), against drift, mean ± SEM over
        seeds (the paper's Figure 5, which shows CRUMB and MICP)."""
    return Figure("drift-panels", caption, panels, figures.keys(rows["method"]))


def complexity(rows: pd.DataFrame) -> list[Block]:
    good = statistics.ok_rows(rows)
    return [
        _growth_table(good),
        _break_even_table(good),
        _time_figure(good, "N", "T", "rows of the pool, N"),
        _time_figure(good, "T", "N", "queries, T"),
        _time_table(good),
    ]


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
    times = times.reindex(columns=["crumb", "full"]).dropna()
    if times.empty:
        return float("nan"), False
    gap = np.log(times["crumb"] / times["full"])
    slower = np.flatnonzero(gap >= 0)
    last = gap.iloc[slower[-1] : slower[-1] + 2] if len(slower) else gap[:1]
    if len(slower) and len(last) > 1:
        return float(np.exp(np.interp(0, -last, np.log(last.index)))), True
    return float(last.index[0]), not len(slower)


def _growth_table(rows: pd.DataFrame) -> Table:
    lines = []
    for (model, device, method), part in rows.groupby([*WHERE, "method"]):
        theirs = paper.COMPLEXITY.get(method, (NOTHING,) * 3)
        over_n, over_t = sweep(part, "N", "T"), sweep(part, "T", "N")
        selection, passes = (fixed(growth(over_n, "N", cost), 2) for cost in PARTS)
        both, count = fixed(growth(over_t, "T", "seconds"), 2), fixed(over_n["contexts"].mean(), 1)
        name = (figures.label(method), model, device)
        lines.append((*name, selection, theirs[0], passes, theirs[1], both, count, theirs[2]))
    columns = """Method | model | device | selection, power of N | paper selection |
        passes, power of N | paper passes | all, power of T | number of passes | paper number"""
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return by_lines(caption, columns, lines)


def _break_even_table(rows: pd.DataFrame) -> Table:
    lines = []
    for where, part in sweep(rows, "N", "T").groupby(WHERE):
        at, seen = break_even(part)
        said = whole(float(f"{at:.2g}")) if seen else f"> {whole(at)}" if at > 0 else NOTHING
        lines.append((*where, whole(part["N"].min()), whole(part["N"].max()), said))
    columns = "Model | device | smallest N timed | largest N timed | CRUMB is faster from N ≈"
    return by_lines("Where CRUMB overtakes the full context", columns, lines)


def _time_figure(rows: pd.DataFrame, varied: str, other: str, what: str) -> Figure:
    panels = []
    for where, part in rows.groupby(WHERE):
        swept = sweep(part, varied, other)
        for cost, name in blocks.COSTS.items() if swept[varied].nunique() > 1 else ():
            title, timed = ", ".join([name.capitalize(), *where]), swept[swept[cost] > 0]
            labels = {"xscale": "log", "yscale": "log", "xlabel": varied, "ylabel": "seconds"}
            panels.append(figures.panel(title, figures.curves, timed, varied, cost, **labels))
    caption = f"Seconds of selection, passes and both against {what}; both axes are logarithmic."
    return Figure(f"complexity-{varied.lower()}", caption, panels, figures.keys(rows["method"]))


def _time_table(rows: pd.DataFrame) -> Table:
    keys = [*WHERE, "N", "T", "method"]
    means = rows.groupby(keys, dropna=False)[[*blocks.COSTS]].mean().reset_index()
    sizes = {name: means[name].map(whole) for name in ("N", "T")}
    names = {"Method": means["method"].map(figures.label), **means[WHERE]}
    return Table("All mean times", names | sizes | blocks.time_columns(means), long=True)
