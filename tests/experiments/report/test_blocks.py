"""Shared parts: ranks, wins and tests in one table; what is left out is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
from experiment_rows import column, rows, titled
from scipy import stats

from experiments.report import blocks, numbers


def test_rank_tables_hold_ranks_wins_and_tests():
    methods = {"crumb": [0.9, 0.8, 0.7], "uniform": [0.8, 0.8, 0.6], "full": [0.95, 0.9, 0.65]}
    scores = blocks.scores_of(rows("main", methods), "main")
    found = {line[0]: line[1:] for line in blocks.rank_table(scores, "x").lines}
    assert found["Full context"][:3] == ("**1.333 ± 0.333**", "2.0", "1 / 0 / 2")
    assert found["CRUMB, as in the paper"] == ("1.833 ± 0.441", "1.0", "–", "–", "–")
    assert found["Uniform"][:3] == ("2.833 ± 0.167", "0.0", "2 / 1 / 0")
    by_hand = stats.wilcoxon([2 - 3, 2.5 - 2.5, 1 - 3]).pvalue  # ranks of the three data sets
    assert found["Uniform"][3] == numbers.p_value(min(1, 2 * by_hand))


def test_what_the_ranks_leave_out_is_told():
    table = rows("main", {"crumb": [0.9] * 4, "micp": [0.8] * 4, "knn": [0.8] * 4})
    table.loc[table["method"].eq("knn") & table["dataset"].ne("d0"), "status"] = "timeout"
    table.loc[(table["method"] == "micp") & (table["dataset"] == "d3"), "status"] = "error"
    assert blocks.left_out(blocks.scores_of(table, "main")) == (
        "Left out: 1 of 4 groups, which lack a compared method. "
        "Not ranked, as fewer than half of the groups have it: kNN per query."
    )
    told = blocks.what_was_run(table, "main")
    assert told[-1] == (
        "12 runs: 8 ended well, 3 timed out, 1 failed (by method: kNN per query 3, MICP 1); "
        "the last section lists them."
    )
    assert column(titled(told, "What was run"), "here")[0] == "4 (4 classification)"


def test_means_are_over_the_sets_that_all_methods_have():
    table = rows("main", {"crumb": [0.9, 0.8, 0.4], "micp": [0.8, 0.9, 0.1]})
    table.loc[(table["method"] == "micp") & (table["dataset"] == "d2"), "status"] = "error"
    found = blocks.metric_table(table, table, "main").cells
    assert list(found["accuracy (2 sets)"]) == ["**0.8500**", "**0.8500**"]
    assert list(found["rank by accuracy"]) == ["**1.50**", "**1.50**"]
    each = blocks.dataset_table(table, "accuracy")
    assert each.lines[0] == ("`d0`", "100", "**0.9000**", "0.8000")
    assert each.lines[2] == ("`d2`", "100", "0.4000", "–")


def test_an_effect_is_tested_against_nought():
    values = pd.Series([1.0, 2.0, -0.5, 0.0, np.nan])
    ((mean, median, signs, p),) = blocks.by_lines("x", blocks.EFFECT, [blocks.effect(values)]).lines
    assert (mean, median, signs) == ("+0.62 ± 0.55", "+0.50", "2 / 1 / 1")
    assert p == numbers.p_value(stats.wilcoxon([1.0, 2.0, -0.5, 0.0]).pvalue)
