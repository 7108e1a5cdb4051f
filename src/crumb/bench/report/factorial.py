"""Protocol ``factorial``: clustering and herding apart (the paper's cases A to D, Figure 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, words
from crumb.bench.report.blocks import Block, Cell, Column, Figure, Panel, Section, Table, Text
from crumb.bench.report.common import (
    compared,
    left_out,
    line_with_band,
    metric_table,
    only_known,
    rank_bars,
    rank_table,
    what_was_run,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "factorial", "Clustering or herding?"
CASES = ("case A", "case B", "case C", "case D")


def section(rows: pd.DataFrame) -> Section:
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text(
            "A: uniform rows, no clusters. B: clusters, uniform rows for each. C: herded rows, no clusters. D: both, "
            "which is CRUMB. The paper finds D best, A and B alike, and C only a little better."
        ),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        caption = "Mean rank over all groups, with 95 % intervals (the paper's Figure 9)."
        blocks += [
            rank_table(scores, "Ranks of the four cases", reference="case D"),
            rank_bars("factorial-ranks", "Mean rank", scores, caption),
            *only_known(_effects(rows), metric_table(rows, "Means over data sets"), _by_budget(scores)),
        ]
    return Section(PROTOCOL, TITLE, blocks)


def effects(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """One line a data set: what clusters alone, herding alone and both together add, in hundredths of the metric."""
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL), metric)
    if not set(CASES) <= set(scores.columns):
        return pd.DataFrame()
    a, b, c, d = (scores.dropna()[case] for case in CASES)
    each = pd.DataFrame({"clusters": b - a, "herding": c - a, "both": d - a, "interaction": d - c - b + a})
    return 100 * each.groupby(level="dataset").mean()


def _effects(rows: pd.DataFrame) -> Table | None:
    names = {
        "clusters": "clusters alone (B − A)",
        "herding": "herding alone (C − A)",
        "both": "both (D − A)",
        "interaction": "interaction (D − C − B + A)",
    }
    lines: list[list[Cell | str]] = []
    for metric, unit in (("accuracy", "accuracy points"), ("r2", "R² × 100")):
        frame = effects(rows, metric)
        for effect in frame.columns:
            summary = statistics.summarise(frame[effect])
            mean = words.plus_minus(summary.mean, summary.sem, 2, sign=True)
            p = statistics.wilcoxon(frame[effect].round(statistics.DIGITS))
            lines.append([names[effect], unit, mean, str(summary.count), words.p_value(p)])
    columns = [
        Column("Effect", number=False),
        Column("in", number=False),
        Column("mean ± SEM"),
        Column("data sets"),
        Column("p"),
    ]
    return Table("What each part adds, over data sets", columns, lines) if lines else None


def _by_budget(scores: pd.DataFrame) -> Figure | None:
    placed = statistics.ranks(compared(scores))
    budgets = sorted(placed.index.get_level_values("n").unique())
    if len(budgets) < 2:
        return None
    caption = "Mean rank at each budget n, ± SEM."
    return Figure("factorial-budgets", caption, [_panel(placed, budgets)], drawing.keys(list(placed.columns)))


def _panel(placed: pd.DataFrame, budgets: list[float]) -> Panel:
    def draw(axes: Axes) -> None:
        at = np.arange(len(budgets))
        values = placed.index.get_level_values("n")
        for method in placed.columns:
            frame = pd.DataFrame([vars(statistics.summarise(placed[method][values == n])) for n in budgets])
            line_with_band(axes, at, frame, palette.look(method).light, palette.look(method).marker)
        axes.set_xticks(at, [words.short(n) for n in budgets])
        axes.set(xlabel="budget n", ylabel="mean rank")
        axes.invert_yaxis()

    alt = f"Mean ranks of the cases at budgets {', '.join(words.short(n) for n in budgets)}."
    return drawing.panel("factorial-budget", "Rank against budget", alt, draw)
