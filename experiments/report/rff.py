"""Protocol ``rff``: exact herding, random features and batches (the paper's Figures 10 to 13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Key, Panel, Table
from experiments.report.common import compared, left_out, per_model, scores_of
from experiments.report.numbers import (
    best,
    fixed,
    p_value,
    percent,
    plus_minus,
    seconds,
    small,
)

PROTOCOL, TITLE = "rff", "Random features and batches"
ABOUT = (
    "The paper: most variants perform alike, Centroid-NN and Voronoi-Uniform rank worse, and "
    f"{paper.RFF_DEFAULT} is within {paper.RFF_POINTS} points of exact herding and about "
    f"{paper.RFF_SPEED_UP:g} times faster."
)
WITHIN = (1, 2, 5)  # per cent
EXACT = "exact, B = 1"
OTHERS = ("centroid", "voronoi")


def blocks(rows: pd.DataFrame) -> list[Block | None]:
    rows = with_variants(rows)
    scores = scores_of(rows, PROTOCOL)
    if scores.empty:
        return [*left_out(scores)]
    gaps = gaps_to_exact(rows)
    return [
        *left_out(scores),
        _bars(scores),
        _table(rows, scores, gaps),
        _halves(rows),
        _rank_map(scores, rows),
        _time_map(rows),
        _gap_figure(gaps),
    ]


def with_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Methods by what they are, whatever the rows call them: ``exact, B = 1``, ``D = 64, B = 50``."""
    kernel = np.where(rows["D"].notna(), "D = " + rows["D"].map("{:g}".format), "exact")
    named = pd.Series(kernel, rows.index) + ", B = " + rows["B"].map("{:g}".format)
    herded = rows["B"].notna() & ~rows["method"].isin(OTHERS)
    return rows.assign(method=rows["method"].mask(herded, named), kind=kernel)


def gaps_to_exact(rows: pd.DataFrame) -> pd.DataFrame:
    """Groups × variants: accuracy or R² minus that of exact herding with B = 1, in hundredths."""
    parts = [scores_of(rows, PROTOCOL, metric) for metric in ("accuracy", "r2")]
    scores = pd.concat([part for part in parts if not part.empty] or parts)
    if EXACT not in scores:
        return pd.DataFrame()
    return 100 * scores.drop(columns=EXACT).sub(scores[EXACT], axis=0).dropna(how="all")


def _colour(name: str) -> str:
    return figures.look(name if name in OTHERS else "full" if name[0] == "e" else "crumb").colour


def _by_kernel(name: str) -> tuple[int, list[int]]:
    """Exact kernel first, then random features by D and B, then the others."""
    parts = [int(part.split("=")[1]) for part in name.split(",") if "=" in part]
    return (len(parts) or 3), parts


def _bars(scores: pd.DataFrame) -> Figure | None:
    summary = statistics.rank_summary(compared(scores))
    if not summary["count"].any():
        return None
    names = [figures.label(name) for name in summary.index]
    colours = [_colour(name) for name in summary.index]
    picture = figures.panel(
        "Mean rank of all variants",
        lambda axes: figures.bars(axes, summary, names, colours),
        5.4,
        0.75 + 0.27 * len(summary),
    )
    kernels = [
        Key("exact kernel", _colour("exact"), "s"),
        Key("random features", _colour("D"), "s"),
    ]
    caption = "Mean rank over all groups with 95 % intervals (the paper's Figure 10)."
    return Figure("rff-ranks", caption, [picture], [*kernels, *figures.keys(OTHERS)])


def _table(rows: pd.DataFrame, scores: pd.DataFrame, gaps: pd.DataFrame) -> Table:
    summary = statistics.rank_summary(compared(scores))
    good, names = statistics.ok_rows(rows), list(summary.index)
    costs = good.groupby("method")[["plan_seconds", "seconds", "mmd2"]].mean().loc[names]
    gaps = gaps.reindex(columns=names)
    near = {limit: (gaps.abs() <= limit).sum() / gaps.notna().sum() for limit in WITHIN}
    pairs = summary[["mean", "sem"]].to_numpy(float)
    faster = costs["plan_seconds"].get(EXACT, np.nan) / costs["plan_seconds"]
    gap = zip(gaps.mean(), gaps.sem(), strict=True)
    cells = {
        "Variant": [figures.label(name) for name in names],
        "mean rank": best(summary["mean"], [plus_minus(*pair) for pair in pairs], lower=True),
        "gap, points": [plus_minus(*pair, digits=2, sign=True) for pair in gap],
        **{f"within ±{limit} %": [percent(v) for v in near[limit]] for limit in WITHIN},
        "selection, s": [seconds(value) for value in costs["plan_seconds"]],
        "times faster": [fixed(value, 1) for value in faster],
        "all, s": [seconds(value) for value in costs["seconds"]],
        "MMD²": [small(value) for value in costs["mmd2"]],
    }
    caption = (
        "All variants: ranks; gap to exact herding with B = 1 (accuracy or R² × 100, mean ± SEM); "
        "time, and how much faster selection is than with exact herding; MMD²"
    )
    return Table(caption, cells)


def _halves(rows: pd.DataFrame) -> Table | None:
    """Exact kernel against random features, and small batches against large ones."""
    herded = statistics.ok_rows(rows).dropna(subset="B")
    batches = sorted(herded["B"].unique())
    wide = 50.0 if 50.0 in batches else batches[-1] if batches else np.nan
    kinds = herded["kind"].eq("exact").map({True: "exact kernel", False: "random features"})
    ends = herded[herded["B"].isin([*batches[:1], wide])]
    pairs = [herded.assign(kind=kinds), ends.assign(kind="B = " + ends["B"].map("{:g}".format))]
    lines = [_half(kept) for kept in pairs if kept["kind"].nunique() == 2]
    columns = ("Runs", "against", "MMD²", "MMD² of the other", "accuracy", "accuracy of the other",
               "sets won / tied / lost", "p")  # fmt: skip
    cells = dict(zip(columns, map(list, zip(*lines, strict=True)), strict=False))
    caption = "Two kinds of runs over the same groups; Wilcoxon's p on mean ranks of data sets"
    return Table(caption, cells) if lines else None


def _half(rows: pd.DataFrame) -> tuple[str, ...]:
    one, other = sorted(rows["kind"].unique(), key=lambda kind: (len(kind), kind))
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL), columns="kind")
    means = (-statistics.ranks(scores)).groupby(level="dataset").mean()
    tested = statistics.compare(means, one, other)
    match = rows.groupby("kind")["mmd2"].mean()
    accuracy = statistics.per_dataset(rows, "accuracy", "kind").mean()
    pair = (one, other)
    numbers = [small(match[kind]) for kind in pair]
    numbers += [fixed(accuracy.get(kind), 4) for kind in pair]
    return (*pair, *numbers, tested.record, p_value(tested.p))


def _grid(values: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """Kernels × batches of a series over the variants."""
    herded = rows[rows["B"].notna()].drop_duplicates("method")
    found = herded.assign(value=herded["method"].map(values), B=herded["B"].map("B = {:g}".format))
    grid = found.pivot(index="kind", columns="B", values="value")
    size = {name: _by_kernel(f"{name}, B = 0") for name in grid.index}
    columns = sorted(grid.columns, key=lambda name: float(name.split("=")[1]))
    return grid.loc[sorted(grid.index, key=size.__getitem__), columns].astype(float)


def _map(
    title: str, mean: pd.Series, error: pd.Series, rows: pd.DataFrame, show: Callable[[float], str]
) -> Panel | None:
    values, errors = _grid(mean, rows), _grid(error, rows)
    if not values.notna().any(axis=None):
        return None
    texts = values.map(show) + "\n± " + errors.map(show)
    shades = figures.shades(values.to_numpy())
    drawn = texts.where(values.notna(), "")
    height = 0.6 + 0.55 * len(values)
    return figures.panel(title, lambda axes: figures.cells(axes, shades, drawn), height=height)


def _rank_map(scores: pd.DataFrame, rows: pd.DataFrame) -> Figure | None:
    found = statistics.rank_summary(compared(scores))
    drawn = _map("Mean rank", found["mean"], found["sem"], rows, lambda value: fixed(value, 2))
    caption = "Mean rank ± SEM among all variants (the paper's Figure 11); darker is worse."
    return Figure("rff-rank-map", caption, [drawn]) if drawn else None


def _time_map(rows: pd.DataFrame) -> Figure | None:
    good = statistics.ok_rows(rows)
    panels = []
    for model in per_model(good):
        times = good[good["model"] == model].groupby("method")["seconds"].agg(["mean", "std"])
        title = f"Seconds a run, {model}"
        panels.append(_map(title, times["mean"], times["std"], rows, seconds))
    caption = (
        "Mean total time of a run ± standard deviation over data sets and seeds, in seconds (the "
        "paper's Figure 12); darker is slower."
    )
    drawn = [panel for panel in panels if panel]
    return Figure("rff-time-map", caption, drawn) if drawn else None


def _gap_figure(gaps: pd.DataFrame) -> Figure | None:
    if gaps.empty:
        return None
    shown = gaps[sorted(gaps.columns, key=_by_kernel, reverse=True)]
    caption = (
        "Left: gap of each run to exact herding with B = 1 on the same draw (accuracy, or R² × 100): "
        "the line spans 5 to 95 % of the runs, the box the middle half, the diamond is the mean. "
        "Right: share of runs within ±1, 2 and 5 % (the paper's Figure 13)."
    )
    return Figure("rff-gaps", caption, [_gap_panel(shown), _share_panel(shown)])


def _gap_panel(gaps: pd.DataFrame) -> Panel:
    def draw(axes: Axes) -> None:
        for at, (name, each) in enumerate(gaps.items()):
            low, left, right, high = each.quantile([0.05, 0.25, 0.75, 0.95])
            axes.hlines(at, low, high, color=_colour(name), linewidth=1.2)
            axes.hlines(at, left, right, color=_colour(name), linewidth=7, alpha=0.4)
            axes.scatter(each.mean(), at, marker="D", s=20, color=_colour(name), zorder=3)
        figures.zero_line(axes, vertical=True)
        axes.set_xlabel("gap to exact herding, points")
        figures.name_lines(axes, np.arange(gaps.shape[1]), [figures.label(n) for n in gaps])

    return figures.panel("Gap to exact herding", draw, 4.6, 0.8 + 0.22 * gaps.shape[1])


def _share_panel(gaps: pd.DataFrame) -> Panel:
    def draw(axes: Axes) -> None:
        at, colour = np.arange(gaps.shape[1]), figures.look("crumb").colour
        for limit, alpha in zip((5, 2, 1), (0.25, 0.5, 1.0), strict=True):
            near = 100 * (gaps.abs() <= limit).sum() / gaps.notna().sum()
            axes.barh(at, near, color=colour, alpha=alpha, height=0.7)
        axes.set(xlabel="% of runs within ±1 % (full colour), ±2 %, ±5 % (pale)", xlim=(0, 100))
        figures.name_lines(axes, at, [figures.label(name) for name in gaps])

    return figures.panel("Share of runs near exact herding", draw, 4.6, 0.8 + 0.22 * gaps.shape[1])
