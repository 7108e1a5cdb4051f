"""Does a lower MMD² go with a better score? Rank correlations within each data set."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.numbers import code, fixed, p_value

TITLE = "MMD² and score"
ABOUT = (
    "Spearman's rank correlation of MMD² and score within each data set, each run against the mean "
    "of its group, and where rows list clusters each cluster against its mean over the methods: "
    "otherwise easy draws would pass for good matches. A negative one means that a better match "
    "scores better. p is Wilcoxon's over data sets."
)
PROTOCOLS = ("main", "retrieval", "factorial", "rff")


def blocks(rows: pd.DataFrame) -> list[Block]:
    """Nothing where no rows measured MMD² of several methods on several data sets."""
    found = {}
    for protocol in PROTOCOLS:
        part = rows[rows["protocol"] == protocol]
        found[protocol, "runs"] = correlations(part, protocol)
        found[protocol, "clusters"] = cluster_correlations(part, protocol)
    found = {key: each for key, each in found.items() if len(each) > 1}
    if not found:
        return []
    cells = {
        "Protocol": [code(protocol) for protocol, _ in found],
        "over": [unit for _, unit in found],
        "data sets": [str(len(each)) for each in found.values()],
        "median ρ": [fixed(each.median(), 2) for each in found.values()],
        "negative on": [str((each < 0).sum()) for each in found.values()],
        "lowest": [f"{fixed(each.iloc[0], 2)} {code(each.index[0])}" for each in found.values()],
        "highest": [f"{fixed(each.iloc[-1], 2)} {code(each.index[-1])}" for each in found.values()],
        "p": [p_value(statistics.wilcoxon(each)) for each in found.values()],
    }
    panels = [_panel(each, f"{protocol}, over {unit}") for (protocol, unit), each in found.items()]
    caption = "ρ of each data set, in order. Below the line a better match scores better."
    return [ABOUT, Table("Correlation of MMD² and score", cells), Figure("mmd", caption, panels)]


def correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """ρ for each data set, of differences from the mean of the group."""
    good = statistics.ok_rows(rows)
    good = good.assign(score=statistics.goodness(good)).dropna(subset=["mmd2", "score"])
    return _by_dataset(good, "mmd2", "score", statistics.group_keys(protocol))


def cluster_correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """The same over single clusters, which methods that cluster alike list in the same order."""
    good = statistics.ok_rows(rows)
    good = good[good["cluster_mmd2"].map(lambda each: isinstance(each, list) and len(each) > 0)]
    lists, keys = ["cluster_mmd2", "cluster_score"], statistics.group_keys(protocol)
    number = good["cluster_mmd2"].map(lambda each: range(len(each)))
    same = good["cluster_queries"].map(str)  # clusters with other queries are other clusters
    long = good[[*keys, *lists]].assign(same=same, number=number).explode([*lists, "number"])
    return _by_dataset(long.astype(dict.fromkeys(lists, float)), *lists, [*keys, "same", "number"])


def _by_dataset(rows: pd.DataFrame, x: str, y: str, keys: list[str]) -> pd.Series:
    if rows.empty:
        return pd.Series(dtype=float)
    groups = rows.groupby(keys, dropna=False)[[x, y]]
    centred = (rows[[x, y]] - groups.transform("mean")).round(statistics.DIGITS)
    centred = centred[groups.transform("size") > 1]
    parts = centred.groupby(rows["dataset"])
    found = {name: statistics.spearman(part[x], part[y]) for name, part in parts}
    return pd.Series(found, dtype=float).dropna().sort_values()


def _panel(found: pd.Series, title: str) -> Panel:
    def draw(axes: Axes) -> None:
        methods = ["crumb" if rho < 0 else "uniform" for rho in found]
        colours = [figures.look(method).colour for method in methods]
        axes.bar(np.arange(len(found)), found, color=colours, width=0.8)
        figures.zero_line(axes)
        axes.set(xticks=[], xlabel="data sets, in order", ylabel="ρ", ylim=(-1, 1))

    return figures.panel(title, draw, height=2.5)
