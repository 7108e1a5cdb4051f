"""Protocol ``rff``: exact herding, random features and batches (the paper's Figures 10 to 13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import common, figures, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, figure
from experiments.report.numbers import best, fixed, p_value, plus_minus, seconds, small, whole

PROTOCOL, TITLE = "rff", "Random features and batches"
ABOUT = f"""The paper: most variants perform alike, Centroid-NN and Voronoi-Uniform rank worse, and
{paper.RFF_DEFAULT} is within {paper.RFF_POINTS} points of exact herding and about
{paper.RFF_SPEED_UP:g} times faster."""
WITHIN = (1, 2, 5)  # per cent
EXACT = "exact, B = 1"
OTHERS = ("centroid", "voronoi")
KINDS = [figures.Look("exact kernel", "#33373d"), figures.Look("random features", "#d55e00")]


def blocks(rows: pd.DataFrame) -> list[Block]:
    rows = with_variants(rows)
    scores, good = common.scores_of(rows, PROTOCOL), statistics.ok_rows(rows)
    if scores.empty:
        return [common.left_out(scores)]
    gaps, summary = gaps_to_exact(rows), statistics.rank_summary(common.compared(scores))
    return [
        common.left_out(scores),
        _bars(summary),
        _table(good, summary, gaps),
        _halves(good),
        _map("rff-rank-map", "Mean rank", summary[["mean", "sem"]], good, "Figure 11", fixed),
        *(
            _map(f"rff-time-map-{i}", f"Seconds a run, {model}", times, good, "Figure 12", seconds)
            for i, (model, part) in enumerate(good.groupby("model"))
            if len(times := part.groupby("method")["seconds"].agg(["mean", "std"]))
        ),
        _gap_figure(gaps),
    ]


def with_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Methods by what they are, whatever the rows call them: ``exact, B = 1``, ``D = 64, B = 50``."""
    kernel = ("D = " + rows["D"].map("{:g}".format)).where(rows["D"].notna(), "exact")
    herded = rows["B"].notna() & ~rows["method"].isin(OTHERS)
    named = kernel + ", B = " + rows["B"].map("{:g}".format)
    return rows.assign(method=rows["method"].mask(herded, named), kernel=kernel)


def gaps_to_exact(rows: pd.DataFrame) -> pd.DataFrame:
    """Groups × variants: accuracy or R² minus that of exact herding with B = 1, in hundredths."""
    parts = [common.scores_of(rows, PROTOCOL, metric) for metric in ("accuracy", "r2")]
    scores = pd.concat([part for part in parts if not part.empty] or parts)
    if EXACT not in scores:
        return pd.DataFrame()
    gaps = 100 * scores.drop(columns=EXACT).sub(scores[EXACT], axis=0).dropna(how="all")
    return gaps[sorted(gaps, key=_by_kernel)].round(statistics.DIGITS)


def _by_kernel(name: str) -> tuple[int, list[int]]:
    """Exact kernel first, then random features by D and B, then the others."""
    parts = [int(part.split("=")[1]) for part in name.split(",") if "=" in part]
    return (len(parts) or 3), parts


def _colour(name: str) -> str:
    return figures.look(name).colour if name in OTHERS else KINDS[name[0] != "e"].colour


def _bars(summary: pd.DataFrame) -> Figure | None:
    colours, size = [_colour(name) for name in summary.index], (5.4, 0.75 + 0.27 * len(summary))
    drawn = figures.panel("Mean rank", figures.rank_bars, summary, colours, size=size)
    caption = (
        "Mean rank of all variants over all groups with 95 % intervals (the paper's Figure 10)."
    )
    return figure("rff-ranks", caption, [drawn], [*KINDS, *figures.keys(OTHERS)])


def _near(gaps: pd.DataFrame, limit: float) -> pd.Series:
    """Per cent of the runs whose gap is not larger."""
    return 100 * (gaps.abs() <= limit).sum() / gaps.notna().sum()


def _table(rows: pd.DataFrame, summary: pd.DataFrame, gaps: pd.DataFrame) -> Table:
    names = summary.index
    costs = rows.groupby("method")[["plan_seconds", "seconds", "mmd2"]].mean().loc[names]
    ranks, gaps = summary[["mean", "sem"]].to_numpy(float), gaps.reindex(columns=names)
    faster = costs["plan_seconds"].get(EXACT, np.nan) / costs["plan_seconds"]
    gap = zip(gaps.mean(), gaps.sem(), strict=True)
    cells = {
        "Variant": names.map(figures.label),
        "mean rank": best(summary["mean"], [plus_minus(*pair) for pair in ranks], lower=True),
        "gap, points": [plus_minus(*pair, digits=2, sign=True) for pair in gap],
        **{f"% within ±{limit}": _near(gaps, limit).map(whole) for limit in WITHIN},
        "selection, s": costs["plan_seconds"].map(seconds),
        "times faster": [fixed(value, 1) for value in faster],
        "all, s": costs["seconds"].map(seconds),
        "MMD²": costs["mmd2"].map(small),
    }
    caption = """All variants: ranks; gap to exact herding with B = 1 (accuracy or R² × 100, mean
        ± SEM); time, and how much faster selection is than that of exact herding; MMD²"""
    return Table(caption, cells)


def _halves(rows: pd.DataFrame) -> Table | None:
    """Exact kernel against random features, and small batches against large ones."""
    herded = rows.dropna(subset="B")
    batches = sorted(herded["B"].unique())
    ends = herded[herded["B"].isin([*batches[:1], 50.0 if 50.0 in batches else batches[-1:]])]
    kinds = herded["D"].isna().map({True: "exact kernel", False: "random features"})
    pairs = [herded.assign(kind=kinds), ends.assign(kind="B = " + ends["B"].map("{:g}".format))]
    lines = [_half(kept) for kept in pairs if kept["kind"].nunique() == 2]
    columns = "Runs | against | MMD² | of the other | accuracy | of the others | sets won / tied / lost | p"
    caption = "Two kinds of runs over the same groups; Wilcoxon's p on mean ranks of data sets"
    return by_lines(caption, columns, lines)


def _half(rows: pd.DataFrame) -> tuple[str, ...]:
    pair = sorted(rows["kind"].unique(), key=lambda kind: (len(kind), kind))
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL), columns="kind")
    tested = statistics.compare(-statistics.dataset_ranks(scores), *pair)
    match = rows.groupby("kind")["mmd2"].mean()
    accuracy = statistics.per_dataset(rows, "accuracy", "kind").mean()
    means = [
        *(small(match[kind]) for kind in pair),
        *(fixed(accuracy.get(kind), 4) for kind in pair),
    ]
    return (*pair, *means, tested.record, p_value(tested.p))


def _map(name: str, title: str, found: pd.DataFrame, rows: pd.DataFrame, place: str,
         show: Callable[[float], str]) -> Figure | None:  # fmt: skip
    """Kernels × batches: the mean in colour, and with its error in words."""
    texts = found.iloc[:, 0].map(show) + "\n± " + found.iloc[:, 1].map(show)
    herded = rows[rows["B"].notna()].drop_duplicates("method").sort_values("B")
    herded = herded.assign(
        value=herded["method"].map(found["mean"]), text=herded["method"].map(texts)
    )
    if not herded["value"].notna().any():
        return None
    grid = herded.pivot(index="kernel", columns="B", values=["value", "text"])
    grid = grid.loc[sorted(grid.index, key=lambda kernel: _by_kernel(f"{kernel}, B = 0"))]
    texts = grid["text"].fillna("").rename(columns="B = {:g}".format)
    shades, size = figures.shades(grid["value"].to_numpy(float)), (4.4, 0.6 + 0.55 * len(grid))
    drawn = figures.panel(title, figures.cells, texts, shades, size=size)
    error = {"sem": "SEM", "std": "standard deviation"}[found.columns[1]]
    return figure(name, f"{title}, ± {error} (the paper's {place}); darker is worse.", [drawn])


def _gap_figure(gaps: pd.DataFrame) -> Figure | None:
    if gaps.empty:
        return None
    size, near = (4.4, 0.8 + 0.22 * gaps.shape[1]), _near(gaps, 1).rename(figures.label)
    colours = [_colour(name) for name in gaps]
    caption = """Left: gap of each run to exact herding with B = 1 on the same draw (accuracy, or
        R² × 100): the line spans 5 to 95 % of the runs, the box the middle half, the diamond is the
        mean. Right: runs within ±1 % (the paper's Figure 13)."""
    panels = [
        figures.panel("Gap to exact herding", _gaps, gaps, colours, size=size, xlabel="points"),
        figures.panel(
            "Runs within ±1 %", figures.bars, near, colours, size=size, xlabel="% of runs"
        ),
    ]
    return figure("rff-gaps", caption, panels, [*KINDS, *figures.keys(OTHERS)])


def _gaps(axes: Axes, gaps: pd.DataFrame, colours: list[str]) -> None:
    figures.bars(axes, 0 * gaps.mean().rename(figures.label), colours)
    at, quantiles = (
        np.arange(gaps.shape[1])[::-1],
        gaps.quantile([0.05, 0.25, 0.75, 0.95]).to_numpy(),
    )
    axes.hlines(at, quantiles[0], quantiles[3], color=colours, linewidth=1.2)
    axes.hlines(at, quantiles[1], quantiles[2], color=colours, linewidth=7, alpha=0.4)
    axes.scatter(gaps.mean(), at, marker="D", s=20, color=colours, zorder=3)
