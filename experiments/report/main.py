"""Protocol ``main``: all methods at n = 0.1 N (the paper's Table 1)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.common import (
    CRUMB,
    UNITS,
    compared,
    dataset_table,
    left_out,
    metric_table,
    rank_bars,
    rank_table,
    ranks_by_model,
    scores_of,
    time_columns,
)
from experiments.report.numbers import best, code, fixed, p_value, seconds, whole

PROTOCOL, TITLE = "main", "Main results"
ABOUT = (
    "The paper ranks full context, kNN, CRUMB, MICP and uniform in this order; it finds CRUMB close "
    "to kNN (p = 0.106) and better than MICP and uniform (p < 0.001)."
)
TESTS = (
    "p is Wilcoxon's signed-rank test of paired ranks against CRUMB with Bonferroni's correction, "
    "over groups as in the paper. Seeds of one data set are not independent: the last column tests "
    "the mean ranks of the data sets."
)


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    five = rows[rows["method"].isin(paper.MAIN_RANKS)]  # a sixth would change the ranks of the five
    scores = scores_of(five, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    return [
        *left_out(scores),
        rank_table(scores, "Ranks by accuracy or RMSE, beside Table 1", paper.MAIN_RANKS),
        TESTS,
        rank_bars("main-ranks", scores, "Mean ranks by accuracy or RMSE with 95 % intervals."),
        _challengers(rows),
        _other_ranks(five),
        metric_table(rows, "Means over data sets"),
        _times(rows),
        _lead_figure(rows),
        _losses(rows),
        *ranks_by_model(five, PROTOCOL, paper.MAIN_RANKS),
        dataset_table(rows, "accuracy"),
        dataset_table(rows, "rmse"),
    ]


def challengers(rows: pd.DataFrame) -> dict[str, statistics.Comparison]:
    """Methods that the paper does not have against CRUMB, each alone, on mean ranks of data sets."""
    scores = scores_of(rows, PROTOCOL)
    others = [method for method in scores if method not in paper.MAIN_RANKS]
    found = {}
    for method in others if CRUMB in scores else []:
        means = (-statistics.ranks(scores[[method, CRUMB]])).groupby(level="dataset").mean()
        found[method] = statistics.compare(means, method, CRUMB, len(others))
    return found


def _challengers(rows: pd.DataFrame) -> Table | None:
    found = challengers(rows)
    if not found:
        return None
    means = {
        name: dataset_leads(rows, name, CRUMB).groupby("task")["lead"].mean() for name in found
    }
    cells = {"Method": [code(name) for name in found]}
    for task, unit in UNITS.items():
        cells[unit] = [fixed(means[name].get(task), 2, sign=True) for name in found]
    cells["sets won / tied / lost"] = [one.record for one in found.values()]
    cells["p"] = [p_value(one.p) for one in found.values()]
    cells["p adj."] = [p_value(one.p_adjusted) for one in found.values()]
    return Table("Other methods against CRUMB, over data sets", cells)


def _other_ranks(rows: pd.DataFrame) -> Table | None:
    """Mean ranks by the metrics that the paper does not rank by."""
    tables = {name: scores_of(rows, PROTOCOL, name) for name in ("auc", "log_loss", "r2")}
    found = {
        name: statistics.ranks(compared(scores)).mean()
        for name, scores in tables.items()
        if not scores.empty
    }
    frame = pd.DataFrame(found)
    frame = frame.loc[figures.in_order(frame.index)]
    titles = {"auc": "ROC AUC", "log_loss": "log-loss", "r2": "R²"}
    cells = {"Method": [figures.label(method) for method in frame.index]}
    for name in frame:
        cells[titles[name]] = best(frame[name], [fixed(v) for v in frame[name]], lower=True)
    return Table("Mean rank by other metrics", cells) if found else None


def _times(rows: pd.DataFrame) -> Table:
    columns = ["plan_seconds", "pass_seconds", "seconds", "contexts", "context_mean"]
    means = statistics.shared_rows(rows, PROTOCOL).groupby("method")[columns].mean()
    means = means.loc[figures.in_order(means.index)]
    cells = {
        "Method": [figures.label(method) for method in means.index],
        **time_columns(means),
        "paper passes, s": [seconds(paper.MAIN_PASS_SECONDS.get(name)) for name in means.index],
        "passes": [fixed(value, 1) for value in means["contexts"]],
        "rows a context": [whole(value) for value in means["context_mean"]],
    }
    return Table("Mean time of a run and its passes, over groups that all methods finished", cells)


def dataset_leads(rows: pd.DataFrame, method: str = CRUMB, other: str = "uniform") -> pd.DataFrame:
    """A line for each data set: the lead in accuracy points, or per cent of the other's RMSE."""
    found = [pd.DataFrame({"lead": [], "task": []})]
    for task in UNITS:
        scores = scores_of(rows[rows["task"] == task], PROTOCOL)
        if {method, other} <= set(scores.columns):
            pair = scores[[method, other]].dropna().groupby(level="dataset").mean()
            scale = pair[other].abs() if task == "regression" else 1
            lead = 100 * (pair[method] - pair[other]) / scale
            found.append(pd.DataFrame({"lead": lead, "task": task}))
    return pd.concat(found[1:] or found).sort_values("lead")


def _losses(rows: pd.DataFrame) -> Table | None:
    """What tells the sets on which CRUMB loses to uniform from the others."""
    leads = dataset_leads(rows)
    if leads.empty:
        return None
    lost = leads["lead"].round(statistics.DIGITS) < 0
    facts = {
        "rows of the pool, median": rows.groupby("dataset")["N"].median(),
        "gain of the full context over uniform, median": dataset_leads(rows, "full")["lead"],
    }
    lines = [("data sets", str(lost.sum()), str((~lost).sum()), "–")]
    for task in UNITS:
        of_task = leads["task"] == task
        lines.append((task, str((lost & of_task).sum()), str((~lost & of_task).sum()), "–"))
    for name, values in facts.items():
        each, digits = values.reindex(leads.index).astype(float), 0 if name[0] == "r" else 2
        medians = (each[lost].median(), each[~lost].median())
        rho = statistics.spearman(each, leads["lead"])
        lines.append((name, *(fixed(value, digits) for value in medians), fixed(rho, 2)))
    columns = ("", "CRUMB loses to uniform", "elsewhere", "rank correlation with the lead")
    cells = dict(zip(columns, map(list, zip(*lines, strict=True)), strict=True))
    return Table("Where CRUMB loses to uniform, in the mean over seeds", cells)


def _lead_figure(rows: pd.DataFrame) -> Figure | None:
    leads = dataset_leads(rows)
    panels = [
        _lead_panel(task, unit, leads[leads["task"] == task]["lead"])
        for task, unit in UNITS.items()
        if (leads["task"] == task).any()
    ]
    caption = (
        "CRUMB's lead over uniform on each data set, mean over seeds; bars to the left are losses."
    )
    return Figure("main-leads", caption, panels) if panels else None


def _lead_panel(task: str, unit: str, leads: pd.Series) -> Panel:
    def draw(axes: Axes) -> None:
        at = np.arange(len(leads))
        methods = [CRUMB if lead > 0 else "uniform" for lead in leads]
        axes.barh(at, leads, color=[figures.look(method).colour for method in methods], height=0.7)
        figures.zero_line(axes, vertical=True)
        axes.set_xlabel(f"CRUMB − uniform, {unit}")
        figures.name_lines(axes, at, leads.index)
        axes.tick_params(axis="y", labelsize=7.5)

    height = 0.8 + 0.17 * len(leads)
    return figures.panel(f"{task.capitalize()} sets", draw, 4.8, height)
