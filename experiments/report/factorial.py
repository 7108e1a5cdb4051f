"""Protocol ``factorial``: clustering and herding apart (the paper's cases A to D, Figure 9)."""

from __future__ import annotations

import pandas as pd

from experiments import statistics
from experiments.report import figures
from experiments.report.blocks import Block, Figure, Table
from experiments.report.common import (
    compared,
    left_out,
    metric_table,
    rank_bars,
    rank_table,
    scores_of,
)
from experiments.report.numbers import p_value, plus_minus

PROTOCOL, TITLE = "factorial", "Clustering or herding?"
ABOUT = (
    "A: uniform rows, no clusters. B: clusters, uniform rows for each. C: herded rows, no clusters. "
    "D: both, which is CRUMB. The paper finds D best, A and B alike, and C only a little better."
)
CASES = ["case A", "case B", "case C", "case D"]
EFFECTS = {
    "clusters": "clusters alone (B − A)",
    "herding": "herding alone (C − A)",
    "both": "both (D − A)",
    "interaction": "interaction (D − C − B + A)",
}


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    scores = scores_of(rows, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    caption = "Mean rank over all groups, with 95 % intervals (the paper's Figure 9)."
    return [
        *left_out(scores),
        rank_table(scores, "Ranks of the four cases", reference="case D"),
        rank_bars("factorial-ranks", scores, caption),
        _effects(rows),
        metric_table(rows, "Means over data sets"),
        _by_context_size(scores),
    ]


def effects(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """For each data set what clusters, herding and both add, in hundredths of the metric."""
    scores = scores_of(rows, PROTOCOL, metric)
    if not set(CASES) <= set(scores):
        return pd.DataFrame(columns=[*EFFECTS])
    a, b, c, d = (scores.dropna()[case] for case in CASES)
    parts = {"clusters": b - a, "herding": c - a, "both": d - a, "interaction": d - c - b + a}
    return 100 * pd.DataFrame(parts).groupby(level="dataset").mean()


def _effects(rows: pd.DataFrame) -> Table | None:
    lines = [
        (EFFECTS[name], unit, plus_minus(each.mean(), each.sem(), 2, sign=True), str(len(each)),
         p_value(statistics.wilcoxon(each)))
        for metric, unit in (("accuracy", "accuracy points"), ("r2", "R² × 100"))
        for name, each in effects(rows, metric).items()
        if len(each)
    ]  # fmt: skip
    columns = ("Effect", "in", "mean ± SEM", "data sets", "p")
    cells = dict(zip(columns, map(list, zip(*lines, strict=True)), strict=False))
    return Table("What each part adds, over data sets", cells) if lines else None


def _by_context_size(scores: pd.DataFrame) -> Figure | None:
    placed = statistics.ranks(compared(scores))
    sizes = placed.index.get_level_values("n")
    if sizes.nunique() < 2:
        return None
    panel = figures.panel(
        "Rank against context size",
        lambda axes: figures.rank_curves(axes, placed, sizes, "context size n"),
    )
    caption = "Mean rank at each context size n, ± SEM."
    return Figure("factorial-sizes", caption, [panel], figures.keys(placed.columns))
