"""Parts that several sections share: what was run, how it ended, ranks beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Table, by_lines, figure
from experiments.report.numbers import (
    NOTHING,
    best,
    code,
    counted,
    fixed,
    p_value,
    plus_minus,
    seconds,
    small,
    span,
    whole,
)

CRUMB = "crumb"
UNITS = {"classification": "accuracy points", "regression": "% of RMSE"}
METRICS = {
    "accuracy": "accuracy",
    "auc": "ROC AUC",
    "log_loss": "log-loss",
    "r2": "R²",
    "rmse": "RMSE",
}
ENDINGS = {"timeout": "timed out", "error": "failed", "missing": "could not be run"}
COSTS = {"plan_seconds": "selection", "pass_seconds": "passes", "seconds": "all"}
EFFECT = "mean ± SEM | median | sets + / 0 / − | p"


def what_was_run(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """Ours beside the paper's: sets, models, seeds, sizes; then what was cut, and the failures."""
    scope, good = paper.SCOPES[protocol], statistics.ok_rows(rows)
    tried = rows if good.empty else good
    tasks = tried.groupby("task")["dataset"].nunique()
    kinds = ", ".join(f"{count} {task}" for task, count in tasks.items())
    clustered = tried["method"].isin([CRUMB, "case D"]) | tried["B"].notna()
    limited = tried[tried["method"] != "full"]
    shares = span((limited["n"] / limited["N"]).round(2))
    lines = [
        ("Data sets", f"{tried['dataset'].nunique()} ({kinds})", scope.datasets),
        ("Models", names(tried["model"]), scope.models),
        ("Seeds", str(tried["seed"].nunique()), scope.seeds),
        ("Pool rows N", span(tried["N"]), scope.pool),
        ("Queries T", span(tried["T"]), scope.queries),
        ("Context size n", f"{span(limited['n'])}; n / N = {shares}", scope.context),
        ("Clusters K", span(tried.loc[clustered, "K"]), scope.clusters),
        ("Device", names(tried["device"]), paper.DEVICE),
    ]
    cuts = rows.loc[rows["drawn"] != "", "drawn"].value_counts()[:12]
    cut = ", ".join(f"{code(name)} ({counted(count, 'run')})" for name, count in cuts.items())
    caption = f"What was run: {protocol}, beside the paper's {scope.place}"
    table = by_lines(caption, "setting | here | paper", lines)
    return [table, f"**Cut:** {cut}." if cut else None, _endings(rows)]


def names(values: Iterable[str]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or NOTHING


def _endings(rows: pd.DataFrame) -> str:
    counts = statistics.outcomes(rows)
    total, failed = counts.sum(), counts.drop(columns="ok").sum(axis=1)
    bad = ", ".join(
        f"{total[status]:,} {name}" for status, name in ENDINGS.items() if total[status]
    )
    methods = figures.in_order(failed[failed > 0].index)
    each = ", ".join(f"{figures.label(method)} {failed[method]:,}" for method in methods)
    behind = f"{bad} (by method: {each}); the last section lists them."
    ending = behind if bad else "none timed out or failed."
    return f"{counted(len(rows), 'run')}: {total['ok']:,} ended well, {ending}"


def scores_of(rows: pd.DataFrame, protocol: str, metric: str | None = None) -> pd.DataFrame:
    return statistics.score_table(rows, statistics.group_keys(protocol), metric)


def compared(scores: pd.DataFrame) -> pd.DataFrame:
    """The columns that can be compared, in the paper's order."""
    return scores[figures.in_order(statistics.comparable(scores, always=[CRUMB, "case D"]))]


def left_out(scores: pd.DataFrame) -> str | None:
    """What the ranks do not show: incomplete groups, and methods with too few runs."""
    if scores.empty:
        return "No run ended well: there is nothing to rank."
    kept, groups = compared(scores), counted(len(scores), "group")
    incomplete = len(scores) - len(kept.dropna())
    absent = ", ".join(figures.label(method) for method in scores if method not in kept)
    notes = {
        f"Left out: {incomplete:,} of {groups}, which lack a compared method.": incomplete,
        f"Not ranked, as fewer than half of the groups have it: {absent}.": absent,
    }
    return " ".join(note for note, needed in notes.items() if needed) or None


def rank_table(scores: pd.DataFrame, caption: str, reference: str = CRUMB,
               published: Mapping[str, paper.Rank] | None = None) -> Table | None:  # fmt: skip
    """Mean rank ± SEM, wins, and the tests against the reference over groups and data sets."""
    kept = compared(scores)
    summary, full = statistics.rank_summary(kept), kept.dropna()
    over_groups = statistics.rank_comparisons(kept, reference)
    over_sets = statistics.dataset_comparisons(kept, reference)
    pairs = summary[["mean", "sem"]].to_numpy()
    placed = best(summary["mean"], [plus_minus(*pair) for pair in pairs], lower=True)
    lines = []
    for method, rank, wins in zip(summary.index, placed, summary["wins"], strict=True):
        groups, sets = (each.get(method, statistics.NONE) for each in (over_groups, over_sets))
        tests = (groups.record, p_value(groups.p_adjusted), p_value(sets.p_adjusted))
        theirs = (published or {}).get(method)
        beside = (plus_minus(*theirs[:2]), theirs.p_adjusted) if theirs else (NOTHING, NOTHING)
        lines.append((figures.label(method), rank, fixed(wins, 1), *tests, *beside))
    name = figures.label(reference).split(":")[0]
    columns = (
        f"Method | mean rank | wins | won / tied / lost by {name} | p adj. | p adj., data sets"
    )
    columns += " | paper rank | paper p adj." if published else ""
    over = counted(full.index.get_level_values("dataset").nunique(), "data set")
    return by_lines(f"{caption} ({counted(len(full), 'group')}, {over})", columns, lines)


def rank_bars(name: str, summary: pd.DataFrame, colours: list[str], caption: str) -> Figure | None:
    """Mean rank with its 95 % interval, best on top."""
    size = (5.4, 0.75 + 0.29 * len(summary))
    drawn = figures.panel("Mean rank", figures.rank_bars, summary, colours, size=size)
    return figure(name, f"{caption} with 95 % intervals.", [drawn])


def rank_curves(name: str, scores: pd.DataFrame, levels: Mapping[str, str]) -> Figure | None:
    """Mean rank against each level of the groups that has several values, best on top."""
    placed = statistics.ranks(compared(scores))
    rows = placed.rename_axis("method", axis=1).stack().rename("rank").reset_index()
    labels = {"ylabel": "mean rank", "ylim": (placed.shape[1] + 0.1, 0.9)}
    panels = [
        figures.panel("Mean rank", figures.curves, rows, level, "rank", True, xlabel=text, **labels)
        for level, text in levels.items()
        if rows[level].nunique() > 1
    ]
    caption = f"Mean rank against {' and '.join(levels)}, ± SEM."
    return figure(name, caption, panels, figures.keys(placed))


def ranks_by_model(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """The rank table of each model, where there are several."""
    found = {model: scores_of(part, protocol) for model, part in rows.groupby("model")}
    several = found if len(found) > 1 else {}
    return [rank_table(each, f"Ranks with {m} alone") for m, each in several.items() if len(each)]


def metric_table(rows: pd.DataFrame, ranked: pd.DataFrame, protocol: str) -> Table:
    """Means over the data sets that all compared methods have, and mean ranks of some methods.

    RMSEs of several sets have no common scale, so R² stands for regression.
    """
    methods = figures.in_order(statistics.ok_rows(rows)["method"])
    cells: dict[str, Iterable[str]] = {"Method": [figures.label(method) for method in methods]}
    for metric in ("accuracy", "auc", "log_loss", "r2"):
        means = statistics.per_dataset(rows, metric)
        means = statistics.complete(means, statistics.comparable(means))
        if len(means):
            placed = statistics.ranks(compared(scores_of(ranked, protocol, metric))).mean()
            average, placed = means.mean().reindex(methods).round(4), placed.reindex(methods)
            texts, lower = average.map("{:.4f}".format), metric in statistics.LOWER_IS_BETTER
            texts = texts.where(average.notna(), NOTHING)
            cells[f"{METRICS[metric]} ({len(means)} sets)"] = best(average, texts, lower)
            texts = [fixed(value, 2) for value in placed]
            cells[f"rank by {METRICS[metric]}"] = best(placed, texts, lower=True)
    return Table("Means over data sets, and mean ranks", cells)


def dataset_table(rows: pd.DataFrame, metric: str) -> Table | None:
    """One line for each data set, the best in bold."""
    means = statistics.per_dataset(rows, metric)
    means = means[figures.in_order(means.columns)].round(12 if metric == "rmse" else 4)
    lower, sizes = metric in statistics.LOWER_IS_BETTER, rows.groupby("dataset")["N"].max()
    show = small if metric == "rmse" else lambda value: fixed(value, 4)
    lines = [
        (code(name), whole(sizes[name]), *best(line, map(show, line), lower))
        for name, line in zip(means.index, means.to_numpy(float), strict=True)
    ]
    columns = " | ".join(["Data set", "N", *map(figures.label, means)])
    return by_lines(
        f"{METRICS[metric]} of each data set, mean over its runs", columns, lines, long=True
    )


def time_columns(means: pd.DataFrame) -> dict[str, pd.Series]:
    """Seconds of selection, of passes and of both, and the share of selection."""
    share = 100 * means["plan_seconds"] / means["seconds"].where(means["seconds"] > 0)
    times = {f"{name}, s": means[cost].map(seconds) for cost, name in COSTS.items()}
    return {**times, "selection, %": share.map(whole)}


def effect(values: pd.Series, digits: int = 2) -> tuple[str, str, str, str]:
    """The columns of ``EFFECT``: differences of data sets, and Wilcoxon's test that they are 0."""
    found = values.dropna().round(statistics.DIGITS)
    signs = f"{(found > 0).sum()} / {(found == 0).sum()} / {(found < 0).sum()}"
    mean = plus_minus(found.mean(), found.sem(), digits, sign=True)
    median, p = fixed(found.median(), digits, sign=True), p_value(statistics.wilcoxon(found))
    return mean, median, signs, p
