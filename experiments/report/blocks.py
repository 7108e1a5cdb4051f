"""What a section is made of, and the blocks that several sections share.

Text may hold two marks, ``**bold**`` and ```code```; everything else is taken literally. A table
without lines and a figure without panels are false, and left out.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments import statistics
from experiments.metrics import SCORES
from experiments.report import figures, paper
from experiments.report.numbers import NOTHING, code, column, counted, span

HOW = re.compile(r":(\+?[0-9pse][<>]?)$")  # at the end of a title, for ``numbers.column``
NUMBER = re.compile(r"\**[−+<>~]?\s?(\d|–)|$")
CRUMB = "crumb"  # the paper's configuration
METRICS = dict(zip(SCORES, ["accuracy", "ROC AUC", "log-loss", "RMSE", "R²"], strict=True))
ENDINGS = {"timeout": "timed out", "error": "failed", "missing": "could not be run"}
COSTS = {"plan_seconds": "selection, s:s", "pass_seconds": "passes, s:s", "seconds": "all, s:s"}
TITLES = COSTS | {
    "share": "selection, %:0",
    "contexts": "number of passes:1",
    "context_mean": "rows a context:0",
    "mmd2": "MMD²:e",
}
EFFECT = "mean ± SEM:+2 | median:+2 | sets + / 0 / − | p:p"  # of ``effect``


@dataclass(frozen=True)
class Table:
    caption: str
    cells: Mapping[str, Sequence[str]]  # by column; the first one names the lines
    long: bool = False  # folded away on the page, left out of the summary

    @property
    def numbers(self) -> list[bool]:
        """Columns in which every cell starts with a number stand to the right."""
        return [all(map(NUMBER.match, cells)) for cells in self.cells.values()]

    @property
    def lines(self) -> list[tuple[str, ...]]:
        return list(zip(*self.cells.values(), strict=True))

    def __bool__(self) -> bool:
        return bool(self.lines)


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    panels: Sequence[figures.Panel]

    def __bool__(self) -> bool:
        return bool(self.panels)


Block = str | Table | Figure


def table(caption: str, columns: Mapping[str, Iterable[Any]], long: bool = False) -> Table:
    """A table of a frame or dictionary: ``title:how`` says how a column of numbers is written."""
    cells = {}
    for name, values in columns.items():
        title, *how = HOW.split(TITLES.get(name, name))
        cells[title] = column(values, *how[:1])
    return Table(caption, cells, long)


def by_lines(caption: str, columns: str, lines: Sequence[Any], long: bool = False) -> Table:
    """A table from its lines, with the titles of the columns separated by bars."""
    titles = [title.strip() for title in columns.split("|")]
    return table(caption, dict(zip(titles, zip(*lines, strict=True), strict=False)), long)


def what_was_run(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """Ours beside the paper's: sets, models, seeds, sizes; then what was cut, and the failures."""
    scope, good = paper.SCOPES[protocol], statistics.ok_rows(rows)
    tried = rows if good.empty else good
    tasks = tried.groupby("task")["dataset"].nunique()
    kinds = ", ".join(f"{count} {task}" for task, count in tasks.items())
    clustered = tried["method"].isin([CRUMB, "case D"]) | tried["B"].notna()
    limited = tried[tried["method"] != "full"]
    shares = span((limited["n"] / limited["N"]).round(2))
    here = {
        "Data sets": f"{tried['dataset'].nunique()} ({kinds})",
        "Models": names(tried["model"]),
        "Seeds": str(tried["seed"].nunique()),
        "Pool rows N": span(tried["N"]),
        "Queries T": span(tried["T"]),
        "Context size n": f"{span(limited['n'])}; n / N = {shares}",
        "Clusters K": span(tried.loc[clustered, "K"]),
        "Device": names(tried["device"]),
    }
    caption = f"What was run: {protocol}, beside the paper's {scope['place']}"
    cuts = rows.loc[rows["drawn"] != "", "drawn"].value_counts()[:12]
    cut = ", ".join(f"{code(name)} ({counted(count, 'run')})" for name, count in cuts.items())
    beside = {"setting": here, "here": here.values(), "paper": map(scope.get, here)}
    return [table(caption, beside), f"**Cut:** {cut}." if cut else "", _endings(rows)]


def names(values: Iterable[str]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or NOTHING


def _endings(rows: pd.DataFrame) -> str:
    counts = statistics.outcomes(rows)
    total, failed = counts.sum(), counts.drop(columns="ok").sum(axis=1)
    bad = ", ".join(f"{total[each]:,} {said}" for each, said in ENDINGS.items() if total[each])
    methods = figures.in_order(failed[failed > 0].index)
    each = ", ".join(f"{figures.label(method)} {failed[method]:,}" for method in methods)
    ending = f"{bad} (by method: {each}); the last section lists them."
    ending = ending if bad else "none timed out or failed."
    return f"{counted(len(rows), 'run')}: {total['ok']:,} ended well, {ending}"


def scores_of(rows: pd.DataFrame, protocol: str, metric: str | None = None) -> pd.DataFrame:
    return statistics.score_table(rows, statistics.group_keys(protocol), metric)


def compared(scores: pd.DataFrame) -> pd.DataFrame:
    """The columns that can be compared, in the paper's order."""
    return scores[figures.in_order(statistics.comparable(scores, always=[CRUMB, "case D"]))]


def sweep(rows: pd.DataFrame, varied: str, other: str) -> pd.DataFrame:
    """The rows in which one setting varies, where the other stays as it is most often varied."""
    counts = rows.groupby(other)[varied].nunique()
    return rows[rows[other] == counts.idxmax()] if len(counts) else rows


def left_out(scores: pd.DataFrame) -> str:
    """What the ranks do not show: incomplete groups, and methods with too few runs."""
    kept, groups = compared(scores), counted(len(scores), "group")
    incomplete = len(scores) - len(kept.dropna())
    absent = ", ".join(figures.label(method) for method in scores if method not in kept)
    notes = {
        f"Left out: {incomplete:,} of {groups}, which lack a compared method.": incomplete,
        f"Not ranked, as fewer than half of the groups have it: {absent}.": absent,
    }
    return " ".join(note for note, needed in notes.items() if needed)


def rank_table(scores: pd.DataFrame, caption: str, reference: str = CRUMB,
               published: Mapping[str, paper.Rank] | None = None) -> Table:  # fmt: skip
    """Mean rank ± SEM, wins, and the tests against the reference over groups and data sets."""
    kept, lines = compared(scores), []
    summary, full = statistics.rank_summary(kept), kept.dropna()
    over_groups = statistics.rank_comparisons(kept, reference)
    over_sets = statistics.dataset_comparisons(kept, reference)
    for method, *rank, wins in summary[["mean", "sem", "wins"]].itertuples():
        groups, sets = (each.get(method, statistics.NONE) for each in (over_groups, over_sets))
        tests = (groups.record, groups.p_adjusted, sets.p_adjusted)
        *theirs, p = (published or {}).get(method, (math.nan, math.nan, NOTHING))
        lines.append((figures.label(method), tuple(rank), wins, *tests, tuple(theirs), p))
    versus = f"won / tied / lost by {figures.label(reference).split(':')[0]}"
    columns = f"Method | mean rank:3< | wins:1 | {versus} | p adj.:p | p adj., data sets:p"
    columns += " | paper rank | paper p adj." if published else ""
    over = counted(full.index.get_level_values("dataset").nunique(), "data set")
    return by_lines(f"{caption} ({counted(len(full), 'group')}, {over})", columns, lines)


def rank_bars(name: str, scores: pd.DataFrame, caption: str) -> Figure:
    """Mean rank with its 95 % interval, best on top."""
    summary = statistics.rank_summary(compared(scores))
    reach, shape = summary["high"] - summary["mean"], {"height": 0.75 + 0.29 * len(summary)}
    content = (summary["mean"], figures.colours(summary.index), reach.to_numpy())
    drawn = figures.panel("Mean rank", figures.bars, *content, **shape)
    return Figure(name, f"{caption} with 95 % intervals.", [drawn])


def rank_curves(name: str, scores: pd.DataFrame, levels: Mapping[str, str]) -> Figure:
    """Mean rank against each level of the groups that has several values, best on top."""
    placed = statistics.ranks(compared(scores))
    rows = placed.rename_axis("method", axis=1).stack().rename("rank").reset_index()
    labels = {"ylabel": "mean rank", "ylim": (placed.shape[1] + 0.1, 0.9), "legend": True}
    panels = [
        figures.panel("Mean rank", figures.curves, rows, level, "rank", True, xlabel=text, **labels)
        for level, text in levels.items()
        if rows[level].nunique() > 1
    ]
    return Figure(name, f"Mean rank against {' and '.join(levels)}, ± SEM.", panels)


def ranks_by_model(rows: pd.DataFrame, protocol: str) -> list[Block]:
    """The rank table of each model, where there are several."""
    found = {model: scores_of(part, protocol) for model, part in rows.groupby("model")}
    several = found if len(found) > 1 else {}
    return [rank_table(each, f"Ranks with {m} alone") for m, each in several.items() if len(each)]


def metric_table(rows: pd.DataFrame, ranked: pd.DataFrame, protocol: str) -> Table:
    """Means over the data sets that all compared methods have, and mean ranks of some methods."""
    methods = figures.in_order(statistics.ok_rows(rows)["method"])
    cells: dict[str, Iterable[Any]] = {"Method": map(figures.label, methods)}
    for metric in ("accuracy", "auc", "log_loss", "r2"):  # RMSEs of sets have no common scale
        means = statistics.per_dataset(rows, metric)
        means = statistics.complete(means, statistics.comparable(means))
        if len(means):
            name, sign = METRICS[metric], "<" if metric in statistics.LOWER_IS_BETTER else ">"
            placed = statistics.ranks(compared(scores_of(ranked, protocol, metric))).mean()
            cells[f"{name} ({len(means)} sets):4{sign}"] = means.mean().reindex(methods).round(4)
            cells[f"rank by {name}:2<"] = placed.reindex(methods)
    return table("Means over data sets, and mean ranks", cells)


def dataset_table(rows: pd.DataFrame, metric: str) -> Table:
    """A line for each data set, the best in bold."""
    how, digits = ("e<", 12) if metric == "rmse" else ("4>", 4)
    means, sizes = statistics.per_dataset(rows, metric), rows.groupby("dataset")["N"].max()
    means = means[figures.in_order(means.columns)].round(digits)
    lines = [(code(name), sizes[name], *column(line, how)) for name, *line in means.itertuples()]
    columns = " | ".join(["Data set", "N:0", *map(figures.label, means)])
    caption = f"{METRICS[metric]} of each data set, mean over its runs"
    return by_lines(caption, columns, lines, long=True)


def mean_costs(rows: pd.DataFrame, by: list[str], *more: str) -> pd.DataFrame:
    """Mean seconds of selection, of passes and of both, the share of selection, and more."""
    means = rows.groupby(by, dropna=False)[[*COSTS, *more]].mean()
    whole = means["seconds"].where(means["seconds"] > 0)
    means.insert(3, "share", 100 * means["plan_seconds"] / whole)
    return means


def effect(values: pd.Series) -> tuple[tuple[float, float], float, str, float]:
    """The columns of ``EFFECT``: differences of data sets, and Wilcoxon's test that they are 0."""
    found = values.dropna().round(statistics.DIGITS)
    signs = f"{(found > 0).sum()} / {(found == 0).sum()} / {(found < 0).sum()}"
    return (found.mean(), found.sem()), found.median(), signs, statistics.wilcoxon(found)
