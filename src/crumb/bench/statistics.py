"""From rows of results to ranks, wins, intervals and tests.

Everything starts from a *score table*: one line a group (a data set, model, seed and what else a protocol varies), one
column a method, the score turned so that higher is better. Ranks and tests use complete groups only, those in which all
compared methods ended well: a method that timed out on the hard groups must not gain from their absence. How many
groups that leaves out is always told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

RANKED_BY = {"classification": "accuracy", "regression": "rmse"}
HIGHER_IS_BETTER = {"accuracy": True, "auc": True, "log_loss": False, "rmse": False, "r2": True}
STATUSES = ("ok", "timeout", "error", "missing")
GROUP = ("dataset", "task", "model", "seed", "N", "T")
# What a protocol varies besides. Not K, and n only where it is swept: methods to be compared have their own, or none.
ALSO_IN_GROUP = {"consistency": ("p",), "drift": ("tau",), "factorial": ("n",)}
DIGITS = 12  # scores closer than that are ties, not differences of rounding
COMPARABLE = 0.5  # a method with fewer of the groups than this would make most groups incomplete


def group_keys(protocol: str) -> list[str]:
    return [*GROUP, *ALSO_IN_GROUP.get(protocol, ())]


def ok_rows(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["status"] == "ok"]


def goodness(rows: pd.DataFrame, metric: str | None = None) -> pd.Series:
    """The score of each row, higher is better; by default accuracy for classes and −RMSE for numbers."""
    values = pd.Series(np.nan, index=rows.index, dtype=float)
    for task in RANKED_BY:
        name = metric or RANKED_BY[task]
        here = rows["task"] == task
        values[here] = rows.loc[here, name].astype(float) * (1 if HIGHER_IS_BETTER[name] else -1)
    return values


def score_table(
    rows: pd.DataFrame, keys: Sequence[str], metric: str | None = None, columns: str = "method"
) -> pd.DataFrame:
    """Groups × methods, higher is better, NaN where there is no row that ended well. Repeated runs are averaged."""
    good = ok_rows(rows)
    values = goodness(good, metric)
    good, values = good[values.notna()], values[values.notna()]
    if good.empty:
        return pd.DataFrame(index=pd.Index([], name="group"), dtype=float)
    grouped = good.assign(_score=values).groupby([*keys, columns], dropna=False, observed=True)["_score"].mean()
    return grouped.unstack(columns).round(DIGITS)


def comparable(scores: pd.DataFrame, always: Iterable[str] = ()) -> list[str]:
    """Methods with at least half of the groups, and those named if they have any."""
    share = scores.notna().mean()
    named = set(always)
    return [method for method in scores.columns if share[method] >= COMPARABLE or (method in named and share[method])]


def shared_rows(rows: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Rows of complete groups: means over them compare methods on the same work, whoever timed out on the rest."""
    keys = group_keys(protocol)
    scores = score_table(rows, keys)
    if scores.empty:
        return ok_rows(rows).iloc[:0]
    methods = comparable(scores)
    good = ok_rows(rows)
    return good[good["method"].isin(methods)].merge(complete(scores, methods).index.to_frame(index=False), on=keys)


def complete(scores: pd.DataFrame, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """The groups that have a score of each of these methods."""
    wanted = list(scores.columns) if methods is None else [method for method in methods if method in scores]
    return scores[wanted].dropna()


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """1 is best; ties share the average of their places. Over complete groups only."""
    return complete(scores).rank(axis=1, ascending=False, method="average")


def wins(scores: pd.DataFrame) -> pd.Series:
    """Groups in which a method is best; several that are best share the win."""
    full = complete(scores)
    best = full.eq(full.max(axis=1), axis=0)
    return best.div(best.sum(axis=1), axis=0).sum()


@dataclass(frozen=True)
class Summary:
    """Mean, its standard error, and the 95 % interval of Student's t."""

    count: int
    mean: float
    sem: float
    low: float
    high: float


def summarise(values: Iterable[float]) -> Summary:
    array = np.asarray(list(values), dtype=float)
    array = array[np.isfinite(array)]
    if len(array) == 0:
        return Summary(0, np.nan, np.nan, np.nan, np.nan)
    mean = float(array.mean())
    if len(array) == 1:
        return Summary(1, mean, np.nan, np.nan, np.nan)
    sem = float(stats.sem(array))
    reach = sem * float(stats.t.ppf(0.975, len(array) - 1))
    return Summary(len(array), mean, sem, mean - reach, mean + reach)


def summary_frame(table: pd.DataFrame) -> pd.DataFrame:
    """One line a column of the table: count, mean, sem, low, high."""
    return pd.DataFrame({name: vars(summarise(table[name])) for name in table.columns}).T.astype({"count": int})


def rank_summary(scores: pd.DataFrame) -> pd.DataFrame:
    """One line a method: mean rank ± SEM with its interval, and wins; best first."""
    placed = ranks(scores)
    frame = summary_frame(placed)
    frame["wins"] = wins(scores)
    return frame.sort_values("mean", kind="stable")


@dataclass(frozen=True)
class Comparison:
    """Two methods over the same groups; a positive difference favours the first."""

    method: str
    other: str
    groups: int
    won: int
    tied: int
    lost: int
    difference: float
    p: float
    p_adjusted: float


def wilcoxon(differences: Iterable[float]) -> float:
    """Two-sided signed-rank test of paired differences; 1 where none differs from nought."""
    array = np.asarray(list(differences), dtype=float)
    array = array[np.isfinite(array)]
    if not np.any(array):
        return 1.0
    return float(stats.wilcoxon(array).pvalue)


def bonferroni(p: float, tests: int) -> float:
    return min(1.0, p * max(1, tests))


def compare(scores: pd.DataFrame, method: str, other: str, tests: int = 1) -> Comparison:
    """Wilcoxon's test on the differences of two columns, over the groups that have both."""
    pair = scores[[method, other]].dropna()
    difference = pair[method] - pair[other]
    p = wilcoxon(difference)
    return Comparison(
        method,
        other,
        len(pair),
        int((difference > 0).sum()),
        int((difference == 0).sum()),
        int((difference < 0).sum()),
        float(difference.mean()) if len(pair) else np.nan,
        p,
        bonferroni(p, tests),
    )


def compare_with(scores: pd.DataFrame, reference: str) -> list[Comparison]:
    """The reference against each other column; as many tests are corrected for as there are other columns."""
    others = [method for method in scores.columns if method != reference]
    return [compare(scores, reference, other, len(others)) for other in others]


def rank_comparisons(scores: pd.DataFrame, reference: str) -> list[Comparison]:
    """As the paper tests: paired ranks of the groups, so that accuracies and RMSEs of any scale count alike.

    Wins are counted on the ranks, hence on the scores: a better score is a better rank.
    """
    return compare_with((-ranks(scores)).round(DIGITS), reference)


def dataset_comparisons(scores: pd.DataFrame, reference: str) -> list[Comparison]:
    """The same on the mean rank of each data set: seeds of one data set are no independent witnesses."""
    means = (-ranks(scores)).groupby(level="dataset").mean()
    return compare_with(means.round(DIGITS), reference)


def per_dataset(rows: pd.DataFrame, metric: str, columns: str = "method") -> pd.DataFrame:
    """Data sets × methods: the mean of a metric as it is, over all runs that ended well."""
    good = ok_rows(rows)
    good = good[good[metric].notna()]
    if good.empty:
        return pd.DataFrame(dtype=float)
    return good.groupby(["dataset", columns], observed=True)[metric].mean().unstack(columns)


def outcomes(rows: pd.DataFrame, columns: str = "method") -> pd.DataFrame:
    """One line a method: how many runs ended in which way."""
    counts = rows.groupby([columns, "status"], observed=True).size().unstack("status", fill_value=0)
    return counts.reindex(columns=list(STATUSES), fill_value=0)


def spearman(x: Iterable[float], y: Iterable[float]) -> float:
    """Rank correlation; NaN where either side does not vary."""
    pair = pd.DataFrame({"x": list(x), "y": list(y)}).dropna()
    if len(pair) < 3 or pair["x"].nunique() < 2 or pair["y"].nunique() < 2:
        return float("nan")
    return float(stats.spearmanr(pair["x"], pair["y"]).statistic)
