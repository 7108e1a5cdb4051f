"""Protocol ``rff``: exact herding, random features and batches (the paper's Figures 10 to 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, mmd, palette, paper, words
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
from crumb.bench.report.common import compared, left_out, only_known, per_model, slug, what_was_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOL, TITLE = "rff", "Random features and batches"
WITHIN = (1, 2, 5)  # per cent


def section(rows: pd.DataFrame) -> Section:
    rows = rows.assign(method=[variant(*line) for line in rows[["method", "kernel", "D", "B"]].itertuples(index=False)])
    scores = statistics.score_table(rows, statistics.group_keys(PROTOCOL))
    blocks: list[Block] = [
        Text(
            "The paper: most variants perform alike, Centroid-NN and Voronoi-Uniform rank worse, and D = 64 with B = "
            f"50 is within {paper.RFF_POINTS} points of exact herding and about {paper.RFF_SPEED_UP:g} times faster."
        ),
        *what_was_run(rows, PROTOCOL),
        *left_out(scores),
    ]
    if not scores.empty:
        gaps = gaps_to_exact(rows)
        blocks += [
            *_default_against_exact(rows, gaps),
            _bars(scores),
            _table(rows, scores, gaps),
            *only_known(_rank_map(scores, rows), _time_map(rows), _gap_figure(gaps), mmd.figure(rows, PROTOCOL)),
        ]
    return Section(PROTOCOL, TITLE, blocks)


def variant(method: str, kernel: str | None, features: float, batch: float) -> str:
    """One name a variant, whatever the rows call it."""
    if method in ("centroid", "voronoi") or batch != batch:
        return method
    if kernel == "rff" or features == features:
        return f"D = {features:g}, B = {batch:g}"
    return f"exact, B = {batch:g}"


def kernel_label(kernel: str | None, features: float) -> str:
    return f"D = {features:g}" if features == features else "exact"


def _label(name: str) -> str:
    return palette.label(name) if name in palette.METHODS else name


def _colour(name: str) -> str:
    if name in palette.METHODS:
        return palette.look(name).light
    return palette.look("full").light if name.startswith("exact") else palette.look("crumb").light


def _bars(scores: pd.DataFrame) -> Figure:
    summary = statistics.rank_summary(compared(scores))

    def draw(axes: Axes) -> None:
        names = [_label(name) for name in summary.index]
        colours = [_colour(name) for name in summary.index]
        drawing.horizontal_bars(
            axes, names, summary["mean"], summary["low"], summary["high"], colours, "mean rank (1 is best)"
        )

    alt = "Mean ranks: " + ", ".join(f"{_label(name)} {summary.loc[name, 'mean']:.2f}" for name in summary.index)
    picture = drawing.panel("rff-bars", "Mean rank of all variants", alt, draw, 5.4, 0.75 + 0.27 * len(summary))
    keys = drawing.keys(["full", "crumb", "centroid", "voronoi"])
    keys = [type(keys[0])("exact kernel", keys[0].colour), type(keys[0])("random features", keys[1].colour), *keys[2:]]
    caption = "Mean rank over all groups with 95 % intervals, ties averaged (the paper's Figure 10)."
    return Figure("rff-ranks", caption, [picture], keys)


def gaps_to_exact(rows: pd.DataFrame) -> pd.DataFrame:
    """Groups × variants: accuracy or R² minus that of exact herding with the smallest batch, in hundredths."""
    good = statistics.ok_rows(rows)
    keys = statistics.group_keys(PROTOCOL)
    parts = [statistics.score_table(good[good["task"] == task], keys, metric) for task, metric in _METRICS.items()]
    parts = [part for part in parts if not part.empty]
    if not parts:
        return pd.DataFrame()
    scores = pd.concat(parts)
    exact = sorted((name for name in scores if name.startswith("exact")), key=lambda name: float(name.split("=")[1]))
    if not exact:
        return pd.DataFrame()
    return 100 * scores.drop(columns=exact[0]).sub(scores[exact[0]], axis=0).dropna(how="all")


_METRICS = {"classification": "accuracy", "regression": "r2"}


def _default_against_exact(rows: pd.DataFrame, gaps: pd.DataFrame) -> list[Block]:
    """The paper's default in one sentence."""
    name = variant("", "rff", *paper.RFF_DEFAULT)
    exact = [each for each in rows["method"].unique() if each == "exact, B = 1"]
    if name not in gaps or not exact:
        return []
    good = statistics.ok_rows(rows)
    times = good.groupby("method")["plan_seconds"].mean()
    gap = statistics.summarise(gaps[name])
    faster = times[exact[0]] / times[name] if times[name] > 0 else np.nan
    return [
        Text(
            f"Here {name} is {words.plus_minus(gap.mean, gap.sem, 2, sign=True)} points from exact herding, and its "
            f"selection takes {words.seconds(times[name])} s against {words.seconds(times[exact[0]])} s "
            f"({words.fixed(faster, 1)} times faster)."
        )
    ]


def _table(rows: pd.DataFrame, scores: pd.DataFrame, gaps: pd.DataFrame) -> Table:
    good = statistics.ok_rows(rows)
    summary = statistics.rank_summary(compared(scores))
    costs = good.groupby("method")[["plan_seconds", "seconds", "mmd2"]].mean()
    ranked = mark_best(
        list(summary["mean"]), [words.plus_minus(*line) for line in summary[["mean", "sem"]].to_numpy()], higher=False
    )
    lines: list[list[Cell | str]] = []
    for name, rank in zip(summary.index, ranked, strict=True):
        gap = gaps[name].dropna() if name in gaps else pd.Series(dtype=float)
        shares = [words.percent(float((gap.abs() <= limit).mean())) if len(gap) else words.NOTHING for limit in WITHIN]
        mean = words.fixed(float(gap.mean()), 2, sign=True) if len(gap) else words.NOTHING
        cost = costs.loc[name]
        costly = [words.seconds(cost["plan_seconds"]), words.seconds(cost["seconds"]), words.small(cost["mmd2"])]
        lines.append([_label(name), rank, mean, *shares, *costly])
    names = ["mean rank", "gap, points", *(f"within ±{limit} %" for limit in WITHIN), "selection, s", "all, s", "MMD²"]
    return Table(
        "All variants: ranks, gap to exact herding with B = 1 (accuracy or R² × 100), time, MMD²",
        [Column("Variant", number=False), *map(Column, names)],
        lines,
    )


def _grid(rows: pd.DataFrame) -> tuple[list[str], list[float]]:
    herded = rows[rows["B"].notna()]
    features = sorted(herded["D"].dropna().unique())
    exact = ["exact"] if herded["D"].isna().any() else []
    return [*exact, *(f"D = {value:g}" for value in features)], sorted(herded["B"].unique())


def _cell_name(kernel: str, batch: float) -> str:
    return f"{kernel}, B = {batch:g}"


def _rank_map(scores: pd.DataFrame, rows: pd.DataFrame) -> Figure | None:
    kernels, batches = _grid(rows)
    summary = statistics.rank_summary(compared(scores))
    if not kernels or summary.empty:
        return None
    texts, values = _cells(summary["mean"], summary["sem"], kernels, batches, 1)
    caption = "Mean rank ± SEM among all variants, by batch size and features (the paper's Figure 11); darker is worse."
    alt = "Mean ranks: " + ", ".join(f"{_label(name)} {summary.loc[name, 'mean']:.1f}" for name in summary.index)
    return Figure(
        "rff-rank-map", caption, [_map("rff-rank-map-all", "Mean rank", alt, values, texts, kernels, batches)]
    )


def _time_map(rows: pd.DataFrame) -> Figure | None:
    kernels, batches = _grid(rows)
    good = statistics.ok_rows(rows)
    panels = []
    for model in per_model(good) if kernels else []:
        seconds = good[good["model"] == model].groupby("method")["seconds"]
        texts, values = _cells(seconds.mean(), seconds.std(), kernels, batches, None)
        alt = f"{model}: " + ", ".join(f"{name} {value:.2f} s" for name, value in seconds.mean().items())
        panels.append(_map(slug("rff-time", model), f"Seconds a run, {model}", alt, values, texts, kernels, batches))
    caption = (
        "Mean total time of a run ± standard deviation over data sets and seeds, in seconds (the paper's Figure 12); "
        "darker is slower."
    )
    return Figure("rff-time-map", caption, panels) if panels else None


def _cells(
    means: pd.Series, errors: pd.Series, kernels: list[str], batches: list[float], digits: int | None
) -> tuple[list[list[str]], np.ndarray]:
    values = np.array([[means.get(_cell_name(kernel, b), np.nan) for b in batches] for kernel in kernels], dtype=float)
    show = words.seconds if digits is None else lambda value: words.fixed(value, digits + 1)
    texts = [
        [
            f"{show(values[i, j])}\n± {show(errors.get(_cell_name(kernel, b), np.nan))}"
            if values[i, j] == values[i, j]
            else ""
            for j, b in enumerate(batches)
        ]
        for i, kernel in enumerate(kernels)
    ]
    return texts, values


def _map(
    name: str,
    title: str,
    alt: str,
    values: np.ndarray,
    texts: list[list[str]],
    kernels: list[str],
    batches: list[float],
) -> Panel:
    def draw(axes: Axes) -> None:
        drawing.heat_map(axes, values, texts, kernels, [f"B = {batch:g}" for batch in batches])

    return drawing.panel(name, title, alt, draw, height=0.6 + 0.55 * len(kernels))


def _gap_figure(gaps: pd.DataFrame) -> Figure | None:
    if gaps.empty:
        return None
    herded = [name for name in gaps.columns if name not in ("centroid", "voronoi")]
    shown = sorted(herded, key=_by_kernel) + [name for name in ("centroid", "voronoi") if name in gaps]
    panels = [_gap_panel(gaps, shown), _share_panel(gaps, shown)]
    caption = (
        "Left: gap of each run to exact herding with B = 1 on the same draw (accuracy, or R² × 100): the line spans 5 "
        "to 95 % of the runs, the box the middle half, the diamond is the mean. Right: share of runs within ±1, 2 and "
        "5 % (the paper's Figure 13)."
    )
    return Figure("rff-gaps", caption, panels)


def _by_kernel(name: str) -> tuple[float, float]:
    numbers = [float(part.split("=")[1]) for part in name.split(",") if "=" in part]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0.0, numbers[0] if numbers else 0.0)


def _gap_panel(gaps: pd.DataFrame, names: list[str]) -> Panel:
    def draw(axes: Axes) -> None:
        at = np.arange(len(names))[::-1]
        for position, name in zip(at, names, strict=True):
            values = gaps[name].dropna().to_numpy(float)
            if not len(values):
                continue
            low, left, right, high = np.quantile(values, [0.05, 0.25, 0.75, 0.95])
            axes.plot([low, high], [position] * 2, color=_colour(name), linewidth=1.2)
            axes.plot([left, right], [position] * 2, color=_colour(name), linewidth=7, alpha=0.4, solid_capstyle="butt")
            axes.scatter([values.mean()], [position], marker="D", s=20, color=_colour(name), zorder=3)
        axes.axvline(0, color=palette.MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_yticks(at, [_label(name) for name in names])
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlabel("gap to exact herding, points")
        axes.grid(visible=False, axis="y")

    alt = "Mean gap in points: " + ", ".join(f"{_label(name)} {gaps[name].mean():+.2f}" for name in names)
    return drawing.panel("rff-gap", "Gap to exact herding", alt, draw, 4.6, 0.8 + 0.22 * len(names))


def _share_panel(gaps: pd.DataFrame, names: list[str]) -> Panel:
    shares = {limit: [float((gaps[name].dropna().abs() <= limit).mean()) for name in names] for limit in WITHIN}

    def draw(axes: Axes) -> None:
        at = np.arange(len(names))[::-1]
        for limit, alpha in zip(sorted(WITHIN, reverse=True), (0.25, 0.5, 1.0), strict=True):
            axes.barh(at, 100 * np.array(shares[limit]), color=palette.look("crumb").light, alpha=alpha, height=0.7)
        axes.set_yticks(at, [_label(name) for name in names])
        axes.set(
            xlabel="% of runs within ±1 % (full colour), ±2 %, ±5 % (pale)",
            xlim=(0, 100),
            ylim=(-0.6, len(names) - 0.4),
        )
        axes.grid(visible=False, axis="y")

    alt = "Share within 1 %: " + ", ".join(
        f"{_label(n)} {share:.0%}" for n, share in zip(names, shares[1], strict=True)
    )
    return drawing.panel("rff-shares", "Share of runs near exact herding", alt, draw, 4.6, 0.8 + 0.22 * len(names))
