"""Protocol ``main``: all methods at n = 0.1 N (the paper's Table 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, paper, words
from crumb.bench.report.blocks import (
    Block,
    Cell,
    Column,
    Figure,
    Panel,
    Section,
    Table,
    Text,
    mark_best,
)
from crumb.bench.report.common import (
    compared,
    dataset_table,
    left_out,
    metric_table,
    only_known,
    per_model,
    rank_bars,
    rank_table,
    slug,
    what_was_run,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "main", "Main results"


def section(rows: pd.DataFrame) -> Section:
    published = rows[rows["method"].isin(paper.MAIN_ORDER)]  # a sixth method would change the ranks of the five
    scores = statistics.score_table(published, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text(
            "The paper ranks full context, kNN, CRUMB, MICP and uniform in this order; it finds CRUMB close to kNN "
            "(p = 0.106) and better than MICP and uniform (p < 0.001)."
        ),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        blocks += _results(rows, published, scores)
    return Section(PROTOCOL, TITLE, blocks)


def _results(rows: pd.DataFrame, published: pd.DataFrame, scores: pd.DataFrame) -> list[Block]:
    blocks: list[Block] = [
        rank_table(scores, "Ranks by accuracy or RMSE, beside Table 1", paper.MAIN_RANKS),
        Text(
            "p is Wilcoxon's signed-rank test of paired ranks against CRUMB, with Bonferroni's correction, over groups "
            "as in the paper. Seeds of one data set are not independent; the last column tests the mean ranks of the "
            "data sets and is the one to trust."
        ),
        rank_bars("main-ranks", "Mean rank by accuracy or RMSE", scores, "Mean ranks with 95 % intervals."),
    ]
    blocks += only_known(
        _challengers(rows),
        _other_ranks(published),
        metric_table(rows, "Means over data sets"),
        _times(rows),
        _lead_figure(rows),
    )
    for model in per_model(rows) if rows["model"].nunique() > 1 else []:
        of_model = statistics.score_table(published[published["model"] == model], statistics.group_keys(PROTOCOL))
        if not of_model.empty:
            blocks.append(rank_table(of_model, f"Ranks with {model} alone", paper.MAIN_RANKS))
    blocks += only_known(
        dataset_table(rows, "accuracy", "Accuracy of each classification set, mean over seeds"),
        dataset_table(rows, "rmse", "RMSE of each regression set, mean over seeds"),
    )
    return blocks


def challengers(rows: pd.DataFrame) -> list[statistics.Comparison]:
    """Methods that the paper does not have, against CRUMB: each alone with it, on mean ranks of data sets."""
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    others = [method for method in scores.columns if method not in paper.MAIN_ORDER]
    found = []
    for method in others if "crumb" in scores else []:
        means = (-statistics.ranks(scores[[method, "crumb"]])).groupby(level="dataset").mean()
        found.append(statistics.compare(means.round(statistics.DIGITS), method, "crumb", len(others)))
    return found


def mean_lead(rows: pd.DataFrame, method: str, task: str = "classification") -> float:
    """Over CRUMB, in accuracy points or per cent of its RMSE."""
    leads = dataset_leads(rows, method, "crumb")
    return float(leads.loc[leads["task"] == task, "lead"].astype(float).mean())


def _challengers(rows: pd.DataFrame) -> Table | None:
    lines: list[list[Cell | str]] = [
        [
            words.code(one.method),
            words.fixed(mean_lead(rows, one.method), 2, sign=True),
            words.fixed(mean_lead(rows, one.method, "regression"), 2, sign=True),
            f"{one.won} / {one.tied} / {one.lost}",
            words.p_value(one.p),
            words.p_value(one.p_adjusted),
        ]
        for one in challengers(rows)
    ]
    names = ("accuracy points", "% of RMSE", "sets won / tied / lost", "p", "p adj.")
    columns = [Column("Method", number=False), *map(Column, names)]
    return Table("Other ways against CRUMB, over data sets", columns, lines) if lines else None


def _other_ranks(rows: pd.DataFrame) -> Table | None:
    """Mean ranks by the metrics that the paper does not rank by."""
    found = {}
    for metric, name in (("auc", "ROC AUC"), ("log_loss", "log-loss"), ("r2", "R²")):
        scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL), metric)
        if not scores.empty:
            found[name] = statistics.rank_summary(compared(scores))["mean"]
    if not found:
        return None
    frame = pd.DataFrame(found)
    frame = frame.loc[palette.in_order(frame.index)]
    cells = {name: mark_best(list(frame[name]), [words.fixed(v) for v in frame[name]], higher=False) for name in frame}
    lines: list[list[Cell | str]] = [
        [palette.label(method), *(cells[name][index] for name in frame)] for index, method in enumerate(frame.index)
    ]
    return Table("Mean rank by other metrics", [Column("Method", number=False), *map(Column, frame)], lines)


def _times(rows: pd.DataFrame) -> Table:
    good = statistics.shared_rows(rows, PROTOCOL)
    means = good.groupby("method")[["plan_seconds", "pass_seconds", "seconds", "contexts", "context_mean"]].mean()
    lines: list[list[Cell | str]] = [
        [
            palette.label(method),
            words.seconds(means.loc[method, "plan_seconds"]),
            words.seconds(means.loc[method, "pass_seconds"]),
            words.seconds(paper.MAIN_PASS_SECONDS.get(method)),
            words.seconds(means.loc[method, "seconds"]),
            words.fixed(means.loc[method, "contexts"], 1),
            words.whole(means.loc[method, "context_mean"]),
        ]
        for method in palette.in_order(means.index)
    ]
    columns = [
        Column("Method", number=False),
        Column("selection, s"),
        Column("passes, s"),
        Column("paper passes, s", paper=True),
        Column("all, s"),
        Column("passes"),
        Column("rows a context"),
    ]
    return Table("Mean time of a run and its passes, over groups that all methods finished", columns, lines)


def dataset_leads(rows: pd.DataFrame, method: str = "crumb", other: str = "uniform") -> pd.DataFrame:
    """One line a data set: the lead in accuracy points, or per cent of the other's RMSE, over shared runs."""
    found = []
    for task, metric in statistics.RANKED_BY.items():
        of_task = rows[rows["task"] == task]
        keys = statistics.group_keys(PROTOCOL)
        scores = statistics.score_table(of_task, keys, metric)
        if method not in scores or other not in scores:
            continue
        pair = scores[[method, other]].dropna().groupby(level="dataset").mean()
        lead = pair[method] - pair[other]
        if task == "regression":
            lead = lead / pair[other].abs()
        found.append(pd.DataFrame({"lead": 100 * lead, "task": task}))
    return pd.concat(found).sort_values("lead") if found else pd.DataFrame(columns=["lead", "task"])


def _lead_figure(rows: pd.DataFrame) -> Figure | None:
    leads = dataset_leads(rows)
    if leads.empty:
        return None
    panels = []
    for task, unit in (("classification", "accuracy points"), ("regression", "% of uniform's RMSE")):
        part = leads[leads["task"] == task]["lead"].astype(float)
        if part.empty:
            continue
        panels.append(_lead_panel(task, unit, part))
    return Figure(
        "main-leads",
        "CRUMB's lead over uniform on each data set, mean over seeds. Bars to the left are losses.",
        panels,
    )


def _lead_panel(task: str, unit: str, leads: pd.Series) -> Panel:
    crumb, uniform = palette.look("crumb").light, palette.look("uniform").light

    def draw(axes: Axes) -> None:
        at = np.arange(len(leads))
        axes.barh(at, leads, color=[crumb if lead > 0 else uniform for lead in leads], height=0.7)
        axes.set_yticks(at, [str(name)[:28] for name in leads.index])
        axes.set_ylim(-0.7, len(leads) - 0.3)
        axes.axvline(0, color=palette.MUTED, linewidth=1)
        axes.set_xlabel(f"CRUMB − uniform, {unit}")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)

    alt = f"CRUMB leads on {(leads > 0).sum()} of {len(leads)} {task} sets; median lead {leads.median():.2f} {unit}."
    return drawing.panel(
        slug("main-leads", task), f"{task.capitalize()} sets", alt, draw, height=0.8 + 0.19 * len(leads), width=4.8
    )
