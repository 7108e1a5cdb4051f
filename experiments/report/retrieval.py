"""Protocol ``retrieval``: herding and its alternatives (the paper's Figures 7 and 8)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments.report import common, figures
from experiments.report.blocks import Block, Figure, by_lines, figure

PROTOCOL, TITLE = "retrieval", "Which rows for a cluster"
ABOUT = """Clusters of queries are the same, the rows of each differ. The paper finds a positive
mean advantage of herding over both alternatives on every model, for classification and regression,
exact and with random features."""
RIVALS = ("centroid", "voronoi")
METRICS = {"accuracy": "accuracy points", "r2": "R² × 100"}


def blocks(rows: pd.DataFrame) -> list[Block]:
    named = rows.assign(kernel=rows["kernel"].replace("", "as set"))
    kernels = sorted({"exact", "rff", *named.loc[named["method"] == "crumb", "kernel"]})
    frame = pd.concat([advantages(named, kernel).assign(kernel=kernel) for kernel in kernels])
    if frame.empty:
        return ["No pair of runs ended well: there is nothing to compare."]
    lines = [
        (kernel, METRICS[metric], figures.label(rival), model, *common.effect(part["lead"]))
        for (kernel, metric, rival, model), part in frame.groupby(
            ["kernel", "metric", "rival", "model"]
        )
    ]
    caption = "Advantage of herding over data sets, with Wilcoxon's p"
    return [
        by_lines(caption, f"Kernel | in | against | model | {common.EFFECT}", lines),
        *(_figure(kernel, part) for kernel, part in frame.groupby("kernel")),
        common.dataset_table(rows, "accuracy"),
        common.dataset_table(rows, "r2"),
    ]


def advantages(rows: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """For each (metric, rival, model, data set) herding's mean lead over shared seeds, × 100."""
    ours = (rows["method"] == "crumb") & (rows["kernel"] == kernel)
    found = [pd.DataFrame(columns=["model", "dataset", "lead", "metric", "rival"])]
    for metric in METRICS:
        scores = common.scores_of(rows[ours | rows["method"].isin(RIVALS)], PROTOCOL, metric)
        for rival in RIVALS if "crumb" in scores else ():
            lead = 100 * (scores["crumb"] - scores.get(rival, np.nan)).dropna()
            means = lead.groupby(level=["model", "dataset"]).mean().rename("lead")
            found.append(means.reset_index().assign(metric=metric, rival=rival))
    return pd.concat([part for part in found if len(part)] or found, ignore_index=True)


def _figure(kernel: str, frame: pd.DataFrame) -> Figure | None:
    panels = [
        figures.panel(f"Kernel {kernel}", _strips, part, ylabel=f"advantage, {METRICS[metric]}")
        for metric, part in frame.groupby("metric")
    ]
    caption = f"""Advantage of herding (kernel {kernel}) on each data set: a dot is the mean over
        seeds, the box the middle half, the diamond the mean. Above the line favours herding (the
        paper's {"Figure 8" if kernel == "rff" else "Figure 7"})."""
    return figure(f"retrieval-{kernel.split()[0]}", caption, panels, figures.keys(RIVALS))


def _strips(axes: Axes, frame: pd.DataFrame) -> None:
    models = sorted(frame["model"].unique())
    for (model, rival), part in frame.groupby(["model", "rival"]):
        at, leads = 2.2 * models.index(model) + 0.8 * RIVALS.index(rival), part["lead"]
        colour, jitter = figures.look(rival).colour, np.random.default_rng(0)
        low, middle, high = leads.quantile([0.25, 0.5, 0.75])
        axes.bar(at, high - low, 0.6, bottom=low, color=colour, alpha=0.18, edgecolor=colour)
        axes.hlines(middle, at - 0.3, at + 0.3, color=colour)
        axes.scatter(at + jitter.uniform(-0.2, 0.2, len(leads)), leads, s=9, color=colour)
        axes.scatter(at, leads.mean(), s=34, marker="D", color=colour, edgecolors="white", zorder=5)
    figures.zero_line(axes)
    axes.set_xticks([2.2 * i + 0.4 for i in range(len(models))], models)
    axes.grid(visible=False, axis="x")
