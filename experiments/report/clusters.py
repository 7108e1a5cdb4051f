"""Protocol ``clusters``: K and n against selection time (the paper's Figure 6)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures
from experiments.report.blocks import Block, Figure, Panel, Table
from experiments.report.common import per_model
from experiments.report.numbers import best, fixed, plus_minus, seconds, small

PROTOCOL, TITLE = "clusters", "How many clusters, how many rows"
ABOUT = (
    "The paper: K = 1 is worst, and gains become small above K = 10. Its ablation of n is announced, "
    "not shown. It does not define its normalised score. Here the scores of a data set and model are "
    "scaled so that, in the mean over seeds, the worst setting has 0 and the best 1; sets on which "
    "no setting differs are left out."
)
SCALE = ["dataset", "model"]


def blocks(rows: pd.DataFrame) -> list[Block | None]:
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
    """A ``score`` from 0 (worst setting of a data set and model) to 1 (best), by means over seeds."""
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
    fixed_at = f"n = {rows['share'].iloc[0]:g} N" if varied == "K" else f"K = {rows['K'].iloc[0]:g}"
    parts = {model: rows[rows["model"] == model] for model in per_model(rows)}
    panels = [
        _panel(found, varied, model)
        for model, part in parts.items()
        if len(found := curve(part, varied))
    ]
    caption = (
        f"Normalised score against the time of selection as {name} varies ({fixed_at}); bars are "
        f"± SEM over seeds{place}."
    )
    drawn = [Figure(f"clusters-{varied.lower()}", caption, panels)] if panels else []
    return [_table(rows, varied, f"{name} varied, {fixed_at}", name), *drawn]


def _panel(points: pd.DataFrame, varied: str, model: str) -> Panel:
    def draw(axes: Axes) -> None:
        sem, colour = points["sem"].fillna(0), figures.look("crumb").colour
        style = {"color": colour, "marker": "o", "capsize": 2.5}
        axes.errorbar(points["seconds"], points["mean"], yerr=sem, **style)
        for value, (mean, _, at) in points.iterrows():
            text = f"K = {value:g}" if varied == "K" else f"{value:g} N"
            place = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center"}
            axes.annotate(text, (at, mean + sem[value]), fontsize=8.5, **place)
        axes.margins(x=0.14, y=0.12)
        axes.set(xlabel="selection time, s", ylabel="normalised score")

    return figures.panel(model, draw)


def _table(rows: pd.DataFrame, varied: str, caption: str, name: str) -> Table:
    values = sorted(rows[varied].unique())
    points = curve(rows, varied).reindex(values)
    keys = [*statistics.GROUP, "share" if varied == "K" else "K"]
    scores = statistics.score_table(rows, keys, columns=varied)
    placed = statistics.ranks(scores).mean().reindex(values)
    pairs = points[["mean", "sem"]].to_numpy(float)
    cells = {
        name: [f"{value:g}" for value in values],
        "normalised score": [plus_minus(*pair) for pair in pairs],
        "mean rank": best(placed, [fixed(value) for value in placed], lower=True),
    }
    for metric, title in (("accuracy", "accuracy"), ("r2", "R²")):
        means = statistics.per_dataset(rows, metric, varied)
        if not means.empty:
            found = means.dropna().mean().reindex(values)
            cells[title] = best(found, [fixed(value, 4) for value in found])
    costs = rows.groupby(varied)[["plan_seconds", "pass_seconds", "mmd2"]].mean().reindex(values)
    cells["selection, s"] = [seconds(value) for value in costs["plan_seconds"]]
    cells["passes, s"] = [seconds(value) for value in costs["pass_seconds"]]
    cells["MMD²"] = [small(value) for value in costs["mmd2"]]
    return Table(caption, cells)
