"""Statistics: as scipy says when called by hand, and whatever the order of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments import statistics as s

METHODS = ["crumb", "micp", "uniform"]
SCORES = [
    [0.90, 0.85, 0.80],
    [0.70, 0.75, 0.70],
    [0.95, 0.95, 0.95],
    [0.60, 0.50, 0.55],
    [0.88, 0.80, 0.84],
    [0.81, 0.82, 0.79],
    [0.77, 0.70, 0.71],
]


def make_rows(
    scores, methods=METHODS, task="classification", metric="accuracy", protocol="main"
) -> pd.DataFrame:
    rows = [
        {
            "protocol": protocol,
            "dataset": f"d{group % 4}",
            "task": task,
            "model": "embedded",
            "seed": group // 4,
            "N": 100.0,
            "T": 20.0,
            "method": method,
            "status": "ok",
            "accuracy": np.nan,
            "rmse": np.nan,
            "r2": np.nan,
            metric: score,
        }
        for group, line in enumerate(scores)
        for method, score in zip(methods, line, strict=True)
    ]
    return pd.DataFrame(rows)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    return s.score_table(rows, s.group_keys("main"))


def test_ranks_are_those_of_scipy():
    found = s.ranks(table(make_rows(SCORES)))
    by_hand = [stats.rankdata([-score for score in line]) for line in SCORES]
    expected = {(f"d{group % 4}", group // 4): line for group, line in enumerate(by_hand)}
    for index, line in found.iterrows():
        group = dict(zip(found.index.names, index, strict=True))
        np.testing.assert_array_equal(line[METHODS], expected[group["dataset"], group["seed"]])


def test_a_lower_rmse_ranks_higher_and_tasks_mix():
    rows = pd.concat(
        [
            make_rows([[0.9, 0.8, 0.7]]),
            make_rows([[3.0, 2.0, 1.0]], task="regression", metric="rmse"),
        ],
        ignore_index=True,
    )
    assert sorted(s.ranks(table(rows))["crumb"]) == [1, 3]


def test_mean_sem_and_interval_are_those_of_scipy():
    scores = table(make_rows(SCORES))
    found = s.rank_summary(scores)
    for method in METHODS:
        values = s.ranks(scores)[method]
        low, high = stats.t.interval(
            0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values)
        )
        np.testing.assert_allclose(
            found.loc[method, ["mean", "sem", "low", "high"]].astype(float),
            [values.mean(), stats.sem(values), low, high],
        )
    assert list(found["mean"]) == sorted(found["mean"])


def test_one_value_has_no_interval_and_none_has_no_mean():
    one = s.summarise(pd.DataFrame({"a": [0.5], "b": [np.nan]}))
    assert one["count"].to_dict() == {"a": 1, "b": 0}
    assert one.loc["a", "mean"] == 0.5
    assert one.loc["a", ["sem", "low", "high"]].isna().all()
    assert np.isnan(one.loc["b", "mean"])


def test_wins_are_shared_between_ties():
    found = s.wins(table(make_rows(SCORES)))
    assert found.sum() == pytest.approx(len(SCORES))
    assert found["crumb"] == pytest.approx(4 + 1 / 3)
    assert found["uniform"] == pytest.approx(1 / 3)


def test_wilcoxon_with_bonferroni_is_that_of_scipy():
    scores = table(make_rows(SCORES))
    placed = s.ranks(scores)
    for other, found in s.rank_comparisons(scores, "crumb").items():
        expected = stats.wilcoxon(placed["crumb"], placed[other]).pvalue
        assert found.p == pytest.approx(expected)
        assert found.p_adjusted == pytest.approx(min(1, 2 * expected))
        assert found.won == (placed["crumb"] < placed[other]).sum()
        assert found.lost == (placed["crumb"] > placed[other]).sum()
        assert found.won + found.tied + found.lost == found.groups == len(SCORES)
    raw = s.compare(scores, "crumb", "uniform")
    assert raw.p == pytest.approx(stats.wilcoxon([line[0] - line[2] for line in SCORES]).pvalue)
    assert raw.difference == pytest.approx(np.mean([line[0] - line[2] for line in SCORES]))


def test_data_sets_are_tested_on_their_mean_ranks():
    scores = table(make_rows(SCORES))
    means = s.ranks(scores).groupby(level="dataset").mean()
    found = s.dataset_comparisons(scores, "crumb")
    for other in ("micp", "uniform"):
        assert found[other].groups == 4
        assert found[other].p == pytest.approx(stats.wilcoxon(means["crumb"] - means[other]).pvalue)


def test_methods_that_never_differ_have_a_p_of_one():
    scores = table(make_rows([[0.5, 0.5, 0.5]] * 5))
    assert {one.p for one in s.rank_comparisons(scores, "crumb").values()} == {1.0}


def test_a_timed_out_run_costs_its_group_and_is_counted():
    rows = make_rows(SCORES)
    rows.loc[2, "status"] = "timeout"  # uniform in the first group
    assert len(s.ranks(table(rows))) == len(SCORES) - 1
    assert s.outcomes(rows).loc["uniform"].to_dict() == {
        "ok": 6,
        "timeout": 1,
        "error": 0,
        "missing": 0,
    }
    assert s.compare(table(rows), "crumb", "micp").groups == len(SCORES)  # both of these ended well


def test_a_method_that_hardly_ran_is_not_compared():
    rows = make_rows(SCORES)
    rows.loc[(rows["method"] == "uniform") & (rows.index > 6), "status"] = "timeout"
    scores = table(rows)
    assert s.comparable(scores) == ["crumb", "micp"]
    assert s.comparable(scores, always=["uniform"]) == METHODS
    assert len(s.complete(scores, ["crumb", "micp"])) == len(SCORES)


def test_rows_of_incomplete_groups_are_not_shared():
    rows = make_rows(SCORES).assign(N=np.nan)  # a size that is not known is the same size
    rows.loc[2, "status"] = "timeout"
    shared = s.shared_rows(rows, "main")
    assert len(shared) == 3 * (len(SCORES) - 1)
    assert not ((shared["dataset"] == "d0") & (shared["seed"] == 0)).any()
    assert s.shared_rows(rows.assign(status="error"), "main").empty


def test_differences_of_rounding_are_ties():
    scores = table(make_rows([[0.1 + 0.2, 0.3, 0.2]]))
    assert list(s.ranks(scores).iloc[0][["crumb", "micp"]]) == [1.5, 1.5]


def test_no_rows_give_empty_tables():
    empty = make_rows(SCORES).iloc[:0]
    assert s.ranks(table(empty)).empty
    assert s.per_dataset(empty, "accuracy").empty


def test_means_of_data_sets():
    found = s.per_dataset(make_rows(SCORES), "accuracy")
    assert found.loc["d0", "crumb"] == pytest.approx((0.90 + 0.88) / 2)
    assert s.per_dataset(make_rows(SCORES), "r2").empty


def test_other_metrics_rank_in_their_own_direction():
    rows = make_rows([[0.9, 0.8, 0.7]]).assign(log_loss=[0.3, 0.2, 0.1])
    scores = s.score_table(rows, s.group_keys("main"), "log_loss")
    assert list(s.ranks(scores).iloc[0][METHODS]) == [3, 2, 1]


def test_spearman_is_that_of_scipy():
    x, y = [1, 2, 3, 4, 5], [2, 1, 4, 3, 9]
    assert s.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert np.isnan(s.spearman([1, 1, 1, 1], [1, 2, 3, 4]))


LINES = st.lists(
    st.lists(st.integers(0, 6).map(lambda value: value / 7), min_size=4, max_size=4),
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=25)  # a busy machine is no failure
@given(LINES)
def test_ranks_of_a_group_sum_to_the_same(lines):
    methods = ["full", *METHODS]
    placed = s.ranks(table(make_rows(lines, methods)))
    np.testing.assert_allclose(placed.sum(axis=1), len(methods) * (len(methods) + 1) / 2)
    assert s.wins(table(make_rows(lines, methods))).sum() == pytest.approx(len(lines))


@settings(deadline=None, max_examples=25)  # a busy machine is no failure
@given(LINES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(lines, random):
    rows = make_rows(lines, ["full", *METHODS])
    order = list(range(len(rows)))
    random.shuffle(order)
    pd.testing.assert_frame_equal(
        s.rank_summary(table(rows)), s.rank_summary(table(rows.iloc[order]))
    )


@settings(deadline=None, max_examples=5)
@given(LINES)
def test_swapping_two_methods_swaps_wins_and_losses(lines):
    scores = table(make_rows(lines, ["full", *METHODS]))
    for one, other in (METHODS[:2], METHODS[1:]):
        there, back = s.compare(scores, one, other), s.compare(scores, other, one)
        assert (there.won, there.tied, there.lost) == (back.lost, back.tied, back.won)
        assert there.p == pytest.approx(back.p)
