"""Protocol ``retrieval``: herding, Centroid-NN and Voronoi-Uniform (the paper's Figures 7 and 8)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.common import dataset_table, per_model, scores_of
from experiments.report.numbers import fixed, p_value, plus_minus

PROTOCOL, TITLE = "retrieval", "Which rows for a cluster"
ABOUT = (
    "Clusters of queries are the same, the rows of each differ. The paper finds a positive mean "
    "advantage of herding over both alternatives on every model, for classification and regression, "
    "exact and with random features."
)
RIVALS = ("centroid", "voronoi")
METRICS = {"accuracy": "accuracy points", "r2": "R² × 100"}


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    named = rows.assign(kernel=rows["kernel"].replace("", "as set"))
    kernels = named.loc[named["method"] == "crumb", "kernel"].unique()
    found = {kernel: advantages(named, kernel) for kernel in sorted(kernels)}  # exact, rff
    found = {kernel: frame for kernel, frame in found.items() if len(frame)}
    if not found:
        return ["No pair of runs ended well: there is nothing to compare."]
    return [
        _table(found),
        *(_figure(kernel, frame) for kernel, frame in found.items()),
        dataset_table(rows, "accuracy"),
        dataset_table(rows, "r2"),
    ]


def advantages(rows: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """For each (metric, rival, model, data set) herding's mean lead over shared seeds, × 100."""
    ours = rows[(rows["method"] == "crumb") & (rows["kernel"] == kernel)]
    theirs = rows[rows["method"].isin(RIVALS)]
    found = [pd.DataFrame(columns=["model", "dataset", "lead", "metric", "rival"])]
    for metric in METRICS:
        scores = scores_of(pd.concat([ours, theirs]), PROTOCOL, metric)
        for rival in RIVALS:
            if {"crumb", rival} <= set(scores):
                lead = 100 * (scores["crumb"] - scores[rival]).dropna()
                means = lead.groupby(level=["model", "dataset"]).mean().rename("lead")
                found.append(means.reset_index().assign(metric=metric, rival=rival))
    return pd.concat(found[1:] or found, ignore_index=True)


def _table(found: dict[str, pd.DataFrame]) -> Table:
    frame = pd.concat([part.assign(kernel=kernel) for kernel, part in found.items()])
    groups = list(frame.groupby(["kernel", "metric", "rival", "model"])["lead"])
    kernels, metrics, rivals, models = zip(*(key for key, _ in groups), strict=True)
    leads = [part.round(statistics.DIGITS) for _, part in groups]
    cells = {
        "Kernel": kernels,
        "Metric": [METRICS[metric] for metric in metrics],
        "Against": [figures.label(rival) for rival in rivals],
        "Model": models,
        "mean advantage": [plus_minus(each.mean(), each.sem(), 2, sign=True) for each in leads],
        "median": [fixed(each.median(), 2, sign=True) for each in leads],
        "won / tied / lost": [
            f"{(each > 0).sum()} / {(each == 0).sum()} / {(each < 0).sum()}" for each in leads
        ],
        "p": [p_value(statistics.wilcoxon(each)) for each in leads],
    }
    caption = "Advantage of herding, mean ± SEM over data sets; sets won, tied, lost; Wilcoxon's p"
    return Table(caption, cells)


def _figure(kernel: str, frame: pd.DataFrame) -> Figure:
    parts = {metric: frame[frame["metric"] == metric] for metric in METRICS}
    panels = [_panel(kernel, metric, part) for metric, part in parts.items() if len(part)]
    place = "Figure 8" if kernel == "rff" else "Figure 7"
    caption = (
        f"Advantage of herding (kernel {kernel}) on each data set: a dot is the mean over seeds, the "
        f"box the middle half, the diamond the mean. Above the line favours herding (the paper's "
        f"{place})."
    )
    return Figure(f"retrieval-{kernel.replace(' ', '-')}", caption, panels, figures.keys(RIVALS))


def _panel(kernel: str, metric: str, frame: pd.DataFrame) -> Panel:
    models = per_model(frame)

    def draw(axes: Axes) -> None:
        for i, model in enumerate(models):
            for j, rival in enumerate(RIVALS):
                leads = frame[(frame["model"] == model) & (frame["rival"] == rival)]["lead"]
                at, colour = 2.2 * i + 0.8 * j, figures.look(rival).colour
                figures.strip(axes, at, leads.to_numpy(float), colour)
        figures.zero_line(axes)
        axes.set_xticks([2.2 * i + 0.4 for i in range(len(models))], models)
        axes.set_ylabel(f"advantage, {METRICS[metric]}")
        axes.grid(visible=False, axis="x")

    title = "Accuracy" if metric == "accuracy" else "R²"
    return figures.panel(f"{title}, kernel {kernel}", draw)
