"""Parts that several sections share: what was run, how it ended, ranks beside the paper's, bars of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from crumb.bench import statistics
from crumb.bench.report import drawing, palette, paper, words
from crumb.bench.report.blocks import Block, Cell, Column, Figure, Table, Text, mark_best

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CRUMB = "crumb"


def what_was_run(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """Ours beside the paper's: sets, models, seeds, sizes; then what was cut, and how the runs ended."""
    return [_scope(rows, protocol), *_cuts(rows), *_endings(rows)]


def _scope(rows: pd.DataFrame, protocol: str) -> Table:
    scope = paper.SCOPES[protocol]
    tried = statistics.ok_rows(rows)
    tried = rows if tried.empty else tried
    sets = tried.groupby("task", dropna=False)["dataset"].nunique()
    kinds = ", ".join(f"{count} {task}" for task, count in sets.items())
    lines: list[tuple[str, str, str | None]] = [
        ("Data sets", f"{tried['dataset'].nunique()} ({kinds})", scope.datasets),
        ("Models", _names(tried["model"]), scope.models),
        ("Seeds", str(tried["seed"].nunique()), scope.seeds),
        ("Pool rows N", words.span(tried["N"]), scope.pool),
        ("Queries T", words.span(tried["T"]), scope.queries),
        ("Budget n", _budget(tried), scope.budget),
        (
            "Clusters K",
            words.span(tried.loc[tried["method"].isin([CRUMB, "case D"]) | tried["B"].notna(), "K"]),
            scope.clusters,
        ),
        ("Device", _names(tried["device"]), "A100 80 GB, 64 CPU cores"),
    ]
    return Table(
        f"What was run: {protocol}, beside the paper's {scope.place}",
        [Column("", number=False), Column("here", number=False), Column("paper", number=False, paper=True)],
        [[name, ours, theirs or "not said"] for name, ours, theirs in lines],
    )


def _names(values: pd.Series) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or words.NOTHING


def _budget(rows: pd.DataFrame) -> str:
    """A few values as they are; otherwise as shares of the pool."""
    limited = rows[(rows["method"] != "full") & rows["n"].notna()]
    if limited["n"].nunique() <= 6:
        return words.span(limited["n"])
    shares = (limited["n"] / limited["N"]).round(2)
    return f"{words.span(limited['n'])}; n / N = {words.span(shares)}"


def _cuts(rows: pd.DataFrame) -> list[Block]:
    notes = rows.loc[rows["drawn"] != "", "drawn"]
    if notes.empty:
        return []
    parts = [f"{words.code(note)} ({words.counted(count, 'run')})" for note, count in notes.value_counts().items()]
    return [Text(f"**Cut:** {words.listing(parts[:12])}{' and others' if len(parts) > 12 else ''}.")]


def _endings(rows: pd.DataFrame) -> list[Block]:
    counts = statistics.outcomes(rows)
    total = counts.sum()
    said = f"{words.counted(len(rows), 'run')}: {total['ok']:,.0f} ended well"
    bad = [
        f"{total[status]:,.0f} {name}"
        for status, name in (("timeout", "timed out"), ("error", "failed"), ("missing", "could not be run"))
        if total[status]
    ]
    if not bad:
        return [Text(f"{said}, none timed out or failed.")]
    by_method = [
        f"{palette.label(method)} {counts.loc[method].drop('ok').sum():,.0f}"
        for method in palette.in_order(counts.index)
        if counts.loc[method].drop("ok").sum()
    ]
    return [Text(f"{said}, {words.listing(bad)} (by method: {', '.join(by_method)}); the last section lists them.")]


def compared(scores: pd.DataFrame) -> pd.DataFrame:
    """The columns that can be compared, in the paper's order."""
    return scores[palette.in_order(statistics.comparable(scores, always=[CRUMB, "case D"]))] if len(scores) else scores


def left_out(scores: pd.DataFrame) -> list[Block]:
    """What the ranks do not show: incomplete groups, and methods with too few runs."""
    if scores.empty:
        return [Text("No run ended well: there is nothing to rank.")]
    kept = compared(scores)
    absent = [palette.label(method) for method in scores.columns if method not in kept.columns]
    incomplete = len(scores) - len(statistics.complete(kept))
    notes = []
    if incomplete:
        notes.append(f"left out: {incomplete:,} of {words.counted(len(scores), 'group')}, which lack a compared method")
    if absent:
        notes.append(f"not ranked, as fewer than half of the groups have it: {words.listing(absent)}")
    said = "; ".join(notes)
    return [Text(f"{said[0].upper()}{said[1:]}.")] if notes else []


def rank_table(
    scores: pd.DataFrame,
    caption: str,
    published: Mapping[str, paper.Rank] | None = None,
    reference: str = CRUMB,
) -> Table:
    """Mean rank ± SEM, wins, and the tests against the reference over groups and over data sets."""
    kept = compared(scores)
    summary = statistics.rank_summary(kept)
    published = published or {}
    over_groups = {one.other: one for one in statistics.rank_comparisons(kept, reference)} if reference in kept else {}
    over_sets = {one.other: one for one in statistics.dataset_comparisons(kept, reference)} if reference in kept else {}
    columns = [Column("Method", number=False), Column("mean rank")]
    if published:
        columns.append(Column("paper", paper=True))
    columns += [Column("wins"), Column("won / tied / lost by " + palette.label(reference).split(":")[0])]
    columns.append(Column("p adj."))
    if published:
        columns.append(Column("paper p adj.", paper=True))
    columns.append(Column("p adj., data sets"))
    ranked = mark_best(
        list(summary["mean"]),
        [words.plus_minus(line["mean"], line["sem"]) for _, line in summary.iterrows()],
        higher=False,
    )
    lines: list[list[Cell | str]] = []
    for method, rank in zip(summary.index, ranked, strict=True):
        line: list[Cell | str] = [palette.label(method), rank]
        theirs = published.get(method)
        if published:
            line.append(words.plus_minus(theirs.mean, theirs.sem) if theirs else words.NOTHING)
        one, whole = over_groups.get(method), over_sets.get(method)
        line.append(words.fixed(summary.loc[method, "wins"], 1))
        line.append(f"{one.won} / {one.tied} / {one.lost}" if one else words.NOTHING)
        line.append(words.p_value(one.p_adjusted) if one else words.NOTHING)
        if published:
            line.append(theirs.p_adjusted or words.NOTHING if theirs else words.NOTHING)
        line.append(words.p_value(whole.p_adjusted) if whole else words.NOTHING)
        lines.append(line)
    groups = len(statistics.complete(kept))
    sets = kept.index.get_level_values("dataset").nunique() if groups else 0
    return Table(f"{caption} ({words.counted(groups, 'group')}, {words.counted(sets, 'data set')})", columns, lines)


def rank_bars(
    name: str, title: str, scores: pd.DataFrame, caption: str, labels: Mapping[str, str] | None = None
) -> Figure:
    """Mean rank with its 95 % interval, best on top."""
    summary = statistics.rank_summary(compared(scores))
    labels = labels or {method: palette.label(method) for method in summary.index}

    def draw(axes: Axes) -> None:
        drawing.horizontal_bars(
            axes,
            [labels[method] for method in summary.index],
            summary["mean"],
            summary["low"],
            summary["high"],
            [palette.look(method).light for method in summary.index],
            "mean rank (1 is best)",
        )

    alt = "Mean ranks: " + ", ".join(f"{labels[m]} {summary.loc[m, 'mean']:.2f}" for m in summary.index)
    picture = drawing.panel(f"{name}-bars", title, alt, draw, height=0.75 + 0.31 * len(summary), width=5.4)
    return Figure(name, caption, [picture])


def metric_table(rows: pd.DataFrame, caption: str, methods: Sequence[str] | None = None) -> Table | None:
    """Means of all metrics over the data sets that every compared method has. RMSE has no common scale: only R²."""
    found: dict[str, pd.Series] = {}
    for metric in ("accuracy", "auc", "log_loss", "r2"):
        means = statistics.per_dataset(rows, metric)
        kept = [method for method in statistics.comparable(means) if methods is None or method in methods]
        both = statistics.complete(means, kept)
        if len(both):
            found[f"{metric}|{len(both)}"] = both.mean()
    if not found:
        return None
    names = {"accuracy": "accuracy", "auc": "ROC AUC", "log_loss": "log-loss", "r2": "R²"}
    frame = pd.DataFrame(found)
    frame = frame.loc[palette.in_order(frame.index)]
    cells = {}
    for key in frame.columns:
        higher = statistics.HIGHER_IS_BETTER[key.split("|")[0]]
        cells[key] = mark_best(list(frame[key].round(4)), [words.fixed(value, 4) for value in frame[key]], higher)
    titles = [f"{names[key.split('|')[0]]} ({key.split('|')[1]} sets)" for key in frame.columns]
    lines: list[list[Cell | str]] = [
        [palette.label(method), *(cells[key][index] for key in frame.columns)]
        for index, method in enumerate(frame.index)
    ]
    return Table(caption, [Column("Method", number=False), *(Column(title) for title in titles)], lines)


def dataset_table(rows: pd.DataFrame, metric: str, caption: str, digits: int = 4) -> Table | None:
    """One line a data set, the best in bold."""
    means = statistics.per_dataset(rows, metric)
    if means.empty:
        return None
    means = means[palette.in_order(means.columns)].round(digits if metric != "rmse" else 12)
    sizes = rows.groupby("dataset")["N"].max()
    higher = statistics.HIGHER_IS_BETTER[metric]
    show = words.small if metric == "rmse" else lambda value: words.fixed(value, digits)
    lines: list[list[Cell | str]] = [
        [words.code(name), words.whole(sizes[name]), *mark_best(list(line), [show(value) for value in line], higher)]
        for name, line in means.iterrows()
    ]
    columns = [Column("Data set", number=False), Column("N"), *(Column(palette.label(m)) for m in means.columns)]
    return Table(caption, columns, lines, long=True)


def per_model(rows: pd.DataFrame) -> list[str]:
    return sorted(str(model) for model in rows["model"].unique() if model)


def slug(*parts: object) -> str:
    """A name for ids: letters, digits and dashes."""
    text = "-".join(str(part) for part in parts).lower()
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text)


def only_known(*blocks: Block | None) -> list[Block]:
    return [block for block in blocks if block is not None]


def line_with_band(axes: Axes, x: np.ndarray, summary: pd.DataFrame, colour: str, marker: str) -> None:
    """A curve of means with ±1 SEM around it."""
    mean, sem = summary["mean"].to_numpy(float), np.nan_to_num(summary["sem"].to_numpy(float))
    axes.fill_between(x, mean - sem, mean + sem, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, marker=marker)
