"""Answers follow the rows: turn the rows round, and the answers turn."""

from __future__ import annotations

import bench_rows
import pytest

from crumb.bench.report import learned
from crumb.bench.report.blocks import Heading
from crumb.bench.report.results import as_frame


@pytest.fixture(scope="module")
def maker():
    return bench_rows.Maker(12, 4, 3)


def swapped(rows, one, other):
    names = {one: other, other: one}
    return [{**row, "method": names.get(row["method"], row["method"])} for row in rows]


def ordered(rows):
    """The same runs, with scores in the paper's order in every group."""
    place = {method: index for index, method in enumerate(bench_rows.FIVE)}
    return [
        {
            **r,
            "accuracy": r["accuracy"] and 0.9 - 0.01 * place[r["method"]],
            "rmse": r["rmse"] and 5 + place[r["method"]],
        }
        for r in rows
    ]


def test_the_order_is_that_of_the_rows(maker):
    rows = ordered(maker.main())
    answers = learned.order(as_frame(rows))
    assert answers[0].startswith(
        "**Yes**, by mean rank over 47 groups: Full context 1.00, kNN per query 2.00, CRUMB 3.00"
    )
    assert any(answer.startswith("CRUMB is clearly ahead of Uniform: better in 47, equal in 0") for answer in answers)
    turned = learned.order(as_frame(swapped(rows, "crumb", "uniform")))
    assert turned[0].startswith("**Not entirely**")
    assert any(answer.startswith("CRUMB is clearly behind Uniform") for answer in turned)


def test_lost_sets_are_named(maker):
    rows = ordered(maker.main())
    assert learned.losses(as_frame(rows)) == ["On **none of 16**, in the mean over seeds."]
    for row in rows:
        if row["dataset"] == "classes_03" and row["method"] == "crumb":
            row["accuracy"] = 0.85  # uniform has 0.86
    first, *common = learned.losses(as_frame(rows))
    assert first == "On **1 of 16**, in the mean over seeds: `classes_03` (−1.00 points)."
    assert any(answer.startswith(f"Median pool: {maker.size['classes_03']:,} rows where it loses") for answer in common)
    assert "By task: classification 1 of 12, regression 0 of 4." in common


def test_the_trend_of_the_lead_is_tested(maker):
    rows = bench_rows.Maker(3, 1, 8).drift()
    classes, numbers, paper = learned.drift_lead(as_frame(rows))
    assert classes.startswith("Classification: **It grows**")
    assert numbers.startswith("Regression: **It grows**")
    assert paper == "The paper: +4.9 points at τ = 0, +17.1 at τ = 1."
    turned = learned.drift_lead(as_frame([{**row, "tau": 1 - row["tau"]} for row in rows]))
    assert "**It shrinks**" in turned[0]
    assert learned.drift_lead(as_frame(swapped(rows, "micp", "knn"))[:0]) == []


def test_match_and_score(maker):
    rows = maker.rff()
    clusters, *rest = learned.match_and_score(as_frame(rows))
    assert clusters.startswith("**Yes**, over the clusters of `rff`")
    turned = [{**row, "cluster_mmd2": [-value for value in row["cluster_mmd2"]]} for row in rows]
    assert learned.match_and_score(as_frame(turned))[0].startswith("**No, the reverse**")
    assert any(answer.startswith("Exact kernel against random features: MMD²") for answer in rest)
    assert any(answer.startswith("B = 1 against B = 50: MMD²") for answer in rest)


def test_time_and_break_even(maker):
    answers = learned.time(as_frame(maker.complexity() + maker.main()))
    assert answers[0].startswith("**embedded on cpu:**")
    assert any("Mean run in `main`: Full context" in answer for answer in answers)


def test_challengers_win_lose_or_neither(maker):
    rows = maker.main()
    crumb = [row for row in rows if row["method"] == "crumb"]
    better = [
        {
            **r,
            "method": "crumb+new",
            "accuracy": r["accuracy"] and r["accuracy"] + 0.1,
            "rmse": r["rmse"] and r["rmse"] - 1,
        }
        for r in crumb
    ]
    same = [{**row, "method": "crumb+same"} for row in crumb]
    first, second = learned.challengers(as_frame(rows + better + same))
    assert first.startswith("`crumb+new` **wins**: better on 16, equal on 0, worse on 0 of 16 data sets, +10.00")
    assert second.startswith("`crumb+same` does not differ clearly: better on 0, equal on 16")
    assert learned.challengers(as_frame(rows)) == []


def test_only_questions_with_rows_are_asked(maker):
    section = learned.section(as_frame(maker.drift()))
    assert [block.text for block in section.blocks if isinstance(block, Heading)] == [
        "Does the lead over MICP grow with drift?"
    ]
    assert (
        "none of the questions"
        in learned.section(as_frame(maker.large()[:1]).assign(seconds=float("nan"))).blocks[0].text
    )
