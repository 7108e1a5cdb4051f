"""How exact stage 2 must be: protocol ``rff``, and MMD² against score in all protocols."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from experiments import statistics
from experiments.report import blocks, figures
from experiments.report.blocks import Block, Figure, Table, by_lines
from experiments.report.numbers import (
    best,
    code,
    fixed,
    means_and_errors,
    one_digit,
    p_value,
    seconds,
    small,
    whole,
)

EXACT = "exact, B = 1"
OTHERS = ("centroid", "voronoi")
ABOUT_MMD = """Spearman's rank correlation of MMD² and score within each data set, each run against
the mean of its group, and where rows list clusters each cluster against its mean over the methods:
otherwise easy draws would pass for good matches. A negative one means that a better match scores
better. p is Wilcoxon's over data sets."""


def rff(rows: pd.DataFrame) -> list[Block]:
    rows = with_variants(rows)
    scores, good, gaps = (
        blocks.scores_of(rows, "rff"),
        statistics.ok_rows(rows),
        gaps_to_exact(rows),
    )
    summary = statistics.rank_summary(blocks.compared(scores))
    return [
        blocks.left_out(scores),
        blocks.rank_bars("rff-ranks", scores, "The paper's Figure 10: mean ranks"),
        _variants(good, summary, gaps),
        _halves(good),
        _maps(good, summary),
        _gap_figure(gaps),
    ]


def with_variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Methods by what they are: ``exact, B = 1``, ``D = 64, B = 50``."""
    kernel = ("D = " + rows["D"].map("{:g}".format)).where(rows["D"].notna(), "exact")
    herded = rows["B"].notna() & ~rows["method"].isin(OTHERS)
    named = kernel + ", B = " + rows["B"].map("{:g}".format)
    return rows.assign(method=rows["method"].mask(herded, named), kernel=kernel)


def gaps_to_exact(rows: pd.DataFrame) -> pd.DataFrame:
    """Groups × variants: accuracy or R² minus that of exact herding with B = 1, in hundredths."""
    parts = [blocks.scores_of(rows, "rff", metric) for metric in ("accuracy", "r2")]
    scores = pd.concat(parts).dropna(axis=1, how="all")
    if EXACT not in scores:
        return pd.DataFrame()
    gaps = 100 * scores.drop(columns=EXACT).sub(scores[EXACT], axis=0).dropna(how="all")
    return gaps[sorted(gaps, key=_by_kernel)].round(statistics.DIGITS)


def _by_kernel(name: str) -> tuple[int, list[int]]:
    """Exact kernel first, then random features by D and B, then the others."""
    parts = [int(part.split("=")[1]) for part in name.split(",") if "=" in part]
    return (len(parts) or 3), parts


def _near(gaps: pd.DataFrame, limit: float) -> pd.Series:
    """Per cent of the runs whose gap is not larger."""
    return 100 * (gaps.abs() <= limit).sum() / gaps.notna().sum()


def _variants(rows: pd.DataFrame, summary: pd.DataFrame, gaps: pd.DataFrame) -> Table:
    names, gaps = summary.index, gaps.reindex(columns=summary.index)
    costs = rows.groupby("method")[["plan_seconds", "seconds", "mmd2"]].mean().loc[names]
    faster = costs["plan_seconds"].get(EXACT, np.nan) / costs["plan_seconds"]
    cells = {
        "Variant": names.map(figures.label),
        "mean rank": best(summary["mean"], means_and_errors(summary), lower=True),
        "gap, points": means_and_errors(gaps.agg(["mean", "sem"]).T, digits=2, sign=True),
        **{f"% within ±{limit}": _near(gaps, limit).map(whole) for limit in (1, 2, 5)},
        "selection, s": costs["plan_seconds"].map(seconds),
        "times faster": faster.map(one_digit),
        "all, s": costs["seconds"].map(seconds),
        "MMD²": costs["mmd2"].map(small),
    }
    about = "ranks, gaps to exact herding with B = 1 (accuracy or R² × 100), times, MMD²"
    return Table(f"All variants: {about}", cells)


def _halves(rows: pd.DataFrame) -> Table:
    """Exact kernel against random features, and small batches against large ones."""
    herded = rows.dropna(subset="B")
    batches = sorted(herded["B"].unique())
    ends = herded[herded["B"].isin([*batches[:1], 50.0 if 50.0 in batches else batches[-1:]])]
    kinds = herded["D"].isna().map({True: "exact kernel", False: "random features"})
    pairs = [herded.assign(kind=kinds), ends.assign(kind="B = " + ends["B"].map("{:g}".format))]
    lines = [_half(kept) for kept in pairs if kept["kind"].nunique() == 2]
    columns = """Runs | against | MMD² | MMD² of the others | accuracy | accuracy of the others |
        sets won / tied / lost | p"""
    caption = "Two kinds of runs over the same groups; Wilcoxon's p on mean ranks of data sets"
    return by_lines(caption, columns, lines)


def _half(rows: pd.DataFrame) -> tuple[str, ...]:
    one, other = sorted(rows["kind"].unique(), key=lambda kind: (len(kind), kind))
    scores = statistics.score_table(rows, statistics.group_keys("rff"), columns="kind")
    tested = statistics.compare(-statistics.dataset_ranks(scores), one, other)
    match = rows.groupby("kind")["mmd2"].mean()
    scored = statistics.per_dataset(rows, "accuracy", "kind").reindex(columns=[one, other]).mean()
    means = (small(match[one]), small(match[other]), fixed(scored[one], 4), fixed(scored[other], 4))
    return (one, other, *means, tested.record, p_value(tested.p))


def _maps(rows: pd.DataFrame, summary: pd.DataFrame) -> Figure:
    """Kernels × batches: the mean in colour, and with its error in words."""
    herded = rows.dropna(subset="B").drop_duplicates("method").set_index("method")[["kernel", "B"]]
    maps: dict[str, tuple[pd.DataFrame, Callable[..., str]]]
    maps = {"Mean rank": (summary[["mean", "sem"]], fixed)}
    for model, part in rows.groupby("model"):
        times = part.groupby("method")["seconds"].agg(["mean", "std"])
        maps[f"Seconds a run, {model}"] = (times, seconds)
    panels = []
    for title, (found, show) in maps.items():
        texts = found.iloc[:, 0].map(show) + "\n± " + found.iloc[:, 1].map(show)
        cells = herded.assign(value=found["mean"], text=texts).dropna(subset="value")
        grid = cells.pivot(index="kernel", columns="B", values=["value", "text"])
        grid = grid.loc[sorted(grid.index, key=lambda kernel: _by_kernel(f"{kernel}, B = 0"))]
        if len(grid):
            names, shades = (
                grid["text"].fillna("").rename(columns="B = {:g}".format),
                figures.shades(grid["value"].to_numpy(float)),
            )
            panels.append(
                figures.panel(title, figures.cells, names, shades, height=0.6 + 0.55 * len(grid))
            )
    caption = """Mean rank ± SEM, and seconds ± standard deviation, by kernel and
        batch; darker is worse (the paper's Figures 11 and 12)."""
    return Figure("rff-maps", caption, panels)


def _gap_figure(gaps: pd.DataFrame) -> Figure:
    height, near = 0.8 + 0.22 * gaps.shape[1], _near(gaps, 1).rename(figures.label)
    drawings = {
        "Gap to exact herding": (_gaps, gaps, "points"),
        "Runs within ±1 %": (figures.bars, near, "% of runs"),
    }
    panels = [
        figures.panel(title, draw, values, figures.colours(gaps), height=height, xlabel=unit)
        for title, (draw, values, unit) in drawings.items()
        if len(gaps)
    ]
    caption = """Left: gap of each run to exact herding with B = 1 on the same draw (accuracy, or
        R² × 100): the line spans 5 to 95 % of the runs, the box the middle half, the diamond is the
        mean. Right: runs within ±1 % (the paper's Figure 13)."""
    legend = [*figures.KERNELS.values(), *figures.keys(OTHERS)]
    return Figure("rff-gaps", caption, panels, legend)


def _gaps(axes: Axes, gaps: pd.DataFrame, colours: list[str]) -> None:
    figures.bars(axes, 0 * gaps.mean().rename(figures.label), colours)
    at, q = np.arange(gaps.shape[1])[::-1], gaps.quantile([0.05, 0.25, 0.75, 0.95]).to_numpy()
    axes.hlines(at, q[0], q[3], color=colours, linewidth=1.2)
    axes.hlines(at, q[1], q[2], color=colours, linewidth=7, alpha=0.4)
    axes.scatter(gaps.mean(), at, marker="D", s=20, color=colours, zorder=3)


def match_and_score(rows: pd.DataFrame) -> list[Block]:
    """Nothing where no rows measured MMD² of several methods on several data sets."""
    lines, panels = [], []
    for protocol in ("main", "retrieval", "factorial", "rff"):
        part = rows[rows["protocol"] == protocol]
        for unit, measure in (("runs", correlations), ("clusters", cluster_correlations)):
            found = measure(part, protocol)
            if len(found) > 1:
                ends = [f"{fixed(found.iloc[i], 2)} {code(found.index[i])}" for i in (0, -1)]
                lines.append((code(protocol), unit, *blocks.effect(found), *ends))
                labels = {"ylim": (-1, 1), "ylabel": "ρ", "xlabel": "data sets, in order"}
                title = f"{protocol}, over {unit}"
                panels.append(figures.panel(title, _rhos, found, height=2.5, **labels))
    columns = f"Protocol | over | {blocks.EFFECT} | lowest | highest"
    table = by_lines("Correlation ρ of MMD² and score over data sets", columns, lines)
    caption = "ρ of each data set, in order. Below the line a better match scores better."
    return [ABOUT_MMD, table, Figure("mmd-correlations", caption, panels)] if lines else []


def correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """ρ for each data set, of differences from the mean of the group."""
    good = statistics.ok_rows(rows)
    good = good.assign(score=statistics.goodness(good)).dropna(subset=["mmd2", "score"])
    return _by_dataset(good, "mmd2", "score", statistics.group_keys(protocol))


def cluster_correlations(rows: pd.DataFrame, protocol: str) -> pd.Series:
    """The same over single clusters, which methods that cluster alike list in the same order."""
    good = statistics.ok_rows(rows).dropna(subset="cluster_mmd2")
    x, y, keys = "cluster_mmd2", "cluster_score", statistics.group_keys(protocol)
    number = good["cluster_mmd2"].map(lambda each: range(len(each)))
    same = good["cluster_queries"].map(str)  # clusters with other queries are other clusters
    long = good[[*keys, x, y]].assign(same=same, number=number).explode([x, y, "number"])
    return _by_dataset(long.astype({x: float, y: float}), x, y, [*keys, "same", "number"])


def _by_dataset(rows: pd.DataFrame, x: str, y: str, keys: list[str]) -> pd.Series:
    rows = rows.reset_index(drop=True)
    groups = rows.groupby(keys, dropna=False)
    centred = (rows[[x, y]] - groups[[x, y]].transform("mean")).round(statistics.DIGITS)
    parts = centred[groups[x].transform("size") > 1].groupby(rows["dataset"])
    found = {name: statistics.spearman(part[x], part[y]) for name, part in parts}
    return pd.Series(found, dtype=float).dropna().sort_values()


def _rhos(axes: Axes, found: pd.Series) -> None:
    colours = figures.colours(np.where(found < 0, "crumb", "uniform"))
    axes.bar(range(len(found)), found, color=colours, width=0.8)
    axes.set_xticks([])
    figures.zero_line(axes)
