"""Protocol ``consistency``: models × proportions × sizes (the paper's Table 2 and Figure 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Key, Panel
from experiments.report.common import (
    compared,
    dataset_table,
    left_out,
    metric_table,
    rank_table,
    ranks_by_model,
    scores_of,
)

PROTOCOL, TITLE = "consistency", "Consistency over models and context sizes"
ABOUT = (
    "The paper finds CRUMB first over all three models and five proportions, MICP second, uniform "
    "last. Groups here are (data set, model, proportion, size, seed): runs on pools of different "
    "sizes are no comparison, so sizes stay apart, where the caption of Table 2 does not name them."
)
MEDALS = {"best": "#e3b31c", "second": "#b9bfc8", "third": "#c98a54"}


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    scores = scores_of(rows, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    return [
        *left_out(scores),
        rank_table(scores, "Ranks by accuracy, beside Table 2", paper.CONSISTENCY_RANKS),
        _medals(scores),
        _curves(scores),
        *ranks_by_model(rows, PROTOCOL),
        metric_table(rows, "Means over data sets, all proportions and sizes"),
        dataset_table(rows, "accuracy", "all runs"),
    ]


def medals(means: pd.DataFrame) -> np.ndarray:
    """0 for the best mean rank of a line, 1 for the second, 2 for the rest; equal ranks share."""
    places = means.round(statistics.DIGITS).rank(axis=1, method="min").to_numpy(int) - 1
    return np.minimum(places, len(MEDALS) - 1)


def _medals(scores: pd.DataFrame) -> Figure:
    means = statistics.ranks(compared(scores)).groupby(level=["model", "dataset"]).mean()
    panels = [
        _medal_panel(str(model), part.droplevel("model"))
        for model, part in means.groupby(level="model")
    ]
    caption = (
        "Mean rank of each method on each data set, over proportions, sizes and seeds (the paper's "
        "Figure 3). Gold is the best of the methods there; equal ranks share a colour."
    )
    legend = [Key(name, colour, "s") for name, colour in MEDALS.items()]
    return Figure("consistency-medals", caption, panels, legend)


def _medal_panel(model: str, means: pd.DataFrame) -> Panel:
    def draw(axes: Axes) -> None:
        colours = np.array([to_rgb(colour) for colour in MEDALS.values()])[medals(means)]
        texts = means.map("{:.2f}".format).rename(columns=figures.label)
        figures.cells(axes, colours, texts)
        axes.xaxis.tick_top()

    return figures.panel(model, draw, 4.6, 0.8 + 0.2 * len(means))


def _curves(scores: pd.DataFrame) -> Figure:
    placed = statistics.ranks(compared(scores))
    labels = {"p": "proportion n / N", "N": "rows of the pool, N (binned where many)"}
    panels = [
        figures.panel(
            f"Rank against {level}",
            lambda axes, level=level, text=text: figures.rank_curves(
                axes, placed, _binned(placed.index.get_level_values(level)), text
            ),
        )
        for level, text in labels.items()
    ]
    caption = "Mean rank against the proportion and against the size of the pool, ± SEM."
    return Figure("consistency-curves", caption, panels, figures.keys(placed.columns))


def _binned(values: pd.Index) -> np.ndarray:
    """Small data sets fall short of the size asked for: the median of each third stands for it."""
    found = pd.Series(values.to_numpy(float))
    if found.nunique() <= 8:
        return found.fillna(0).to_numpy()
    return found.groupby(pd.qcut(found, 3, duplicates="drop")).transform("median").to_numpy()
