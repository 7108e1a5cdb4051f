"""Does a lower MMD² go with a better score? Rank correlations within each data set."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import common, figures
from experiments.report.blocks import Block, by_lines, figure
from experiments.report.numbers import code, fixed

NAME, TITLE = "mmd", "MMD² and score"
ABOUT = """Spearman's rank correlation of MMD² and score within each data set, each run against the
mean of its group, and where rows list clusters each cluster against its mean over the methods:
otherwise easy draws would pass for good matches. A negative one means that a better match scores
better. p is Wilcoxon's over data sets."""


def blocks(rows: pd.DataFrame) -> list[Block]:
    """Nothing where no rows measured MMD² of several methods on several data sets."""
    lines, panels = [], []
    for protocol in ("main", "retrieval", "factorial", "rff"):
        part = rows[rows["protocol"] == protocol]
        for unit, measure in (("runs", correlations), ("clusters", cluster_correlations)):
            found = measure(part, protocol)
            if len(found) > 1:
                ends = [f"{fixed(found.iloc[i], 2)} {code(found.index[i])}" for i in (0, -1)]
                lines.append((code(protocol), unit, *common.effect(found), *ends))
                labels = {"ylim": (-1, 1), "ylabel": "ρ", "xlabel": "data sets, in order"}
                title = f"{protocol}, over {unit}"
                panels.append(figures.panel(title, _draw, found, size=(4.4, 2.5), **labels))
    columns = f"Protocol | over | {common.EFFECT} | lowest | highest"
    table = by_lines("Correlation ρ of MMD² and score over data sets", columns, lines)
    caption = "ρ of each data set, in order. Below the line a better match scores better."
    return [ABOUT, table, figure("mmd-correlations", caption, panels)] if lines else []


def correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """ρ for each data set, of differences from the mean of the group."""
    good = statistics.ok_rows(rows)
    good = good.assign(score=statistics.goodness(good)).dropna(subset=["mmd2", "score"])
    return _by_dataset(good, "mmd2", "score", statistics.group_keys(protocol))


def cluster_correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """The same over single clusters, which methods that cluster alike list in the same order."""
    good = statistics.ok_rows(rows)
    good = good[good["cluster_mmd2"].map(type) == list]  # the others did not measure it
    lists, keys = ["cluster_mmd2", "cluster_score"], statistics.group_keys(protocol)
    number = good["cluster_mmd2"].map(lambda each: range(len(each)))
    same = good["cluster_queries"].map(str)  # clusters with other queries are other clusters
    long = good[[*keys, *lists]].assign(same=same, number=number).explode([*lists, "number"])
    return _by_dataset(long.astype(dict.fromkeys(lists, float)), *lists, [*keys, "same", "number"])


def _by_dataset(rows: pd.DataFrame, x: str, y: str, keys: list[str]) -> pd.Series:
    rows = rows.reset_index(drop=True)
    groups = rows.groupby(keys, dropna=False)
    centred = (rows[[x, y]] - groups[[x, y]].transform("mean")).round(statistics.DIGITS)
    parts = centred[groups[x].transform("size") > 1].groupby(rows["dataset"])
    found = {name: statistics.spearman(part[x], part[y]) for name, part in parts}
    return pd.Series(found, dtype=float).dropna().sort_values()


def _draw(axes: Axes, found: pd.Series) -> None:
    colours = [figures.look("crumb" if rho < 0 else "uniform").colour for rho in found]
    axes.bar(range(len(found)), found, color=colours, width=0.8)
    axes.set_xticks([])
    figures.zero_line(axes)
