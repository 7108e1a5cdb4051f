"""Protocol ``drift``: queries move away from the pool (the paper's Table 3 and Figure 5)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import common, figures, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, figure
from experiments.report.numbers import NOTHING, counted, fixed, p_value, plus_minus

PROTOCOL, TITLE = "drift", "Covariate drift"
ABOUT = """At τ = 0 the queries come from the interval of the pool along the first principal
component, at τ = 1 the two are disjoint. The paper reports that CRUMB's lead over MICP grows from
+4.9 to +17.1 accuracy points (it writes per cent). It speaks of sets with N ≥ 50,000, but two of
its four, Anneal (898 rows) and Airfoil (1,503), are far smaller."""
PAIR = ["crumb", "micp"]
# The lead that has a common scale, and its unit.
LEADS = {
    "classification": ("lead", "accuracy points"),
    "regression": ("relative", "% of MICP's RMSE"),
}


def blocks(rows: pd.DataFrame) -> list[Block]:
    scores = common.scores_of(rows, PROTOCOL)
    if scores.empty:
        return [common.left_out(scores)]
    pairs = {task: pair for task in LEADS if len(pair := paired(rows, task))}
    return [
        common.left_out(scores),
        *(_table(pair, task) for task, pair in pairs.items()),
        _slopes(pairs),
        _lead_figure(pairs),
        _panels(statistics.ok_rows(rows)),
        common.rank_table(scores, "Ranks over all τ"),
    ]


def paired(rows: pd.DataFrame, task: str) -> pd.DataFrame:
    """Scores of CRUMB and MICP on the same draw: a line for each (data set, model, seed, τ)."""
    scores = common.scores_of(rows[rows["task"] == task], PROTOCOL)
    if not set(PAIR) <= set(scores):
        return pd.DataFrame(columns=[*PAIR, "lead", "relative"])
    pair = scores[PAIR].dropna()
    lead = pair["crumb"] - pair["micp"]  # of −RMSE where that ranks: higher is better
    return pair.abs().assign(lead=lead, relative=lead / pair["micp"].abs().where(pair["micp"] != 0))


def _table(pair: pd.DataFrame, task: str) -> Table:
    published = paper.DRIFT if task == "classification" else {}
    sets, by_tau = pair.index.get_level_values("dataset").nunique(), pair.groupby(level="tau")
    taus = [round(float(tau), 3) for tau in by_tau.groups]
    cells = {"τ": [f"{tau:g}" for tau in taus]}
    # RMSEs of several data sets have no common scale: then only the relative lead has a mean.
    for name in [*PAIR, "lead"] if published or sets == 1 else []:
        title, sign = ("lead", True) if name == "lead" else (figures.label(name), False)
        means = by_tau[name].agg(["mean", "sem"]).to_numpy()
        cells[title] = [plus_minus(*each, sign=sign) for each in means]
        if published:
            theirs = [published[tau][name] if tau in published else None for tau in taus]
            cells[f"paper {title}"] = [plus_minus(*o, sign=sign) if o else NOTHING for o in theirs]
    relative = 100 * by_tau["relative"].mean()
    cells["lead, % of MICP"] = [fixed(value, 1, sign=True) for value in relative]
    cells["p over runs"] = [p_value(statistics.wilcoxon(part["lead"])) for _, part in by_tau]
    metric = common.METRICS[statistics.RANKED_BY[task]]
    beside = f"{counted(sets, 'data set')}{', beside Table 3' if published else ''}"
    return Table(f"{metric} of CRUMB and MICP, mean ± SEM over {beside}", cells)


def slopes(pair: pd.DataFrame, column: str) -> pd.Series:
    """Hundredths for each unit of τ: the slope of each (data set, model, seed)."""
    leads = 100 * pair[column].dropna().unstack("tau")
    several = leads[leads.notna().sum(axis=1) > 1]
    fits = [np.polyfit(each.dropna().index, each.dropna(), 1)[0] for _, each in several.iterrows()]
    return pd.Series(fits, dtype=float)


def _slopes(pairs: dict[str, pd.DataFrame]) -> Table | None:
    lines = []
    for task, pair in pairs.items():
        column, unit = LEADS[task]
        means = 100 * pair[column].groupby(level="tau").mean()
        ends = [fixed(means.iloc[place], 1, sign=True) for place in (0, -1)]
        if len(found := slopes(pair, column)):
            lines.append((task, unit, *ends, *common.effect(found, 1)))
    theirs = [fixed(100 * paper.DRIFT[tau]["lead"][0], 1, sign=True) for tau in (0.0, 1.0)]
    lines += [("paper", LEADS["classification"][1], *theirs, *[NOTHING] * 4)] if lines else []
    caption = """Does the lead over MICP grow with τ? The lead at both ends, and the slopes for a unit
        of τ of all series (data set, model, seed) with Wilcoxon's p"""
    columns = f"Task | in | first τ | last τ | {common.EFFECT.replace('sets', 'series')}"
    return by_lines(caption, columns, lines)


def _lead_figure(pairs: dict[str, pd.DataFrame]) -> Figure | None:
    panels = []
    for task, pair in pairs.items():
        column, unit = LEADS[task]
        leads = (100 * pair[column]).rename("lead").reset_index().assign(method="crumb")
        labels = {"xlabel": "drift τ", "ylabel": f"lead, {unit}"}
        panels.append(figures.panel(f"Lead over MICP, {task}", _leads, leads, task, **labels))
    caption = """CRUMB's lead over MICP against drift: a thin line for each data set, the mean of all
        in bold with ± SEM; dotted: the paper."""
    return figure("drift-lead", caption, panels)


def _leads(axes: Axes, leads: pd.DataFrame, task: str) -> None:
    each = leads.pivot_table(index="tau", columns="dataset", values="lead")
    axes.plot(each.index, each, color=figures.MUTED, linewidth=0.9, alpha=0.7)
    figures.curves(axes, leads, "tau", "lead")
    if task == "classification":
        theirs = [100 * one["lead"][0] for one in paper.DRIFT.values()]
        axes.plot([*paper.DRIFT], theirs, color=figures.INK, marker="x", linestyle=":")
    figures.zero_line(axes)


def _panels(rows: pd.DataFrame) -> Figure | None:
    panels = []
    for (dataset, model, task), part in rows.groupby(["dataset", "model", "task"]):
        metric = statistics.RANKED_BY[task]
        labels = {"xlabel": "drift τ", "ylabel": common.METRICS[metric]}
        title = f"{dataset} · {model}"
        panels.append(figures.panel(title, figures.curves, part, "tau", metric, **labels))
    caption = """Accuracy, or RMSE for regression (lower is better), against drift, mean ± SEM over
        seeds (the paper's Figure 5, which shows CRUMB and MICP)."""
    return figure("drift-panels", caption, panels, figures.keys(rows["method"]))
