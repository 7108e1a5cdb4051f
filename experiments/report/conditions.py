"""What drift does to the scores and size to the time: protocols ``drift`` and ``complexity``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import blocks, figures, paper
from experiments.report.blocks import COSTS, Block, Figure, Table, by_lines, sweep, table
from experiments.report.numbers import NOTHING, counted, whole

PAIR = ["crumb", "micp"]
UNITS = {"classification": "accuracy points", "regression": "% of MICP's RMSE"}
WHERE = ["model", "device"]
TAIL = 3  # points at the large end from which growth is read: below, fixed costs dominate


def drift(rows: pd.DataFrame) -> list[Block]:
    scores = blocks.scores_of(rows, "drift")
    pairs = {task: pair for task in UNITS if len(pair := paired(rows, task))}
    return [
        blocks.left_out(scores),
        *(_lead_table(pair, task) for task, pair in pairs.items()),
        _slope_table(pairs),
        _lead_figure(pairs),
        _score_figure(statistics.ok_rows(rows)),
        blocks.rank_table(scores, "Ranks over all τ"),
    ]


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: a line for each (data set, model, seed, τ).

    ``points`` is the lead that has a common scale: in ``UNITS`` of the task.
    """
    scores = blocks.scores_of(rows[rows["task"] == task], "drift")
    pair = statistics.complete(scores, PAIR)
    lead = pair["crumb"] - pair["micp"]  # of −RMSE where that ranks: higher is better
    relative = lead / pair["micp"].abs().where(pair["micp"] != 0)
    points = 100 * (lead if task == "classification" else relative)
    return pair.abs().assign(lead=lead, relative=relative, points=points)


def _lead_table(pair: pd.DataFrame, task: str) -> Table:
    published = paper.DRIFT if task == "classification" else {}
    sets, by_tau = pair.index.get_level_values("dataset").nunique(), pair.groupby(level="tau")
    taus = [round(float(tau), 3) for tau in by_tau.groups]
    cells: dict[str, Any] = {"τ": [f"{tau:g}" for tau in taus]}
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    for name in [*PAIR, "lead"] if published or sets == 1 else []:
        title = "lead:+3" if name == "lead" else figures.label(name)
        cells[title] = by_tau[name].agg(["mean", "sem"]).itertuples(index=False, name=None)
        if published:
            cells[f"paper {title}"] = [published.get(tau, {}).get(name, NOTHING) for tau in taus]
    cells["lead, % of MICP:+1"] = 100 * by_tau["relative"].mean()
    cells["p over runs:p"] = by_tau["lead"].agg(statistics.wilcoxon)
    metric = blocks.METRICS[statistics.RANKED_BY[task]]
    beside = f"{counted(sets, 'data set')}{', beside Table 3' if published else ''}"
    return table(f"{metric} of CRUMB and MICP, mean ± SEM over {beside}", cells)


def slopes(points: pd.Series) -> pd.Series:
    """Points for each unit of τ: the slope of each (data set, model, seed)."""
    leads = points.dropna().unstack("tau")
    several = leads[leads.notna().sum(axis=1) > 1]
    fits = [np.polyfit(each.dropna().index, each.dropna(), 1)[0] for _, each in several.iterrows()]
    return pd.Series(fits, dtype=float)


def _slope_table(pairs: dict[str, pd.DataFrame]) -> Table:
    lines: list[tuple[Any, ...]] = []
    for task, pair in pairs.items():
        means = pair["points"].groupby(level="tau").mean()
        if len(found := slopes(pair["points"])):
            lines.append((task, UNITS[task], *means.iloc[[0, -1]], *blocks.effect(found)))
    theirs = [100 * paper.DRIFT[tau]["lead"][0] for tau in (0.0, 1.0)]
    lines += [("paper", UNITS["classification"], *theirs, *[NOTHING] * 4)] if lines else []
    title = "The lead over MICP at both ends of τ, and the slopes of all series (set, model, seed)"
    columns = f"Task | in | first τ:+2 | last τ:+2 | {blocks.EFFECT.replace('sets', 'series')}"
    return by_lines(title, columns.replace("+2", "+1"), lines)


def _lead_figure(pairs: dict[str, pd.DataFrame]) -> Figure:
    panels = []
    for task, pair in pairs.items():
        leads, labels = pair.reset_index(), {"xlabel": "drift τ", "ylabel": f"lead, {UNITS[task]}"}
        panels.append(figures.panel(f"Lead over MICP, {task}", _leads, leads, task, **labels))
    caption = """CRUMB's lead over MICP against drift: a thin line for each data set, the mean of
        all in bold with ± SEM; dotted: the paper."""
    return Figure("drift-lead", caption, panels)


def _leads(leads: pd.DataFrame, task: str, ax: Axes) -> None:
    each = leads.pivot_table(index="tau", columns="dataset", values="points")
    ax.plot(each.index, each, color=figures.MUTED, linewidth=0.9, alpha=0.7)
    figures.curves(leads.assign(method="crumb"), "tau", "points", ax=ax)
    if task == "classification":
        theirs = [100 * one["lead"][0] for one in paper.DRIFT.values()]
        ax.plot([*paper.DRIFT], theirs, color=figures.INK, marker="x", linestyle=":")
    ax.axhline(0, color=figures.MUTED)


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
    means = blocks.mean_costs(good, [*WHERE, "N", "T", "method"]).reset_index()
    means.insert(0, "Method", means.pop("method").map(figures.label))
    means = means.rename(columns={"N": "N:0", "T": "T:0"})
    return [
        _growth_table(good),
        _break_even_table(good),
        _time_figure(good, "N", "T", "rows of the pool, N"),
        _time_figure(good, "T", "N", "queries, T"),
        table("All mean times", means, long=True),
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
    times = statistics.complete(times, ["crumb", "full"])
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
        by_n, by_t = sweep(part, "N", "T"), sweep(part, "T", "N")
        swept = (by_n, "N", "plan_seconds"), (by_n, "N", "pass_seconds"), (by_t, "T", "seconds")
        ours = [*(growth(*each) for each in swept), by_n["contexts"].mean()]
        theirs = paper.COMPLEXITY.get(method, (NOTHING,) * 3)
        beside = (ours[0], theirs[0], ours[1], theirs[1], *ours[2:], theirs[2])
        lines.append((figures.label(method), model, device, *beside))
    columns = """Method | model | device | selection, power of N:2 | paper selection |
        passes, power of N:2 | paper passes | all, power of T:2 | contexts | paper number"""
    caption = f"How time grows: a in time ~ N^a, from the {TAIL} largest sizes, beside Table 5"
    return by_lines(caption, columns, lines)


def _break_even_table(rows: pd.DataFrame) -> Table:
    lines = []
    for where, part in sweep(rows, "N", "T").groupby(WHERE):
        at, seen = break_even(part)
        said = whole(float(f"{at:.2g}")) if seen else f"> {whole(at)}" if at > 0 else NOTHING
        lines.append((*where, part["N"].min(), part["N"].max(), said))
    columns = "Model | device | smallest N timed:0 | largest N timed:0 | CRUMB is faster from N ≈"
    return by_lines("Where CRUMB overtakes the full context", columns, lines)


def _time_figure(rows: pd.DataFrame, varied: str, other: str, what: str) -> Figure:
    panels = []
    for where, part in rows.groupby(WHERE):
        swept = sweep(part, varied, other)
        for cost, name in COSTS.items():
            title = ", ".join([name.split(",")[0].capitalize(), *where])
            timed = swept[swept[cost] > 0]
            labels = {"xscale": "log", "yscale": "log", "xlabel": varied, "ylabel": "seconds"}
            if swept[varied].nunique() > 1:
                panels.append(figures.panel(title, figures.curves, timed, varied, cost, **labels))
    caption = f"Seconds of selection, passes and both against {what}; both axes are logarithmic."
    return Figure(f"complexity-{varied.lower()}", caption, panels, figures.keys(rows["method"]))
