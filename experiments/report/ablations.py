"""What each part of CRUMB brings: protocols ``clusters``, ``retrieval`` and ``factorial``."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import blocks, figures
from experiments.report.blocks import EFFECT, Block, Figure, Table, by_lines, effect, sweep
from experiments.report.numbers import best, fixed, four_digits, means_and_errors, seconds, small

SCALE = ["dataset", "model"]
RIVALS = ("centroid", "voronoi")
POINTS = {"accuracy": "accuracy points", "r2": "R² × 100"}
CASES = ["case A", "case B", "case C", "case D"]


def clusters(rows: pd.DataFrame) -> list[Block]:
    swept = with_share(statistics.ok_rows(rows)).dropna(subset=["K", "share"])
    if (swept["method"] == "crumb").any():  # other methods were added by hand
        swept = swept[swept["method"] == "crumb"]
    return [*_sweep(swept, "K", "share"), *_sweep(swept, "share", "K")]


def with_share(rows: pd.DataFrame) -> pd.DataFrame:
    """The context size as a share of the pool, as asked for where that is known."""
    return rows.assign(share=rows["p"].fillna((rows["n"] / rows["N"]).round(2)))


def normalised(rows: pd.DataFrame, varied: str) -> pd.DataFrame:
    """A ``score`` from 0 (worst setting of a data set and model) to 1 (best), over seeds."""
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


def _sweep(rows: pd.DataFrame, varied: str, other: str) -> list[Block]:
    rows = sweep(rows, varied, other)
    if rows[varied].nunique() < 2:
        return []
    name, place = ("K", " (the paper's Figure 6)") if varied == "K" else ("n / N", "")
    at = f"n = {rows['share'].iloc[0]:g} N" if varied == "K" else f"K = {rows['K'].iloc[0]:g}"
    labels = {"xlabel": "selection time, s", "ylabel": "normalised score"}
    points = {str(model): curve(part, varied) for model, part in rows.groupby("model")}
    panels = [
        figures.panel(m, _points, each, name, **labels) for m, each in points.items() if len(each)
    ]
    caption = f"""Normalised score against the time of selection as {name} varies ({at}); bars are
        ± SEM over seeds{place}."""
    drawn = Figure(f"clusters-{varied.lower()}", caption, panels)
    return [_sweep_table(rows, varied, other, name, f"{name} varied, {at}"), drawn]


def _points(axes: Axes, points: pd.DataFrame, name: str) -> None:
    colour, sem = figures.look("crumb").colour, points["sem"].fillna(0)
    axes.errorbar(points["seconds"], points["mean"], sem, color=colour, marker="o", capsize=2.5)
    for value, point in points.iterrows():
        at, above = (point["seconds"], point["mean"] + sem[value]), (0, 5)
        axes.annotate(f"{name} = {value:g}", at, above, textcoords="offset points", ha="center")
    axes.margins(x=0.14, y=0.12)


def _sweep_table(rows: pd.DataFrame, varied: str, other: str, name: str, caption: str) -> Table:
    costs = rows.groupby(varied)[["plan_seconds", "pass_seconds", "mmd2"]].mean()
    scores = statistics.score_table(rows, [*statistics.GROUP, other], columns=varied)
    placed = statistics.ranks(scores).mean().reindex(costs.index)
    cells = {
        name: [f"{value:g}" for value in costs.index],
        "normalised score": means_and_errors(curve(rows, varied).reindex(costs.index)),
        "mean rank": best(placed, placed.map(fixed), lower=True),
    }
    for metric in POINTS:
        means = statistics.per_dataset(rows, metric, varied).dropna().mean().reindex(costs.index)
        if means.notna().any():
            cells[blocks.METRICS[metric]] = best(means, means.map(four_digits))
    times = {"selection, s": costs["plan_seconds"], "passes, s": costs["pass_seconds"]}
    cells |= {title: each.map(seconds) for title, each in times.items()}
    return Table(caption, {**cells, "MMD²": costs["mmd2"].map(small)})


def retrieval(rows: pd.DataFrame) -> list[Block]:
    named = rows.assign(kernel=rows["kernel"].replace("", "as set"))
    kernels = sorted({"exact", "rff", *named.loc[named["method"] == "crumb", "kernel"]})
    frame = pd.concat([advantages(named, kernel).assign(kernel=kernel) for kernel in kernels])
    lines = [
        (kernel, POINTS[metric], figures.label(rival), model, *effect(part["lead"]))
        for (kernel, metric, rival, model), part in frame.groupby(
            ["kernel", "metric", "rival", "model"]
        )
    ]
    caption = "Advantage of herding over data sets, with Wilcoxon's p"
    return [
        by_lines(caption, f"Kernel | in | against | model | {EFFECT}", lines),
        *(_advantage_figure(kernel, part) for kernel, part in frame.groupby("kernel")),
        *blocks.dataset_tables(rows, regression="r2"),
    ]


def advantages(rows: pd.DataFrame, kernel: str) -> pd.DataFrame:
    """For each (metric, rival, model, data set) herding's mean lead over shared seeds, × 100."""
    ours, found = (rows["method"] == "crumb") & (rows["kernel"] == kernel), []
    for metric, rival in product(POINTS, RIVALS):
        scores = blocks.scores_of(rows[ours | (rows["method"] == rival)], "retrieval", metric)
        pair = statistics.complete(scores, ["crumb", rival])
        leads = 100 * (pair["crumb"] - pair[rival]).groupby(level=["model", "dataset"]).mean()
        found.append(leads.rename("lead").reset_index().assign(metric=metric, rival=rival))
    return pd.concat(found, ignore_index=True)


def _advantage_figure(kernel: str, frame: pd.DataFrame) -> Figure:
    panels = [
        figures.panel(f"Kernel {kernel}", _strips, part, ylabel=f"advantage, {POINTS[metric]}")
        for metric, part in frame.groupby("metric")
    ]
    caption = f"""Advantage of herding (kernel {kernel}) on each data set: a dot is the mean over
        seeds, the box the middle half, the diamond the mean. Above the line favours herding (the
        paper's {"Figure 8" if kernel == "rff" else "Figure 7"})."""
    return Figure(f"retrieval-{kernel.split()[0]}", caption, panels, figures.keys(RIVALS))


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


def factorial(rows: pd.DataFrame) -> list[Block]:
    scores = blocks.scores_of(rows, "factorial")
    lines = [
        (name, unit, *effect(each))
        for metric, unit in POINTS.items()
        for name, each in effects(rows, metric).items()
        if len(each)
    ]
    caption = "What each part adds, over data sets, with Wilcoxon's p"
    return [
        blocks.left_out(scores),
        blocks.rank_table(scores, "Ranks of the four cases", reference="case D"),
        blocks.rank_bars("factorial-ranks", scores, "The paper's Figure 9: mean ranks"),
        by_lines(caption, f"Effect | in | {EFFECT}", lines),
        blocks.metric_table(rows, rows, "factorial"),
        blocks.rank_curves("factorial-sizes", scores, {"n": "context size n"}),
    ]


def effects(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """For each data set what clusters, herding and both add, in hundredths of the metric."""
    scores = statistics.complete(blocks.scores_of(rows, "factorial", metric), CASES)
    a, b, c, d = (scores[case] for case in CASES)
    parts = {
        "clusters alone (B − A)": b - a,
        "herding alone (C − A)": c - a,
        "both (D − A)": d - a,
        "interaction (D − C − B + A)": d - c - b + a,
    }
    return 100 * pd.DataFrame(parts).groupby(level="dataset").mean()
