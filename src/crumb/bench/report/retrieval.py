"""Protocol ``retrieval``: herding against Centroid-NN and Voronoi-Uniform (the paper's Figures 7 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, words
from crumb.bench.report.blocks import Block, Cell, Column, Figure, Panel, Section, Table, Text
from crumb.bench.report.common import dataset_table, only_known, per_model, slug, what_was_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "retrieval", "Which rows for a cluster"
RIVALS = ("centroid", "voronoi")
METRICS = {"accuracy": "accuracy points", "r2": "R² × 100"}


def section(rows: pd.DataFrame) -> Section:
    blocks: list[Block] = [
        Text(
            "Clusters of queries are the same, the rows of each differ. The paper finds a positive mean advantage of "
            "herding over both alternatives on every model, for classification and regression, exact and with random "
            "features."
        ),
        *what_was_run(rows, PROTOCOL),
    ]
    found = {kernel: advantages(rows, kernel) for kernel in kernels(rows)}
    if all(frame.empty for frame in found.values()):
        return Section(PROTOCOL, TITLE, [*blocks, Text("No pair of runs ended well: there is nothing to compare.")])
    blocks.append(_table(found))
    blocks += [_figure(kernel, frame) for kernel, frame in found.items() if not frame.empty]
    blocks += only_known(
        dataset_table(rows, "accuracy", "Accuracy of each data set, mean over seeds"),
        dataset_table(rows, "r2", "R² of each data set, mean over seeds"),
    )
    return Section(PROTOCOL, TITLE, blocks)


def kernels(rows: pd.DataFrame) -> list[str]:
    """The ways in which herding was run; the exact one first."""
    found = rows.loc[rows["method"] == "crumb", "kernel"].replace("", "as set").unique()
    return sorted((str(kernel) for kernel in found), key=lambda kernel: (kernel == "rff", kernel))


def advantages(rows: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """One line a (metric, rival, model, data set): the mean over shared seeds of herding's lead, in hundredths."""
    ours = rows[(rows["method"] == "crumb") & (rows["kernel"].replace("", "as set") == kernel)]
    theirs = rows[rows["method"].isin(RIVALS)]
    lines = []
    for metric in METRICS:
        scores = statistics.score_table(pd.concat([ours, theirs]), statistics.group_keys(PROTOCOL), metric)
        for rival in RIVALS:
            if {"crumb", rival} <= set(scores.columns):
                lead = 100 * (scores["crumb"] - scores[rival]).dropna().groupby(level=["model", "dataset"]).mean()
                lines.append(lead.rename("lead").reset_index().assign(metric=metric, rival=rival))
    empty = pd.DataFrame(columns=["model", "dataset", "lead", "metric", "rival"])
    return pd.concat(lines, ignore_index=True) if lines else empty


def _table(found: dict[str, pd.DataFrame]) -> Table:
    lines: list[list[Cell | str]] = []
    for kernel, frame in found.items():
        for (metric, rival, model), part in frame.groupby(["metric", "rival", "model"]):
            leads = part["lead"].astype(float).round(statistics.DIGITS)
            summary = statistics.summarise(leads)
            counts = f"{(leads > 0).sum()} / {(leads == 0).sum()} / {(leads < 0).sum()}"
            mean = words.plus_minus(summary.mean, summary.sem, 2, sign=True)
            p = words.p_value(statistics.wilcoxon(leads))
            median = words.fixed(float(leads.median()), 2, sign=True)
            lines.append([kernel, METRICS[metric], palette.label(rival), model, mean, median, counts, p])
    names = ("mean advantage", "median", "won / tied / lost", "p")
    texts = ("Kernel", "Metric", "Against", "Model")
    columns = [*(Column(name, number=False) for name in texts), *map(Column, names)]
    return Table(
        "Advantage of herding, mean ± SEM over data sets; sets won, tied and lost; Wilcoxon's p", columns, lines
    )


def _figure(kernel: str, frame: pd.DataFrame) -> Figure:
    panels = [
        _panel(kernel, metric, unit, frame[frame["metric"] == metric])
        for metric, unit in METRICS.items()
        if (frame["metric"] == metric).any()
    ]
    place = "Figure 8" if kernel == "rff" else "Figure 7"
    caption = (
        f"Advantage of herding (kernel {kernel}) on each data set: a dot is the mean over seeds, the box the middle "
        f"half, the diamond the mean. Above the line favours herding (the paper's {place})."
    )
    return Figure(slug("retrieval", kernel), caption, panels, drawing.keys(RIVALS))


def _panel(kernel: str, metric: str, unit: str, frame: pd.DataFrame) -> Panel:
    models = per_model(frame)

    def draw(axes: Axes) -> None:
        for i, model in enumerate(models):
            for j, rival in enumerate(RIVALS):
                part = frame[(frame["model"] == model) & (frame["rival"] == rival)]["lead"].to_numpy(float)
                drawing.strip(axes, 2.2 * i + 0.8 * j, part, palette.look(rival).light)
        drawing.zero_line(axes)
        axes.set_xticks([2.2 * i + 0.4 for i in range(len(models))], models)
        axes.set_ylabel(f"advantage, {unit}")
        axes.grid(visible=False, axis="x")

    means = frame.groupby("rival")["lead"].mean()
    alt = "Mean advantage: " + ", ".join(f"{lead:+.2f} over {palette.label(rival)}" for rival, lead in means.items())
    title = "Accuracy" if metric == "accuracy" else "R²"
    return drawing.panel(slug("retrieval", kernel, metric), f"{title}, kernel {kernel}", alt, draw)
