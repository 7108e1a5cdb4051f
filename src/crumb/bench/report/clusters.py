"""Protocol ``clusters``: K, and the announced ablation of n, against selection time (the paper's Figure 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, words
from crumb.bench.report.blocks import (
    Block,
    Cell,
    Column,
    Figure,
    Panel,
    Section,
    Table,
    Text,
    mark_best,
)
from crumb.bench.report.common import per_model, slug, what_was_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "clusters", "How many clusters, how many rows"


def section(rows: pd.DataFrame) -> Section:
    blocks: list[Block] = [
        Text(
            "The paper: K = 1 is worst, and gains become small above K = 10. Its ablation of n is announced, not "
            "shown. It does not define its normalised score. Here the scores of a data set and model are scaled so "
            "that, in the mean over seeds, the worst setting has 0 and the best 1; sets on which no setting differs "
            "are left out."
        ),
        *what_was_run(rows, PROTOCOL),
    ]
    swept = with_share(statistics.ok_rows(rows)).dropna(subset=["K", "share"])
    if (swept["method"] == "crumb").any():  # other methods were added by hand; the curve is CRUMB's
        swept = swept[swept["method"] == "crumb"]
    if swept.empty:
        return Section(PROTOCOL, TITLE, [*blocks, Text("No run ended well: there is nothing to draw.")])
    for varied, part in (("K", sweep_of_clusters(swept)), ("share", sweep_of_budget(swept))):
        if part[varied].nunique() > 1:
            blocks += _sweep(part, varied)
    return Section(PROTOCOL, TITLE, blocks)


def with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """The budget as a share of the pool, as asked for where that is known."""
    return rows.assign(share=rows["p"].fillna((rows["n"] / rows["N"]).round(2)))


def sweep_of_clusters(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the share of the pool with which K was varied most."""
    return rows[rows["share"] == rows.groupby("share")["K"].nunique().idxmax()]


def sweep_of_budget(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows at the K with which the share was varied most."""
    return rows[rows["K"] == rows.groupby("K")["share"].nunique().idxmax()]


def normalised(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """The rows with a ``score`` between 0 (worst setting of a data set and model) and 1 (best), by means over seeds."""
    rows = rows.assign(_good=statistics.goodness(rows))
    means = rows.groupby(["dataset", "model", varied])["_good"].mean()
    low, high = means.groupby(level=["dataset", "model"]).min(), means.groupby(level=["dataset", "model"]).max()
    at = pd.MultiIndex.from_frame(rows[["dataset", "model"]])
    width = (high - low).reindex(at).to_numpy(float)
    score = (rows["_good"].to_numpy(float) - low.reindex(at).to_numpy(float)) / np.where(width > 1e-12, width, np.nan)
    return rows.assign(score=score).dropna(subset=["score"])


def curve(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """One line a setting: the mean over data sets of each seed, then mean ± SEM over seeds; and the selection time."""
    by_seed = normalised(rows, varied).groupby([varied, "seed"])["score"].mean()
    if by_seed.empty:
        return pd.DataFrame(columns=["mean", "sem", "seconds"], dtype=float)
    frame = pd.DataFrame({value: vars(statistics.summarise(part)) for value, part in by_seed.groupby(level=0)}).T
    frame["seconds"] = rows.groupby(varied)["plan_seconds"].mean()
    return frame


def _sweep(rows: pd.DataFrame, varied: str) -> list[Block]:
    name = "K" if varied == "K" else "n / N"
    drawn = [_panel(rows[rows["model"] == model], varied, name, model) for model in per_model(rows)]
    panels = [each for each in drawn if each is not None]
    fixed = f"n = {rows['share'].iloc[0]:g} N" if varied == "K" else f"K = {rows['K'].iloc[0]:g}"
    blocks: list[Block] = [_table(rows, varied, name, fixed)]
    if panels:
        caption = (
            f"Normalised score against the time of selection as {name} varies ({fixed}); bars are ± SEM over seeds"
            + (" (the paper's Figure 6)." if varied == "K" else ".")
        )
        blocks.append(Figure(slug("clusters", varied), caption, panels))
    return blocks


def _panel(rows: pd.DataFrame, varied: str, name: str, model: str) -> Panel | None:
    points = curve(rows, varied)
    if points.empty:
        return None
    colour = palette.look("crumb").light

    def draw(axes: Axes) -> None:
        sem = np.nan_to_num(points["sem"].to_numpy(float))
        axes.errorbar(points["seconds"], points["mean"], yerr=sem, color=colour, marker="o", capsize=2.5)
        for value, point in points.iterrows():
            above = (point["seconds"], point["mean"] + np.nan_to_num(point["sem"]))
            shown = f"K = {value:g}" if varied == "K" else f"{value:g} N"
            axes.annotate(shown, above, (0, 5), textcoords="offset points", ha="center", fontsize=8.5)
        axes.margins(x=0.14, y=0.12)
        axes.set(xlabel="selection time, s", ylabel="normalised score")

    alt = f"{model}: " + ", ".join(f"{name} = {v:g} scores {p['mean']:.2f}" for v, p in points.iterrows())
    return drawing.panel(slug("clusters", varied, model), model, alt, draw)


def _table(rows: pd.DataFrame, varied: str, name: str, fixed: str) -> Table:
    points = curve(rows, varied)
    keys = [*statistics.GROUP, "share" if varied == "K" else "K"]
    placed = statistics.ranks(statistics.score_table(rows, keys, columns=varied)).mean()
    means = {metric: statistics.per_dataset(rows, metric, varied) for metric in ("accuracy", "r2")}
    values = sorted(rows[varied].unique())
    columns = [Column(name), Column("normalised score"), Column("mean rank")]
    cells: list[list[Cell | str]] = [
        [f"{value:g}" for value in values],
        [
            words.plus_minus(*points.loc[value, ["mean", "sem"]]) if value in points.index else words.NOTHING
            for value in values
        ],
        [
            *mark_best(
                [placed.get(value, np.nan) for value in values],
                [words.fixed(placed.get(value)) for value in values],
                False,
            )
        ],
    ]
    for metric, title in (("accuracy", "accuracy"), ("r2", "R²")):
        if not means[metric].empty:
            found = [
                float(means[metric].dropna()[value].mean()) if value in means[metric] else np.nan for value in values
            ]
            columns.append(Column(title))
            cells.append([*mark_best(found, [words.fixed(each, 4) for each in found])])
    for cost, title in (("plan_seconds", "selection, s"), ("pass_seconds", "passes, s"), ("mmd2", "MMD²")):
        found = [float(rows.loc[rows[varied] == value, cost].mean()) for value in values]
        columns.append(Column(title))
        cells.append([words.small(each) if cost == "mmd2" else words.seconds(each) for each in found])
    return Table(f"{name} varied, {fixed}", columns, [list(line) for line in zip(*cells, strict=True)])
