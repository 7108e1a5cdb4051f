"""Protocol ``large``: the largest sets with early stopping (the paper's Figure 4)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import common, figures
from experiments.report.blocks import Block, Figure, Table, figure
from experiments.report.numbers import NOTHING, fixed, p_value, whole

PROTOCOL, TITLE = "large", "Large data sets and early stopping"
ABOUT = """The paper: with early stopping CRUMB wins more often than MICP, significantly (p < 0.01)
with TabPFNv2 and TabICLv1, and gets there with smaller contexts."""
PAIR = ["crumb", "micp"]


def blocks(rows: pd.DataFrame) -> list[Block]:
    scores = common.scores_of(rows, PROTOCOL)
    if scores.empty:
        return [common.left_out(scores)]
    return [
        common.left_out(scores),
        _figure(rows, scores),
        _cost_table(rows, scores),
        common.rank_table(scores, "Ranks by accuracy or RMSE"),
        common.dataset_table(rows, "accuracy"),
        common.dataset_table(rows, "rmse"),
    ]


def wins_by_model(scores: pd.DataFrame) -> pd.DataFrame:
    """Models × methods, ties shared."""
    parts = common.compared(scores).groupby(level="model")
    return pd.DataFrame({model: statistics.wins(part) for model, part in parts}).T


def against_micp(scores: pd.DataFrame) -> dict[str, float]:
    """Wilcoxon's p of CRUMB against MICP for each model."""
    parts = scores.groupby(level="model") if set(PAIR) <= set(scores) else []
    return {model: statistics.compare(part, *PAIR).p for model, part in parts}


def _figure(rows: pd.DataFrame, scores: pd.DataFrame) -> Figure | None:
    won, tests, good = wins_by_model(scores), against_micp(scores), statistics.ok_rows(rows)
    named = won.rename({model: f"{model}\np = {p_value(p)}" for model, p in tests.items()})
    good = good[good["method"].isin(PAIR) & (good["task"] == "classification")]
    columns = {"size": ("context_mean", "mean"), "accuracy": ("accuracy", "median")}
    points = good.groupby(["dataset", "model", "method"]).agg(**columns)
    labels = {"xlabel": "mean rows of a context", "ylabel": "median accuracy", "xscale": "log"}
    panels = [
        figures.panel("(a) Wins", _wins, named, ylabel="wins"),
        figures.panel("(b) Accuracy against context size", _sizes, points, **labels),
    ]
    caption = """(a) Wins over data sets and seeds, ties shared; p: CRUMB against MICP, Wilcoxon. (b)
        Median accuracy against mean context size of CRUMB and MICP; a line joins the two on one
        data set and model (the paper's Figure 4)."""
    return figure("large-wins-and-sizes", caption, panels, figures.keys(won))


def _wins(axes: Axes, won: pd.DataFrame) -> None:
    colours = [figures.look(method).colour for method in won]
    won.plot.bar(ax=axes, color=colours, legend=False, rot=0, width=0.8)
    for drawn in axes.containers:
        axes.bar_label(drawn, fmt="{:.3g}", fontsize=8)
    axes.grid(visible=False, axis="x")


def _sizes(axes: Axes, points: pd.DataFrame) -> None:
    for _, pair in points.groupby(level=["dataset", "model"]):
        axes.plot(pair["size"], pair["accuracy"], color=figures.MUTED, linewidth=0.9)
    for method, part in points.groupby(level="method"):
        _, colour, marker = figures.look(method)
        axes.scatter(part["size"], part["accuracy"], s=34, color=colour, marker=marker, zorder=2)


def _cost_table(rows: pd.DataFrame, scores: pd.DataFrame) -> Table:
    by, won = statistics.ok_rows(rows).groupby(["model", "method"]), wins_by_model(scores).stack()
    means = by[[*common.COSTS, "context_mean"]].mean().assign(accuracy=by["accuracy"].median())
    cells = {
        "Model": [model or NOTHING for model, _ in means.index],
        "Method": [figures.label(method) for _, method in means.index],
        "wins": won.reindex(means.index).map(lambda value: fixed(value, 1)),
        "median accuracy": means["accuracy"].map(fixed),
        "rows a context": means["context_mean"].map(whole),
        **common.time_columns(means),
    }
    return Table("Wins, context sizes and wall-clock", cells)
