"""Protocol ``main``: all methods at n = 0.1 N (the paper's Table 1)."""

from __future__ import annotations

import pandas as pd

from experiments import statistics
from experiments.report import common, figures, numbers, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, figure
from experiments.report.common import CRUMB, UNITS, scores_of
from experiments.report.numbers import NOTHING, code, fixed, p_value

PROTOCOL, TITLE = "main", "Main results"
ABOUT = """The paper ranks full context, kNN, CRUMB, MICP and uniform in this order; it finds CRUMB
close to kNN (p = 0.106) and better than MICP and uniform (p < 0.001)."""
TESTS = """p is Wilcoxon's signed-rank test of paired ranks against CRUMB with Bonferroni's
correction, over groups as in the paper. Seeds of one data set are not independent: *p adj., data
sets* tests the mean ranks of the data sets."""


def blocks(rows: pd.DataFrame) -> list[Block]:
    five = rows[rows["method"].isin(paper.MAIN_RANKS)]  # a sixth would change the ranks of the five
    scores, caption = scores_of(five, PROTOCOL), "Ranks by accuracy or RMSE, beside Table 1"
    if scores.empty:
        return [common.left_out(scores)]
    return [
        common.left_out(scores),
        common.rank_table(scores, caption, published=paper.MAIN_RANKS),
        TESTS,
        common.rank_bars("main-ranks", scores, "Mean ranks with 95 % intervals."),
        _challengers(rows),
        common.metric_table(rows, five, PROTOCOL),
        _times(rows),
        _lead_figure(rows),
        _losses(rows),
        *common.ranks_by_model(five, PROTOCOL),
        common.dataset_table(rows, "accuracy"),
        common.dataset_table(rows, "rmse"),
    ]


def challengers(rows: pd.DataFrame) -> dict[str, statistics.Comparison]:
    """Methods that the paper does not have against CRUMB, each alone, by mean ranks of data sets."""
    scores = scores_of(rows, PROTOCOL)
    others = [method for method in scores if method not in paper.MAIN_RANKS and CRUMB in scores]
    pairs = {method: statistics.dataset_ranks(scores[[method, CRUMB]]) for method in others}
    return {
        name: statistics.compare(-pair, name, CRUMB, len(others)) for name, pair in pairs.items()
    }


def _challengers(rows: pd.DataFrame) -> Table | None:
    lines = []
    for name, one in challengers(rows).items():
        leads = dataset_leads(rows, name, CRUMB).groupby("task")["lead"].mean()
        points = [fixed(leads.get(task), 2, sign=True) for task in UNITS]
        lines.append((code(name), *points, one.record, p_value(one.p), p_value(one.p_adjusted)))
    columns = f"Method | {' | '.join(UNITS.values())} | sets won / tied / lost | p | p adj."
    return by_lines("Other methods against CRUMB, over data sets", columns, lines)


def _times(rows: pd.DataFrame) -> Table:
    shared = statistics.shared_rows(rows, PROTOCOL)
    means = shared.groupby("method")[[*common.COSTS, "contexts", "context_mean"]].mean()
    means = means.loc[figures.in_order(means.index)]
    cells = {
        "Method": means.index.map(figures.label),
        **common.time_columns(means),
        "paper passes, s": means.index.map(paper.MAIN_PASS_SECONDS).map(numbers.seconds),
        "number of passes": means["contexts"].map(lambda value: fixed(value, 1)),
        "rows a context": means["context_mean"].map(numbers.whole),
    }
    return Table("Mean time of a run and its passes, over groups that all methods finished", cells)


def dataset_leads(rows: pd.DataFrame, method: str = CRUMB, other: str = "uniform") -> pd.DataFrame:
    """A line for each data set: the lead in accuracy points, or per cent of the other's RMSE."""
    found = [pd.DataFrame({"lead": [], "task": []})]
    for task, part in rows.groupby("task"):
        scores = scores_of(part, PROTOCOL)
        if {method, other} <= set(scores.columns):
            pair = scores[[method, other]].dropna().groupby(level="dataset").mean()
            scale = pair[other].abs() if task == "regression" else 1
            lead = (100 * (pair[method] - pair[other]) / scale).round(statistics.DIGITS)
            found.append(pd.DataFrame({"lead": lead, "task": task}))
    return pd.concat(found[1:] or found).sort_values("lead", ascending=False)


def _losses(rows: pd.DataFrame) -> Table | None:
    """What tells the sets on which CRUMB loses to uniform from the others."""
    gains = dataset_leads(rows, "full")["lead"]
    facts = dataset_leads(rows).assign(N=rows.groupby("dataset")["N"].median(), gain=gains)
    lines = []
    for name, part in (
        ("CRUMB loses", facts[facts["lead"] < 0]),
        ("elsewhere", facts[facts["lead"] >= 0]),
    ):
        counts = [str(len(part)), *(str((part["task"] == task).sum()) for task in UNITS)]
        medians = (numbers.whole(part["N"].median()), fixed(part["gain"].median(), 2))
        lines.append((name, *counts, *medians))
    rho = [fixed(statistics.spearman(facts[name], facts["lead"]), 2) for name in ("N", "gain")]
    lines.append(("rank correlation with the lead", *[NOTHING] * 3, *rho))
    caption = """Where CRUMB loses to uniform in the mean over seeds, and what the full context gains
        over uniform there"""
    columns = "sets | number | classification | regression | median N | median gain of full"
    return by_lines(caption, columns, lines) if len(facts) else None


def _lead_figure(rows: pd.DataFrame) -> Figure | None:
    panels = []
    for task, part in dataset_leads(rows).groupby("task"):
        leads, size = part["lead"], (4.4, 0.8 + 0.17 * len(part))
        colours = [figures.look(CRUMB if lead > 0 else "uniform").colour for lead in leads]
        title, unit = f"{task.capitalize()} sets", f"CRUMB − uniform, {UNITS[task]}"
        panels.append(figures.panel(title, figures.bars, leads, colours, size=size, xlabel=unit))
    caption = "CRUMB's lead over uniform, mean over seeds; bars to the left are losses."
    return figure("main-leads", caption, panels)
