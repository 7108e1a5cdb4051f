"""Protocol ``consistency``: models × proportions × sizes (the paper's Table 2 and medal heat map)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, paper, words
from crumb.bench.report.blocks import Block, Figure, Key, Panel, Section, Text
from crumb.bench.report.common import (
    compared,
    dataset_table,
    left_out,
    line_with_band,
    metric_table,
    only_known,
    per_model,
    rank_table,
    slug,
    what_was_run,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "consistency", "Consistency over models and context sizes"
MEDALS = ("#e3b31c", "#b9bfc8", "#c98a54")  # gold, silver, bronze


def section(rows: pd.DataFrame) -> Section:
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text("The paper finds CRUMB first over all three models and five proportions, MICP second, uniform last."),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        blocks += _results(rows, scores)
    return Section(PROTOCOL, TITLE, blocks)


def _results(rows: pd.DataFrame, scores: pd.DataFrame) -> list[Block]:
    blocks: list[Block] = [
        rank_table(scores, "Ranks by accuracy, beside Table 2", paper.CONSISTENCY_RANKS),
        Text(
            "Groups are (data set, model, proportion, size, seed): runs on pools of different sizes are no comparison, "
            "so sizes stay apart, where the caption of Table 2 names (data set, model, proportion, seed)."
        ),
        _medals(scores),
        _curves(scores),
    ]
    for model in per_model(rows) if rows["model"].nunique() > 1 else []:
        of_model = statistics.score_table(rows[rows["model"] == model], statistics.group_keys(PROTOCOL))
        if not of_model.empty:
            blocks.append(rank_table(of_model, f"Ranks with {model} alone"))
    blocks += only_known(
        metric_table(rows, "Means over data sets, all proportions and sizes"),
        dataset_table(rows, "accuracy", "Accuracy of each data set, mean over all"),
    )
    return blocks


def _medals(scores: pd.DataFrame) -> Figure:
    placed = statistics.ranks(compared(scores))
    methods, models = list(placed.columns), sorted(placed.index.get_level_values("model").unique())
    means = placed.groupby(level=["model", "dataset"]).mean()
    panels = [_medal_panel(model, means.loc[model], methods) for model in models]
    legend = [Key(name, colour, "s") for name, colour in zip(("best", "second", "third"), MEDALS, strict=True)]
    return Figure(
        "consistency-medals",
        "Mean rank of each method on each data set, over proportions, sizes and seeds (the paper's Figure 3). "
        "Gold is the best of the methods there, silver the second, bronze the third; equal ranks share a colour.",
        panels,
        legend,
    )


def _medal_panel(model: str, means: pd.DataFrame, methods: list[str]) -> Panel:
    places = means.round(6).rank(axis=1, method="min").to_numpy(int) - 1

    def draw(axes: Axes) -> None:
        for i, j in np.ndindex(places.shape):
            colour = MEDALS[min(places[i, j], len(MEDALS) - 1)]
            drawing.cell(axes, i, j, colour, words.fixed(means.iloc[i, j], 2), "#15181c", 8)
        drawing.frame_cells(axes, [str(name)[:28] for name in means.index], [palette.label(m) for m in methods])
        axes.xaxis.tick_top()

    golds = {palette.label(method): int((places[:, j] == 0).sum()) for j, method in enumerate(methods)}
    alt = f"Of {len(means)} data sets, best by mean rank: " + ", ".join(f"{n} {g}" for n, g in golds.items())
    height = 0.7 + 0.2 * len(means)
    return drawing.panel(slug("consistency-medals", model), model, alt, draw, height=height, width=4.6)


def _curves(scores: pd.DataFrame) -> Figure:
    placed = statistics.ranks(compared(scores))
    panels = [
        _curve(placed, level, label)
        for level, label in (("p", "proportion n / N"), ("N", "rows of the pool, N (binned where many)"))
    ]
    return Figure(
        "consistency-curves",
        "Mean rank against the proportion and against the size of the pool, ± SEM.",
        panels,
        drawing.keys(list(placed.columns)),
    )


def _curve(placed: pd.DataFrame, level: str, label: str) -> Panel:
    values = placed.index.get_level_values(level).to_numpy(float)
    if len(np.unique(values)) > 8:  # small data sets fall short of the size asked for: one point for each third
        edges = np.quantile(values, [0, 1 / 3, 2 / 3, 1])
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 2)
        values = np.array([np.median(values[bins == b]) for b in bins])

    def draw(axes: Axes) -> None:
        at = np.unique(values)
        for method in placed.columns:
            groups = [statistics.summarise(placed[method].to_numpy()[values == value]) for value in at]
            frame = pd.DataFrame([vars(group) for group in groups])
            line_with_band(axes, np.arange(len(at)), frame, palette.look(method).light, palette.look(method).marker)
        axes.set_xticks(np.arange(len(at)), [words.short(value) for value in at])
        axes.set(xlabel=label, ylabel="mean rank")
        axes.invert_yaxis()

    alt = f"Mean rank of {', '.join(palette.label(m) for m in placed.columns)} against {label}."
    return drawing.panel(slug("consistency", level), f"Rank against {level}", alt, draw)
