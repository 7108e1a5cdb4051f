"""Protocol ``large``: the largest sets with early stopping (the paper's Figure 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, words
from crumb.bench.report.blocks import Block, Cell, Column, Figure, Key, Panel, Section, Table, Text
from crumb.bench.report.common import (
    compared,
    dataset_table,
    left_out,
    only_known,
    per_model,
    rank_table,
    what_was_run,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "large", "Large data sets and early stopping"
PAIR = ("crumb", "micp")


def section(rows: pd.DataFrame) -> Section:
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text(
            "The paper: with early stopping CRUMB wins more often than MICP, significantly (p < 0.01) with TabPFNv2 "
            "and TabICLv1, and gets there with smaller contexts."
        ),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        blocks += [
            _figure(rows, scores),
            _cost_table(rows, scores),
            rank_table(scores, "Ranks by accuracy or RMSE"),
            *only_known(
                dataset_table(rows, "accuracy", "Accuracy of each data set, mean over seeds"),
                dataset_table(rows, "rmse", "RMSE of each data set, mean over seeds"),
            ),
        ]
    return Section(PROTOCOL, TITLE, blocks)


def _of_model(scores: pd.DataFrame, model: str) -> pd.DataFrame:
    return scores[scores.index.get_level_values("model") == model]


def _figure(rows: pd.DataFrame, scores: pd.DataFrame) -> Figure:
    kept = compared(scores)
    models = [model for model in per_model(rows) if len(statistics.complete(_of_model(kept, model)))]
    marks = drawing.model_markers(models)
    panels = [_wins_panel(kept, models)]
    if len(points := _median_points(rows)):
        panels.append(_size_panel(points, marks))
    legend = [
        *drawing.keys(list(kept.columns)),
        *(Key(f"{model} (b)", palette.MUTED, marks[model]) for model in models),
    ]
    return Figure(
        "large-wins-and-sizes",
        "(a) Wins over data sets and seeds, ties shared; stars: CRUMB against MICP, Wilcoxon, * p < 0.05, ** p < 0.01. "
        "(b) Median accuracy against mean context size of CRUMB and MICP; a line joins the two on one data set "
        "(the paper's Figure 4).",
        panels,
        legend,
    )


def _stars(scores: pd.DataFrame) -> str:
    if not set(PAIR) <= set(scores.columns):
        return ""
    p = statistics.compare(scores, *PAIR).p
    return "**" if p < 0.01 else "*" if p < 0.05 else ""


def _wins_panel(scores: pd.DataFrame, models: list[str]) -> Panel:
    methods = list(scores.columns)
    won = {model: statistics.wins(_of_model(scores, model)) for model in models}

    def draw(axes: Axes) -> None:
        width = 0.8 / len(methods)
        for j, method in enumerate(methods):
            at = np.arange(len(models)) + (j - (len(methods) - 1) / 2) * width
            values = [won[model][method] for model in models]
            axes.bar(at, values, width * 0.92, color=palette.look(method).light)
            for x, value in zip(at, values, strict=True):
                axes.text(x, value, f"{value:.3g}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(len(models)), [f"{model} {_stars(_of_model(scores, model))}".strip() for model in models])
        axes.set_ylabel("wins")
        axes.grid(visible=False, axis="x")

    alt = "; ".join(f"{m}: " + ", ".join(f"{palette.label(k)} {v:.3g}" for k, v in won[m].items()) for m in models)
    return drawing.panel("large-wins", "(a) Wins", "Wins. " + alt, draw)


def _median_points(rows: pd.DataFrame) -> pd.DataFrame:
    good = statistics.ok_rows(rows)
    good = good[good["method"].isin(PAIR) & (good["task"] == "classification")]
    return good.groupby(["dataset", "model", "method"]).agg(
        accuracy=("accuracy", "median"), size=("context_mean", "mean")
    )


def _size_panel(points: pd.DataFrame, marks: dict[str, str]) -> Panel:
    def draw(axes: Axes) -> None:
        for (_, model), pair in points.groupby(level=["dataset", "model"]):
            axes.plot(pair["size"], pair["accuracy"], color=palette.MUTED, linewidth=0.9, zorder=1)
            for (_, _, method), point in pair.iterrows():
                colour = palette.look(method).light
                axes.scatter(
                    point["size"], point["accuracy"], s=34, marker=marks.get(model, "o"), color=colour, zorder=2
                )
        axes.set_xscale("log")
        drawing.plain_logarithm(axes.xaxis)
        axes.set(xlabel="mean rows of a context", ylabel="median accuracy")

    sizes = points.groupby(level="method")["size"].mean()
    alt = "Mean context size: " + ", ".join(f"{palette.label(m)} {size:,.0f} rows" for m, size in sizes.items())
    return drawing.panel("large-sizes", "(b) Accuracy against context size", alt, draw)


def _cost_table(rows: pd.DataFrame, scores: pd.DataFrame) -> Table:
    good = statistics.ok_rows(rows)
    lines: list[list[Cell | str]] = []
    for model in per_model(rows):
        won = statistics.wins(compared(_of_model(scores, model)))
        for method in palette.in_order(good.loc[good["model"] == model, "method"].unique()):
            part = good[(good["model"] == model) & (good["method"] == method)]
            wins = words.fixed(won[method], 1) if method in won else words.NOTHING
            times = [words.seconds(part[name].mean()) for name in ("plan_seconds", "pass_seconds", "seconds")]
            size = words.whole(part["context_mean"].mean())
            lines.append([model, palette.label(method), wins, words.fixed(part["accuracy"].median()), size, *times])
    names = ("wins", "median accuracy", "rows a context", "selection, s", "passes, s", "all, s")
    return Table(
        "Wins, context sizes and wall-clock",
        [Column("Model", number=False), Column("Method", number=False), *map(Column, names)],
        lines,
    )
