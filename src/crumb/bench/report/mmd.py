"""Does a lower MMD² go with a better score? Rank correlations within each data set, from any rows that measured it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette
from crumb.bench.report.blocks import Figure, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """Spearman's ρ of MMD² and score for each data set; negative means that a better match scores better.

    Both are taken as differences from the mean of their group, for a draw that is easy to match may be easy to predict.
    """
    good = statistics.ok_rows(rows)
    good = good.assign(_good=statistics.goodness(good)).dropna(subset=["mmd2", "_good"])
    if good.empty:
        return pd.Series(dtype=float)
    grouped = good.groupby(statistics.group_keys(protocol), dropna=False)
    centred = pd.DataFrame(
        {
            "dataset": good["dataset"],
            "mmd2": good["mmd2"] - grouped["mmd2"].transform("mean"),
            "score": (good["_good"] - grouped["_good"].transform("mean")).round(statistics.DIGITS),
        }
    )
    return _by_dataset(centred, "mmd2", "score")


def cluster_correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """The same over single clusters, where rows list them: methods that cluster alike list the same ones in order."""
    good = statistics.ok_rows(rows)
    good = good[[isinstance(each, list) and len(each) > 0 for each in good["cluster_mmd2"]]]
    if good.empty:
        return pd.Series(dtype=float)
    keys = statistics.group_keys(protocol)
    lists = ["cluster_queries", "cluster_mmd2", "cluster_score"]
    shape = good["cluster_queries"].map(str)  # clusters with other queries are other clusters
    long = good[[*keys, *lists]].assign(shape=shape, cluster=good["cluster_mmd2"].map(lambda each: range(len(each))))
    long = long.explode([*lists, "cluster"])
    same = long.groupby([*keys, "shape", "cluster"], dropna=False)
    centred = pd.DataFrame({"dataset": long["dataset"]})
    for name in ("cluster_mmd2", "cluster_score"):
        values = long[name].astype(float)
        means = (
            long.assign(_value=values).groupby([*keys, "shape", "cluster"], dropna=False)["_value"].transform("mean")
        )
        centred[name] = (values - means).round(statistics.DIGITS)
    centred = centred[same["dataset"].transform("size").to_numpy() > 1]
    return _by_dataset(centred, "cluster_mmd2", "cluster_score")


def _by_dataset(centred: pd.DataFrame, x: str, y: str) -> pd.Series:
    found = {name: statistics.spearman(part[x], part[y]) for name, part in centred.groupby("dataset")}
    return pd.Series(found, dtype=float).dropna().sort_values()


def figure(rows: pd.DataFrame, protocol: str) -> Figure | None:
    parts = {"runs": correlations(rows, protocol), "clusters": cluster_correlations(rows, protocol)}
    panels = [_panel(found, protocol, unit) for unit, found in parts.items() if len(found)]
    caption = (
        "Spearman's rank correlation of MMD² and score within each data set, each run against the mean of its group, "
        "each cluster against its mean over the methods. Below the line a better match scores better."
    )
    return Figure(f"{protocol}-mmd", caption, panels) if panels else None


def _panel(found: pd.Series, protocol: str, unit: str) -> Panel:
    def draw(axes: Axes) -> None:
        colours = [palette.look("crumb").light if rho < 0 else palette.look("uniform").light for rho in found]
        axes.bar(np.arange(len(found)), found, color=colours, width=0.8)
        axes.axhline(0, color=palette.MUTED, linewidth=1)
        axes.set(xticks=[], xlabel="data sets, in order", ylabel="ρ of MMD² and score", ylim=(-1, 1))

    alt = f"Median ρ {found.median():.2f}; negative on {(found < 0).sum()} of {len(found)} data sets."
    return drawing.panel(f"{protocol}-mmd-{unit}", f"MMD² and score of {unit}", alt, draw)
