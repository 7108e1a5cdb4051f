"""From rows of results to ranks, wins, intervals and tests.

Everything starts from a *score table*: one line for each group (a data set, model, seed and what
else a protocol varies), one column for each method, higher is better. Ranks and tests use complete
groups only, in which all compared methods ended well: a method that timed out on the hard groups
must not gain from their absence. The report always says how many groups that leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

RANKED_BY = {"classification": "accuracy", "regression": "rmse"}
LOWER_IS_BETTER = ("log_loss", "rmse")
STATUSES = ("ok", "timeout", "error", "missing")
GROUP = ("dataset", "task", "model", "seed", "N", "T")
# What a protocol varies besides. Not K, and n only where it is swept: methods differ in these.
ALSO_IN_GROUP = {"consistency": ("p",), "drift": ("tau",), "factorial": ("n",)}
DIGITS = 12  # scores that agree so far are ties, not differences of rounding
COMPARABLE = 0.5  # a method with a smaller share of the groups would leave most groups incomplete


def group_keys(protocol: str) -> list[str]:
    return [*GROUP, *ALSO_IN_GROUP.get(protocol, ())]


def ok_rows(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["status"] == "ok"]


def goodness(rows: pd.DataFrame, metric: str | None = None) -> pd.Series:
    """The score of each row, higher is better; by default accuracy or −RMSE, by task."""
    values = pd.Series(np.nan, index=rows.index, dtype=float)
    for task in RANKED_BY:
        name, here = metric or RANKED_BY[task], rows["task"] == task
        sign = -1 if name in LOWER_IS_BETTER else 1
        values[here] = sign * rows.loc[here, name].astype(float)
    return values


def score_table(
    rows: pd.DataFrame, keys: Sequence[str], metric: str | None = None, columns: str = "method"
) -> pd.DataFrame:
    """Groups × methods, NaN where no run ended well. Repeated runs are averaged.

    Without runs it is empty, with the levels of its groups.
    """
    good = ok_rows(rows)
    good = good.assign(_score=goodness(good, metric)).dropna(subset="_score")
    if good.empty:
        return pd.DataFrame(index=pd.MultiIndex.from_frame(good[[*keys]]), dtype=float)
    means = good.groupby([*keys, columns], dropna=False, observed=True)["_score"].mean()
    return means.unstack(columns).round(DIGITS)


def comparable(scores: pd.DataFrame, always: Iterable[str] = ()) -> list[str]:
    """Methods with at least half of the groups, and those in ``always`` if they have any."""
    share = scores.notna().mean()
    return [
        method
        for method in scores.columns
        if share[method] >= COMPARABLE or (method in set(always) and share[method])
    ]


def shared_rows(rows: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Rows of complete groups: means over them compare methods on the same work."""
    keys, good = group_keys(protocol), ok_rows(rows)
    scores = score_table(rows, keys)
    if scores.empty:
        return good.iloc[:0]
    methods = comparable(scores)
    groups = complete(scores, methods).index.to_frame(index=False)
    return good[good["method"].isin(methods)].merge(groups, on=keys)


def complete(scores: pd.DataFrame, methods: Sequence[str] | None = None) -> pd.DataFrame:
    """The groups that have a score of each of these methods; none if a method is not there."""
    return scores.reindex(columns=scores.columns if methods is None else list(methods)).dropna()


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """1 is best; ties share the average of their places. Over complete groups only."""
    return complete(scores).rank(axis=1, ascending=False, method="average")


def wins(scores: pd.DataFrame) -> pd.Series:
    """Groups in which a method is best; several that are best share the win."""
    full = complete(scores)
    best = full.eq(full.max(axis=1), axis=0)
    return best.div(best.sum(axis=1), axis=0).sum()


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """A line for each column: count, mean, standard error, 95 % interval of Student's t."""
    found = table.agg(["count", "mean", "sem"]).T
    reach = found["sem"] * stats.t.ppf(0.975, found["count"] - 1)
    return found.assign(low=found["mean"] - reach, high=found["mean"] + reach)


def rank_summary(scores: pd.DataFrame) -> pd.DataFrame:
    """A line for each method: mean rank ± SEM with its interval, and wins; best first."""
    found = summarise(ranks(scores)).assign(wins=wins(scores))
    return found.sort_values("mean", kind="stable")


class Comparison(NamedTuple):
    """Two methods over the same groups; a positive difference favours the first."""

    groups: int
    won: int
    tied: int
    lost: int
    difference: float
    p: float
    p_adjusted: float

    @property
    def record(self) -> str:
        return f"{self.won} / {self.tied} / {self.lost}" if self.groups else "–"


NONE = Comparison(0, 0, 0, 0, np.nan, np.nan, np.nan)


def wilcoxon(differences: Iterable[float]) -> float:
    """Two-sided signed-rank test of paired differences; 1 where none differs from 0."""
    array = np.asarray(list(differences), dtype=float)
    array = array[np.isfinite(array)].round(DIGITS)
    return float(stats.wilcoxon(array).pvalue) if np.any(array) else 1.0


def compare(scores: pd.DataFrame, method: str, other: str, tests: int = 1) -> Comparison:
    """Wilcoxon's test on the differences of two columns, with Bonferroni's correction."""
    pair = complete(scores, [method, other])
    difference = (pair[method] - pair[other]).round(DIGITS)
    won, lost = int((difference > 0).sum()), int((difference < 0).sum())
    p = wilcoxon(difference)
    adjusted = min(1.0, p * max(1, tests))
    mean = float(difference.mean()) if len(pair) else np.nan
    return Comparison(len(pair), won, len(pair) - won - lost, lost, mean, p, adjusted)


def compare_with(scores: pd.DataFrame, reference: str) -> dict[str, Comparison]:
    """The reference against each other column, corrected for the number of other columns."""
    if reference not in scores:
        return {}
    others = [method for method in scores.columns if method != reference]
    return {other: compare(scores, reference, other, len(others)) for other in others}


def rank_comparisons(scores: pd.DataFrame, reference: str) -> dict[str, Comparison]:
    """As the paper tests: paired ranks of the groups, so that every scale counts alike."""
    return compare_with(-ranks(scores), reference)


def dataset_ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean ranks of the data sets: seeds of one data set are not independent."""
    return ranks(scores).groupby(level="dataset").mean()


def dataset_comparisons(scores: pd.DataFrame, reference: str) -> dict[str, Comparison]:
    """The tests of ``rank_comparisons`` over data sets."""
    return {} if scores.empty else compare_with(-dataset_ranks(scores), reference)


def per_dataset(rows: pd.DataFrame, metric: str, columns: str = "method") -> pd.DataFrame:
    """Data sets × methods: the mean of a metric as it is, over all runs that ended well."""
    good = ok_rows(rows).dropna(subset=metric)
    if good.empty:
        return pd.DataFrame(dtype=float)
    return good.groupby(["dataset", columns], observed=True)[metric].mean().unstack(columns)


def outcomes(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each method: how many runs ended in which way."""
    return pd.crosstab(rows["method"], rows["status"]).reindex(columns=STATUSES, fill_value=0)


def spearman(x: Iterable[float], y: Iterable[float]) -> float:
    """Rank correlation; NaN where either side does not vary."""
    pair = pd.DataFrame({"x": list(x), "y": list(y)}).dropna()
    if len(pair) < 3 or pair.nunique().min() < 2:
        return float("nan")
    return float(stats.spearmanr(pair["x"], pair["y"]).statistic)
