"""Protocol ``factorial``: clustering and herding apart (the paper's cases A to D, Figure 9)."""

from __future__ import annotations

import pandas as pd

from experiments.report import common
from experiments.report.blocks import Block, by_lines

PROTOCOL, TITLE = "factorial", "Clustering or herding?"
ABOUT = """A: uniform rows, no clusters. B: clusters, uniform rows for each. C: herded rows, no
clusters. D: both, which is CRUMB. The paper finds D best, A and B alike, and C only a little
better."""
CASES = ["case A", "case B", "case C", "case D"]


def blocks(rows: pd.DataFrame) -> list[Block]:
    scores, caption = common.scores_of(rows, PROTOCOL), "Ranks of the four cases"
    if scores.empty:
        return [common.left_out(scores)]
    figure = "Mean rank over all groups, with 95 % intervals (the paper's Figure 9)."
    units = {"accuracy": "accuracy points", "r2": "R² × 100"}
    found = {unit: effects(rows, metric) for metric, unit in units.items()}
    lines = [
        (name, unit, *common.effect(each)) for unit in found for name, each in found[unit].items()
    ]
    columns = f"Effect | in | {common.EFFECT}"
    return [
        common.left_out(scores),
        common.rank_table(scores, caption, reference="case D"),
        common.rank_bars("factorial-ranks", scores, figure),
        by_lines("What each part adds, over data sets, with Wilcoxon's p", columns, lines),
        common.metric_table(rows, rows, PROTOCOL),
        common.rank_curves("factorial-sizes", scores, {"n": "context size n"}),
    ]


def effects(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """For each data set what clusters, herding and both add, in hundredths of the metric."""
    scores = common.scores_of(rows, PROTOCOL, metric)
    if not set(CASES) <= set(scores) or scores[CASES].dropna().empty:
        return pd.DataFrame()
    a, b, c, d = (scores[CASES].dropna()[case] for case in CASES)
    parts = {
        "clusters alone (B − A)": b - a,
        "herding alone (C − A)": c - a,
        "both (D − A)": d - a,
        "interaction (D − C − B + A)": d - c - b + a,
    }
    return 100 * pd.DataFrame(parts).groupby(level="dataset").mean()
