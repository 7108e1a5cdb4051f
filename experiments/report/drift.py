"""Protocol ``drift``: queries move away from the pool (the paper's Table 3 and Figure 5)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.common import left_out, rank_table, scores_of
from experiments.report.numbers import NOTHING, counted, fixed, p_value, percent, plus_minus

PROTOCOL, TITLE = "drift", "Covariate drift"
ABOUT = (
    "At τ = 0 the queries come from the interval of the pool along the first principal component, "
    "at τ = 1 the two are disjoint. The paper reports that CRUMB's lead over MICP grows from +4.9 to "
    "+17.1 accuracy points (it writes per cent). It speaks of sets with N ≥ 50,000, but two of its "
    "four, Anneal (898 rows) and Airfoil (1,503), are far smaller."
)
PAIR = ["crumb", "micp"]
TASKS = {  # the column of the lead that has a common scale, its unit, and the metric
    "classification": ("lead", "accuracy points", "Accuracy"),
    "regression": ("relative", "% of MICP's RMSE", "RMSE"),
}


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    scores = scores_of(rows, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    pairs = {task: pair for task in TASKS if len(pair := paired(rows, task))}
    return [
        *left_out(scores),
        *(_table(pair, task) for task, pair in pairs.items()),
        _slopes(pairs),
        _lead_figure(pairs),
        _panels(rows),
        rank_table(scores, "Ranks over all τ"),
    ]


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: a line for each (data set, model, seed, τ)."""
    scores = scores_of(rows[rows["task"] == task], PROTOCOL)
    if not set(PAIR) <= set(scores):
        return pd.DataFrame(columns=[*PAIR, "lead", "relative"])
    pair = scores[PAIR].dropna()
    lead = pair["crumb"] - pair["micp"]  # higher is better here, also for −RMSE
    pair = pair.abs()
    return pair.assign(lead=lead, relative=lead / pair["micp"].where(pair["micp"] > 0))


def _table(pair: pd.DataFrame, task: str) -> Table:
    _, _, metric = TASKS[task]
    published = paper.DRIFT if task == "classification" else {}
    sets = pair.index.get_level_values("dataset").nunique()
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    shown = [*PAIR, "lead"] if task == "classification" or sets == 1 else []
    by_tau = pair.groupby(level="tau")
    taus = list(by_tau.groups)
    cells = {"τ": [fixed(tau, 1) for tau in taus]}
    for name in shown:
        title, sign = ("lead" if name == "lead" else figures.label(name)), name == "lead"
        means = by_tau[name].agg(["mean", "sem"]).to_numpy()
        cells[title] = [plus_minus(*line, sign=sign) for line in means]
        if published:
            theirs = [published.get(round(float(tau), 3), {}).get(name) for tau in taus]
            cells[f"paper {title}"] = [
                plus_minus(*one, sign=sign) if one else NOTHING for one in theirs
            ]
    cells["lead, % of MICP"] = [percent(v, 1, sign=True) for v in by_tau["relative"].mean()]
    cells["p over runs"] = [p_value(statistics.wilcoxon(part["lead"])) for _, part in by_tau]
    beside = ", beside Table 3" if published else ""
    over = counted(sets, "data set")
    return Table(f"{metric} of CRUMB and MICP, mean ± SEM over {over}{beside}", cells)


def slopes(pair: pd.DataFrame, column: str) -> list[float]:
    """Hundredths for each unit of τ: the slope of each (data set, model, seed)."""
    series = pair[column].dropna().groupby(level=["dataset", "model", "seed"])
    return [
        float(np.polyfit(part.index.get_level_values("tau").to_numpy(float), 100 * part, 1)[0])
        for _, part in series
        if len(part) > 1
    ]


def _slopes(pairs: dict[str, pd.DataFrame]) -> Table | None:
    lines = []
    for task, pair in pairs.items():
        column, unit, _ = TASKS[task]
        means, found = 100 * pair[column].groupby(level="tau").mean(), slopes(pair, column)
        if not found:
            continue
        ends = [fixed(means.iloc[place], 1, sign=True) for place in (0, -1)]
        slope, p = fixed(float(np.mean(found)), 1, sign=True), p_value(statistics.wilcoxon(found))
        lines.append((task, unit, *ends, slope, str(len(found)), p))
    theirs = [fixed(100 * paper.DRIFT[tau]["lead"][0], 1, sign=True) for tau in (0.0, 1.0)]
    if not lines:
        return None
    lines.append(("paper, classification", "accuracy points", *theirs, NOTHING, NOTHING, NOTHING))
    columns = ("Task", "unit", "lead at the first τ", "at the last τ", "slope", "series", "p")
    cells = dict(zip(columns, map(list, zip(*lines, strict=True)), strict=True))
    caption = (
        "Does the lead over MICP grow? Slope for a unit of τ of each (data set, model, seed), "
        "their mean, and Wilcoxon's p"
    )
    return Table(caption, cells)


def _lead_figure(pairs: dict[str, pd.DataFrame]) -> Figure | None:
    panels = [_lead_panel(pair, task) for task, pair in pairs.items()]
    caption = (
        "CRUMB's lead over MICP against drift: a thin line for each data set, the mean of all in "
        "bold with ± SEM."
    )
    return Figure("drift-lead", caption, panels) if panels else None


def _lead_panel(pair: pd.DataFrame, task: str) -> Panel:
    column, unit, _ = TASKS[task]
    leads = 100 * pair[column]

    def draw(axes: Axes) -> None:
        for _, part in leads.groupby(level="dataset"):
            means = part.groupby(level="tau").mean()
            axes.plot(means.index, means, color=figures.MUTED, linewidth=0.9, alpha=0.7)
        figures.curve(axes, leads.groupby(level="tau"), "crumb")
        if task == "classification":
            theirs = {tau: 100 * one["lead"][0] for tau, one in paper.DRIFT.items()}
            style = {"color": figures.INK, "marker": "x", "linestyle": ":", "linewidth": 1.2}
            axes.plot([*theirs], [*theirs.values()], **style)
            axes.annotate(
                "paper", (1, theirs[1.0]), (-4, 5), textcoords="offset points", ha="right"
            )
        figures.zero_line(axes)
        axes.set(xlabel="drift τ", ylabel=f"lead, {unit}")

    return figures.panel(f"Lead over MICP, {task}", draw)


def _panels(rows: pd.DataFrame) -> Figure:
    good = statistics.ok_rows(rows)
    several = good["model"].nunique() > 1
    panels = [
        _panel(part, f"{dataset} · {model}" if several else str(dataset), task)
        for (dataset, model, task), part in good.groupby(["dataset", "model", "task"])
    ]
    caption = (
        "Accuracy, or RMSE for regression (lower is better), against drift, mean ± SEM over seeds "
        "(the paper's Figure 5, which shows CRUMB and MICP)."
    )
    methods = figures.in_order(good["method"].unique())
    return Figure("drift-panels", caption, panels, figures.keys(methods))


def _panel(rows: pd.DataFrame, title: str, task: str) -> Panel:
    def draw(axes: Axes) -> None:
        for method in figures.in_order(rows["method"].unique()):
            part = rows[rows["method"] == method]
            figures.curve(axes, part.groupby("tau")[statistics.RANKED_BY[task]], method)
        axes.set(xlabel="drift τ", ylabel=TASKS[task][2])

    return figures.panel(title, draw, height=2.7)
