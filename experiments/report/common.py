"""Parts that several sections share: what was run, how it ended, ranks beside the paper's, means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments import statistics
from experiments.report import figures, paper
from experiments.report.blocks import Block, Figure, Table
from experiments.report.numbers import (
    NOTHING,
    best,
    code,
    counted,
    fixed,
    listing,
    p_value,
    plus_minus,
    seconds,
    small,
    span,
    whole,
)

CRUMB = "crumb"
UNITS = {"classification": "accuracy points", "regression": "% of RMSE"}
METRICS = {"accuracy": "accuracy", "auc": "ROC AUC", "log_loss": "log-loss", "r2": "R²"}
ENDINGS = {"timeout": "timed out", "error": "failed", "missing": "could not be run"}


def what_was_run(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """Ours beside the paper's: sets, models, seeds, sizes; then what was cut, and the failures."""
    scope, good = paper.SCOPES[protocol], statistics.ok_rows(rows)
    tried = rows if good.empty else good
    tasks = tried.groupby("task")["dataset"].nunique()
    kinds = ", ".join(f"{count} {task}" for task, count in tasks.items())
    clustered = tried["method"].isin([CRUMB, "case D"]) | tried["B"].notna()
    lines = {
        "Data sets": (f"{tried['dataset'].nunique()} ({kinds})", scope.datasets),
        "Models": (names(tried["model"]), scope.models),
        "Seeds": (str(tried["seed"].nunique()), scope.seeds),
        "Pool rows N": (span(tried["N"]), scope.pool),
        "Queries T": (span(tried["T"]), scope.queries),
        "Context size n": (_context_size(tried), scope.context),
        "Clusters K": (span(tried.loc[clustered, "K"]), scope.clusters),
        "Device": (names(tried["device"]), paper.DEVICE),
    }
    ours, theirs = zip(*lines.values(), strict=True)
    caption = f"What was run: {protocol}, beside the paper's {scope.place}"
    return [
        Table(caption, {"": [*lines], "here": ours, "paper": theirs}),
        *_cuts(rows),
        _ends(rows),
    ]


def names(values: pd.Series) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or NOTHING


def _context_size(rows: pd.DataFrame) -> str:
    """A few values as they are; otherwise as shares of the pool as well."""
    limited = rows[(rows["method"] != "full") & rows["n"].notna()]
    few = limited["n"].nunique() <= 6
    shares = span((limited["n"] / limited["N"]).round(2))
    return span(limited["n"]) if few else f"{span(limited['n'])}; n / N = {shares}"


def _cuts(rows: pd.DataFrame) -> list[Block]:
    counts = rows.loc[rows["drawn"] != "", "drawn"].value_counts()
    parts = [f"{code(cut)} ({counted(count, 'run')})" for cut, count in counts.items()]
    more = " and others" if len(parts) > 12 else ""
    return [f"**Cut:** {listing(parts[:12])}{more}."] if parts else []


def _ends(rows: pd.DataFrame) -> str:
    counts = statistics.outcomes(rows)
    total, failed = counts.sum(), counts.drop(columns="ok").sum(axis=1)
    said = f"{counted(len(rows), 'run')}: {total['ok']:,} ended well"
    bad = [f"{total[status]:,} {name}" for status, name in ENDINGS.items() if total[status]]
    if not bad:
        return f"{said}, none timed out or failed."
    methods = figures.in_order(failed[failed > 0].index)
    each = ", ".join(f"{figures.label(method)} {failed[method]:,}" for method in methods)
    return f"{said}, {listing(bad)} (by method: {each}); the last section lists them."


def scores_of(rows: pd.DataFrame, protocol: str, metric: str | None = None) -> pd.DataFrame:
    return statistics.score_table(rows, statistics.group_keys(protocol), metric)


def compared(scores: pd.DataFrame) -> pd.DataFrame:
    """The columns that can be compared, in the paper's order."""
    if scores.empty:
        return scores
    return scores[figures.in_order(statistics.comparable(scores, always=[CRUMB, "case D"]))]


def left_out(scores: pd.DataFrame) -> list[Block]:
    """What the ranks do not show: incomplete groups, and methods with too few runs."""
    if scores.empty:
        return ["No run ended well: there is nothing to rank."]
    kept, notes = compared(scores), []
    incomplete = len(scores) - len(statistics.complete(kept))
    if incomplete:
        groups = counted(len(scores), "group")
        notes.append(f"Left out: {incomplete:,} of {groups}, which lack a compared method.")
    absent = [figures.label(method) for method in scores if method not in kept]
    if absent:
        notes.append(f"Not ranked, as fewer than half of the groups have it: {listing(absent)}.")
    return [" ".join(notes)] if notes else []


def rank_table(
    scores: pd.DataFrame,
    caption: str,
    published: Mapping[str, paper.Rank] | None = None,
    reference: str = CRUMB,
) -> Table:
    """Mean rank ± SEM, wins, and the tests against the reference over groups and data sets."""
    kept = compared(scores)
    summary = statistics.rank_summary(kept)
    groups = statistics.rank_comparisons(kept, reference)
    sets = statistics.dataset_comparisons(kept, reference)
    pairs = zip(summary["mean"], summary["sem"], strict=True)
    cells = {
        "Method": [figures.label(method) for method in summary.index],
        "mean rank": best(summary["mean"], [plus_minus(*pair) for pair in pairs], lower=True),
    }
    theirs = [(published or {}).get(method) for method in summary.index]
    if published:
        cells["paper mean rank"] = [plus_minus(*one[:2]) if one else NOTHING for one in theirs]
    cells["wins"] = [fixed(won, 1) for won in summary["wins"]]
    record = f"won / tied / lost by {figures.label(reference).split(':')[0]}"
    each = [groups.get(method) for method in summary.index]
    cells[record] = [one.record if one else NOTHING for one in each]
    cells["p adj."] = [p_value(one.p_adjusted) if one else NOTHING for one in each]
    if published:
        cells["paper p adj."] = [one.p_adjusted or NOTHING if one else NOTHING for one in theirs]
    over_sets = [sets.get(method) for method in summary.index]
    cells["p adj., data sets"] = [p_value(o.p_adjusted) if o else NOTHING for o in over_sets]
    full = statistics.complete(kept)
    count = full.index.get_level_values("dataset").nunique()
    about = f"({counted(len(full), 'group')}, {counted(count, 'data set')})"
    return Table(f"{caption} {about}", cells)


def rank_bars(name: str, scores: pd.DataFrame, caption: str) -> Figure | None:
    """Mean rank with its 95 % interval, best on top."""
    summary = statistics.rank_summary(compared(scores))
    if not summary["count"].any():
        return None
    looks = [figures.look(method) for method in summary.index]
    labels, colours, _ = zip(*looks, strict=True)
    height = 0.75 + 0.31 * len(summary)
    picture = figures.panel(
        "Mean rank", lambda axes: figures.bars(axes, summary, labels, colours), 5.4, height
    )
    return Figure(name, caption, [picture])


def ranks_by_model(rows: pd.DataFrame, protocol: str, published: Any = None) -> list[Table]:
    """The rank table of each model, where there are several."""
    models = per_model(rows) if rows["model"].nunique() > 1 else []
    found = {model: scores_of(rows[rows["model"] == model], protocol) for model in models}
    return [
        rank_table(scores, f"Ranks with {model} alone", published)
        for model, scores in found.items()
        if not scores.empty
    ]


def metric_table(rows: pd.DataFrame, caption: str) -> Table | None:
    """Means of all metrics over the data sets that every compared method has.

    RMSEs of several sets have no common scale, so R² stands for regression.
    """
    found = {}
    for metric, name in METRICS.items():
        means = statistics.per_dataset(rows, metric)
        full = statistics.complete(means, statistics.comparable(means))
        if len(full):
            found[f"{name} ({len(full)} sets)"] = full.mean(), metric in statistics.LOWER_IS_BETTER
    if not found:
        return None
    methods = figures.in_order({method for means, _ in found.values() for method in means.index})
    cells = {"Method": [figures.label(method) for method in methods]}
    for name, (means, lower) in found.items():
        values = means.reindex(methods).round(4)
        cells[name] = best(values, [fixed(value, 4) for value in values], lower)
    return Table(caption, cells)


def dataset_table(rows: pd.DataFrame, metric: str, over: str = "seeds") -> Table | None:
    """One line for each data set, the best in bold."""
    means = statistics.per_dataset(rows, metric)
    if means.empty:
        return None
    means = means[figures.in_order(means.columns)].round(12 if metric == "rmse" else 4)
    lower = metric in statistics.LOWER_IS_BETTER
    show = small if metric == "rmse" else lambda value: fixed(value, 4)
    lines = [best(line, [show(value) for value in line], lower) for line in means.to_numpy(float)]
    columns = zip(*lines, strict=True)
    labels = [figures.label(method) for method in means.columns]
    sizes = rows.groupby("dataset")["N"].max()
    cells = {
        "Data set": [code(name) for name in means.index],
        "N": [whole(sizes[name]) for name in means.index],
        **dict(zip(labels, map(list, columns), strict=True)),
    }
    title = METRICS.get(metric, "RMSE")
    return Table(
        f"{title[0].upper()}{title[1:]} of each data set, mean over {over}", cells, long=True
    )


def time_columns(means: pd.DataFrame) -> dict[str, list[str]]:
    """Seconds of selection, of passes and of both, and the share of selection."""
    shares = means["plan_seconds"] / means["seconds"].where(means["seconds"] > 0)
    return {
        "selection, s": [seconds(value) for value in means["plan_seconds"]],
        "passes, s": [seconds(value) for value in means["pass_seconds"]],
        "all, s": [seconds(value) for value in means["seconds"]],
        "selection, %": [fixed(100 * share, 0) for share in shares],
    }


def per_model(rows: pd.DataFrame) -> list[str]:
    return sorted(str(model) for model in rows["model"].unique() if model)
