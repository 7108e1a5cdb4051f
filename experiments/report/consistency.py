"""Protocol ``consistency``: models × proportions × sizes (the paper's Table 2 and Figure 3)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb

from experiments import statistics
from experiments.report import common, figures, paper
from experiments.report.blocks import Block, Figure, figure

PROTOCOL, TITLE = "consistency", "Consistency over models and context sizes"
ABOUT = """The paper finds CRUMB first over all three models and five proportions, MICP second,
uniform last. Groups here are (data set, model, proportion, size, seed): runs on pools of different
sizes are no comparison, so sizes stay apart, where the caption of Table 2 does not name them."""
MEDALS = {"best": "#e3b31c", "second": "#b9bfc8", "third": "#c98a54"}
LEVELS = {"p": "proportion n / N", "N": "rows of the pool, N"}


def blocks(rows: pd.DataFrame) -> list[Block]:
    scores, caption = common.scores_of(rows, PROTOCOL), "Ranks by accuracy, beside Table 2"
    if scores.empty:
        return [common.left_out(scores)]
    by_size = common.scores_of(rows.assign(N=_binned(rows["N"])), PROTOCOL)
    return [
        common.left_out(scores),
        common.rank_table(scores, caption, published=paper.CONSISTENCY_RANKS),
        _medals(scores),
        common.rank_curves("consistency-curves", by_size, LEVELS),
        *common.ranks_by_model(rows, PROTOCOL),
        common.metric_table(rows, rows, PROTOCOL),
        common.dataset_table(rows, "accuracy"),
    ]


def medals(means: pd.DataFrame) -> np.ndarray:
    """0 for the best mean rank of a line, 1 for the second, 2 for the rest; equal ranks share."""
    places = means.round(statistics.DIGITS).rank(axis=1, method="min").to_numpy(int) - 1
    return np.minimum(places, len(MEDALS) - 1)


def _medals(scores: pd.DataFrame) -> Figure | None:
    means = statistics.ranks(common.compared(scores)).groupby(level=["model", "dataset"]).mean()
    colours = np.array([to_rgb(colour) for colour in MEDALS.values()])
    texts = means.map("{:.2f}".format).rename(columns=figures.label)
    panels = [
        figures.panel(str(model), figures.cells, texts.loc[model], colours[medals(part)],
                      size=(4.4, 0.8 + 0.2 * len(part)))
        for model, part in means.groupby(level="model")
    ]  # fmt: skip
    caption = """Mean rank of each method on each data set, over proportions, sizes and seeds (the
        paper's Figure 3). Gold is the best of the methods there; equal ranks share a colour."""
    legend = [figures.Look(name, colour) for name, colour in MEDALS.items()]
    return figure("consistency-medals", caption, panels, legend)


def _binned(sizes: pd.Series) -> pd.Series:
    """Small data sets fall short of the size asked for: the median of each third stands for it."""
    if sizes.nunique() <= 8:
        return sizes
    return sizes.groupby(pd.qcut(sizes, 3, duplicates="drop"), observed=True).transform("median")
