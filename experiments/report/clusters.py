"""Protocol ``clusters``: K and n against selection time (the paper's Figure 6)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import common, figures
from experiments.report.blocks import Block, Table, figure
from experiments.report.numbers import best, fixed, plus_minus, seconds, small

PROTOCOL, TITLE = "clusters", "How many clusters, how many rows"
ABOUT = """The paper: K = 1 is worst, and gains become small above K = 10. Its ablation of n is
announced, not shown. It does not define its normalised score. Here the scores of a data set and
model are scaled so that, in the mean over seeds, the worst setting has 0 and the best 1; sets on
which no setting differs are left out."""
SCALE = ["dataset", "model"]


def blocks(rows: pd.DataFrame) -> list[Block]:
    swept = with_share(statistics.ok_rows(rows)).dropna(subset=["K", "share"])
    if (swept["method"] == "crumb").any():  # other methods were added by hand
        swept = swept[swept["method"] == "crumb"]
    if swept.empty:
        return ["No run ended well: there is nothing to draw."]
    return [*_sweep(sweep(swept, "K"), "K"), *_sweep(sweep(swept, "share"), "share")]


def with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """The context size as a share of the pool, as asked for where that is known."""
    return rows.assign(share=rows["p"].fillna((rows["n"] / rows["N"]).round(2)))


def sweep(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """The rows at the share with which K varies most, or at the K with which the share does."""
    other = "share" if varied == "K" else "K"
    return rows[rows[other] == rows.groupby(other)[varied].nunique().idxmax()]


def normalised(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """A ``score`` from 0 (worst setting of a data set and model) to 1 (best), in mean over seeds."""
    rows = rows.assign(_good=statistics.goodness(rows))
    means = rows.groupby([*SCALE, varied])["_good"].mean().groupby(level=SCALE).agg(["min", "max"])
    low, high = means.reindex(pd.MultiIndex.from_frame(rows[SCALE])).to_numpy(float).T
    width = np.where(high - low > 1e-12, high - low, np.nan)
    return rows.assign(score=(rows["_good"] - low) / width).dropna(subset="score")


def curve(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """For each setting mean ± SEM over seeds of the mean over data sets, and the selection time."""
    by_seed = normalised(rows, varied).groupby([varied, "seed"])["score"].mean()
    found = by_seed.groupby(level=varied).agg(["mean", "sem"])
    return found.assign(seconds=rows.groupby(varied)["plan_seconds"].mean())


def _sweep(rows: pd.DataFrame, varied: str) -> list[Block]:
    if rows[varied].nunique() < 2:
        return []
    name, place = ("K", " (the paper's Figure 6)") if varied == "K" else ("n / N", "")
    at = f"n = {rows['share'].iloc[0]:g} N" if varied == "K" else f"K = {rows['K'].iloc[0]:g}"
    labels = {"xlabel": "selection time, s", "ylabel": "normalised score"}
    points = {model: curve(part, varied) for model, part in rows.groupby("model")}
    panels = [
        figures.panel(str(model), _draw, each, f"{name} = ", **labels)
        for model, each in points.items()
        if len(each)
    ]
    caption = f"""Normalised score against the time of selection as {name} varies ({at}); bars are
        ± SEM over seeds{place}."""
    drawn = figure(f"clusters-{varied.lower()}", caption, panels)
    return [_table(rows, varied, f"{name} varied, {at}", name), drawn]


def _draw(axes: Axes, points: pd.DataFrame, before: str) -> None:
    colour, sem = figures.look("crumb").colour, points["sem"].fillna(0)
    axes.errorbar(points["seconds"], points["mean"], sem, color=colour, marker="o", capsize=2.5)
    for value, point in points.iterrows():
        at = (point["seconds"], point["mean"] + sem[value])
        axes.annotate(f"{before}{value:g}", at, (0, 5), textcoords="offset points", ha="center")
    axes.margins(x=0.14, y=0.12)


def _table(rows: pd.DataFrame, varied: str, caption: str, name: str) -> Table:
    keys = [*statistics.GROUP, "share" if varied == "K" else "K"]
    costs = rows.groupby(varied)[["plan_seconds", "pass_seconds", "mmd2"]].mean()
    placed = statistics.ranks(statistics.score_table(rows, keys, columns=varied)).mean()
    placed, points = placed.reindex(costs.index), curve(rows, varied).reindex(costs.index)
    cells = {
        name: [f"{value:g}" for value in costs.index],
        "normalised score": [plus_minus(*pair) for pair in points[["mean", "sem"]].to_numpy()],
        "mean rank": best(placed, placed.map(fixed), lower=True),
    }
    for metric in ("accuracy", "r2"):
        means = statistics.per_dataset(rows, metric, varied).dropna().mean().reindex(costs.index)
        if means.notna().any():
            cells[common.METRICS[metric]] = best(means, [fixed(value, 4) for value in means])
    cells["selection, s"] = costs["plan_seconds"].map(seconds)
    cells["passes, s"] = costs["pass_seconds"].map(seconds)
    return Table(caption, {**cells, "MMD²": costs["mmd2"].map(small)})
