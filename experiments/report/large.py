"""Protocol ``large``: the largest sets with early stopping (the paper's Figure 4)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures
from experiments.report.blocks import Block, Figure, Key, Panel, Table
from experiments.report.common import (
    compared,
    dataset_table,
    left_out,
    rank_table,
    scores_of,
    time_columns,
)
from experiments.report.numbers import NOTHING, fixed, p_value, whole

PROTOCOL, TITLE = "large", "Large data sets and early stopping"
ABOUT = (
    "The paper: with early stopping CRUMB wins more often than MICP, significantly (p < 0.01) with "
    "TabPFNv2 and TabICLv1, and gets there with smaller contexts."
)
PAIR = ["crumb", "micp"]


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    scores = scores_of(rows, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    return [
        *left_out(scores),
        _figure(rows, scores),
        _cost_table(rows, scores),
        rank_table(scores, "Ranks by accuracy or RMSE"),
        dataset_table(rows, "accuracy"),
        dataset_table(rows, "rmse"),
    ]


def wins_by_model(scores: pd.DataFrame) -> pd.DataFrame:
    """Models × methods, ties shared."""
    kept = compared(scores)
    parts = {model: statistics.wins(part) for model, part in kept.groupby(level="model")}
    return pd.DataFrame(parts).T


def against_micp(scores: pd.DataFrame) -> pd.Series:
    """Wilcoxon's p of CRUMB against MICP for each model."""
    if not set(PAIR) <= set(scores):
        return pd.Series(dtype=float)
    parts = scores.groupby(level="model")
    return pd.Series({model: statistics.compare(part, *PAIR).p for model, part in parts})


def _figure(rows: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    won, points = wins_by_model(scores), _median_points(rows)
    markers = dict(zip(won.index, figures.MARKERS, strict=False))
    panels = [_wins_panel(won, against_micp(scores))]
    panels += [_size_panel(points, markers)] if len(points) else []
    legend = figures.keys(won.columns)
    legend += [Key(f"{model} (b)", figures.MUTED, mark) for model, mark in markers.items()]
    caption = (
        "(a) Wins over data sets and seeds, ties shared; p: CRUMB against MICP, Wilcoxon. (b) Median "
        "accuracy against mean context size of CRUMB and MICP; a line joins the two on one data set "
        "(the paper's Figure 4)."
    )
    return Figure("large-wins-and-sizes", caption, panels, legend)


def _wins_panel(won: pd.DataFrame, p: pd.Series) -> Panel:
    def draw(axes: Axes) -> None:
        width, models = 0.8 / len(won.columns), np.arange(len(won))
        for j, method in enumerate(won.columns):
            at = models + (j - (len(won.columns) - 1) / 2) * width
            drawn = axes.bar(at, won[method], width * 0.92, color=figures.look(method).colour)
            axes.bar_label(drawn, fmt="{:.3g}", fontsize=8)
        tests = [f"\np = {p_value(p[model])}" if model in p else "" for model in won.index]
        axes.set_xticks(models, [f"{m}{test}" for m, test in zip(won.index, tests, strict=True)])
        axes.set_ylabel("wins")
        axes.grid(visible=False, axis="x")

    return figures.panel("(a) Wins", draw)


def _median_points(rows: pd.DataFrame) -> pd.DataFrame:
    good = statistics.ok_rows(rows)
    good = good[good["method"].isin(PAIR) & (good["task"] == "classification")]
    return good.groupby(["dataset", "model", "method"]).agg(
        accuracy=("accuracy", "median"), size=("context_mean", "mean")
    )


def _size_panel(points: pd.DataFrame, markers: dict[str, str]) -> Panel:
    def draw(axes: Axes) -> None:
        for (_, model), pair in points.groupby(level=["dataset", "model"]):
            axes.plot(pair["size"], pair["accuracy"], color=figures.MUTED, linewidth=0.9)
            for method, (accuracy, size) in pair.droplevel(["dataset", "model"]).iterrows():
                mark = {"marker": markers.get(model, "o"), "color": figures.look(method).colour}
                axes.scatter(size, accuracy, s=34, zorder=2, **mark)
        axes.set_xscale("log")
        figures.logarithmic(axes.xaxis)
        axes.set(xlabel="mean rows of a context", ylabel="median accuracy")

    return figures.panel("(b) Accuracy against context size", draw)


def _cost_table(rows: pd.DataFrame, scores: pd.DataFrame) -> Table:
    good, won = statistics.ok_rows(rows), wins_by_model(scores)
    by = good.groupby(["model", "method"])
    means = by[["plan_seconds", "pass_seconds", "seconds", "context_mean"]].mean()
    means["accuracy"] = by["accuracy"].median()
    order = [(m, k) for m in means.index.levels[0] for k in figures.in_order(means.loc[m].index)]
    means = means.loc[order]
    wins = [won.loc[m, k] if m in won.index and k in won else None for m, k in order]
    cells = {
        "Model": [model or NOTHING for model, _ in order],
        "Method": [figures.label(method) for _, method in order],
        "wins": [fixed(value, 1) for value in wins],
        "median accuracy": [fixed(value) for value in means["accuracy"]],
        "rows a context": [whole(value) for value in means["context_mean"]],
        **time_columns(means),
    }
    return Table("Wins, context sizes and wall-clock", cells)
