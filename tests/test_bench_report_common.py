"""Shared parts: ranks, wins and tests in one table; what is left out is told."""

from __future__ import annotations

from bench_rows import cells, rows

from crumb.bench import statistics
from crumb.bench.report import common, words


def test_rank_tables_hold_ranks_wins_and_tests():
    table = rows("main", {"crumb": [0.9, 0.8, 0.7], "uniform": [0.8, 0.8, 0.6], "full": [0.95, 0.9, 0.65]})
    scores = statistics.score_table(table, statistics.group_keys("main"))
    found = {row[0]: row[1:] for row in cells(common.rank_table(scores, "x"))}
    assert found["Full context"][:3] == ["1.333 ± 0.333", "2.0", "1 / 0 / 2"]
    assert found["CRUMB"][:3] == ["1.833 ± 0.441", "1.0", "–"]
    assert found["Uniform"][:3] == ["2.833 ± 0.167", "0.0", "2 / 1 / 0"]
    by_hand = statistics.rank_comparisons(scores, "crumb")
    assert found["Uniform"][3] == words.p_value(next(one.p_adjusted for one in by_hand if one.other == "uniform"))


def test_what_the_ranks_leave_out_is_told():
    table = rows("main", {"crumb": [0.9] * 4, "micp": [0.8] * 4, "knn": [0.8] * 4})
    table.loc[table["method"].eq("knn") & table["dataset"].ne("d0"), "status"] = "timeout"
    table.loc[(table["method"] == "micp") & (table["dataset"] == "d3"), "status"] = "error"
    scores = statistics.score_table(table, statistics.group_keys("main"))
    (text,) = common.left_out(scores)
    assert text.text == (
        "Left out: 1 of 4 groups, which lack a compared method; "
        "not ranked, as fewer than half of the groups have it: kNN per query."
    )
