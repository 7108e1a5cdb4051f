"""What the sections compute from rows, on tables small enough to check by hand."""

from __future__ import annotations

import bench_rows
import numpy as np
import pandas as pd
import pytest

from crumb.bench import statistics
from crumb.bench.report import (
    clusters,
    common,
    complexity,
    consistency,
    drift,
    factorial,
    failures,
    large,
    main,
    mmd,
    retrieval,
    rff,
    words,
)
from crumb.bench.report.blocks import Figure, Table, text_of
from crumb.bench.report.results import as_frame


def rows(protocol: str, scores: dict[str, list[float]], metric: str = "accuracy", **fields) -> pd.DataFrame:
    """One row a method and data set; ``fields`` are the same for all."""
    task = "classification" if metric in ("accuracy", "auc", "log_loss") else "regression"
    return as_frame(
        [
            {
                **{"protocol": protocol, "dataset": f"d{i}", "task": task, "model": "m", "method": method, "seed": 0},
                **{"status": "ok", "N": 100, "T": 10, metric: score},
                **fields,
            }
            for method, values in scores.items()
            for i, score in enumerate(values)
        ]
    )


def of_kind(section, kind):
    return [block for block in section.blocks if isinstance(block, kind)]


def cells(table: Table) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in table.rows]


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


def test_leads_are_points_or_per_cent_of_the_rmse():
    found = main.dataset_leads(
        pd.concat(
            [
                rows("main", {"crumb": [0.9, 0.7], "uniform": [0.8, 0.75]}),
                rows("main", {"crumb": [8.0], "uniform": [10.0]}, "rmse").assign(dataset="r"),
            ],
            ignore_index=True,
        )
    )
    assert found["lead"].to_dict() == pytest.approx({"d1": -5.0, "d0": 10.0, "r": 20.0})


def test_other_ways_do_not_touch_the_ranks_of_the_papers_five():
    five = bench_rows.Maker(3, 1, 2).main()
    more = five + [{**row, "method": "crumb+K=50"} for row in five if row["method"] == "crumb"]
    tables = [of_kind(main.section(as_frame(each)), Table) for each in (five, more)]
    ranks = [next(t for t in each if t.caption.startswith("Ranks by")) for each in tables]
    assert cells(ranks[0]) == cells(ranks[1])
    assert any(table.caption.startswith("Other ways against CRUMB") for table in tables[1])


def test_medals_go_by_mean_rank():
    table = as_frame(bench_rows.Maker(2, 0, 2).consistency())
    section = consistency.section(table)
    medals = next(block for block in of_kind(section, Figure) if block.name == "consistency-medals")
    assert len(medals.panels) == 2
    for panel in medals.panels:
        assert sum(panel.svg.count(colour) for colour in consistency.MEDALS) == 6
        assert panel.svg.count(consistency.MEDALS[0]) >= 2


def test_stars_follow_the_test():
    groups = 12
    clear = rows("large", {"crumb": list(np.linspace(0.8, 0.9, groups)), "micp": list(np.linspace(0.7, 0.75, groups))})
    scores = statistics.score_table(clear, statistics.group_keys("large"))
    assert large._stars(scores) == "**"
    assert large._stars(scores.iloc[:3]) == ""
    assert large._stars(scores[["crumb"]]) == ""


def test_a_lead_over_micp_is_positive_when_crumb_is_better():
    higher = drift.paired(rows("drift", {"crumb": [0.8], "micp": [0.5]}, tau=0.5), "classification")
    lower = drift.paired(rows("drift", {"crumb": [4.0], "micp": [5.0]}, "rmse", tau=0.5), "regression")
    assert higher[["lead", "relative"]].to_numpy().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert lower[["lead", "relative"]].to_numpy().tolist() == [[pytest.approx(1.0), pytest.approx(0.2)]]
    assert drift.paired(rows("drift", {"crumb": [0.8]}, tau=0.5), "classification").empty


def test_rmses_of_several_sets_are_not_averaged():
    maker = bench_rows.Maker(0, 2, 2)
    every = [
        maker.row("drift", name, kind, "m", method, seed, tau=tau)
        for name, kind, seed in maker.each()
        for tau in (0.0, 1.0)
        for method in ("crumb", "micp")
    ]
    table = next(t for t in of_kind(drift.section(as_frame(every)), Table) if t.caption.startswith("RMSE"))
    assert [column.name for column in table.columns] == ["τ", "lead, % of MICP", "p over runs"]


def test_normalised_scores_run_from_the_worst_setting_to_the_best():
    table = pd.concat(
        [
            rows("clusters", {"crumb": [0.5, 2.0]}, K=1, n=10).assign(seed=0),
            rows("clusters", {"crumb": [0.6, 2.0]}, K=5, n=10).assign(seed=0),
            rows("clusters", {"crumb": [0.9, 2.0]}, K=20, n=10).assign(seed=0),
        ],
        ignore_index=True,
    )
    found = clusters.normalised(clusters.with_share(table), "K")
    assert found.set_index("K")["score"].to_dict() == pytest.approx({1: 0.0, 5: 0.25, 20: 1.0})
    assert set(found["dataset"]) == {"d0"}  # on d1 no setting differs


def test_the_two_sweeps_are_told_apart():
    table = clusters.with_share(as_frame(bench_rows.Maker(2, 1, 2).clusters()))
    assert sorted(clusters.sweep_of_clusters(table)["K"].unique()) == [1, 5, 10, 20, 30]
    assert clusters.sweep_of_clusters(table)["share"].unique() == [0.1]
    assert sorted(clusters.sweep_of_budget(table)["share"].unique()) == [0.02, 0.05, 0.1, 0.2, 0.5]


def test_advantages_of_each_kernel():
    table = pd.concat(
        [
            rows("retrieval", {"crumb": [0.9, 0.8]}, kernel="exact"),
            rows("retrieval", {"crumb": [0.7, 0.8]}, kernel="rff"),
            rows("retrieval", {"centroid": [0.8, 0.8], "voronoi": [0.6, 0.9]}),
        ],
        ignore_index=True,
    )
    assert retrieval.kernels(table) == ["exact", "rff"]
    exact = retrieval.advantages(table, "exact").set_index(["rival", "dataset"])["lead"]
    assert exact.to_dict() == pytest.approx(
        {("centroid", "d0"): 10, ("centroid", "d1"): 0, ("voronoi", "d0"): 30, ("voronoi", "d1"): -10}
    )
    assert retrieval.advantages(table, "rff")["lead"].iloc[0] == pytest.approx(-10)


def test_effects_of_the_four_cases():
    table = rows("factorial", {"case A": [0.5], "case B": [0.52], "case C": [0.55], "case D": [0.7]}, n=500)
    found = factorial.effects(table, "accuracy").loc["d0"]
    assert found.to_dict() == pytest.approx({"clusters": 2.0, "herding": 5.0, "both": 20.0, "interaction": 13.0})
    assert factorial.effects(table[table["method"] != "case B"], "accuracy").empty


def test_variants_are_named_by_what_they_are():
    assert rff.variant("rff D=64 B=50", "rff", 64.0, 50.0) == "D = 64, B = 50"
    assert rff.variant("exact B=1", "exact", np.nan, 1.0) == "exact, B = 1"
    assert rff.variant("centroid", "", np.nan, np.nan) == "centroid"


def test_gaps_are_measured_from_exact_herding_with_the_smallest_batch():
    table = rows("rff", {"exact, B = 1": [0.8, 0.7], "exact, B = 10": [0.81, 0.7], "D = 64, B = 50": [0.78, 0.71]})
    found = rff.gaps_to_exact(table)
    assert list(found.columns) == ["D = 64, B = 50", "exact, B = 10"]
    assert sorted(found["D = 64, B = 50"]) == pytest.approx([-2.0, 1.0])
    assert rff.gaps_to_exact(rows("rff", {"centroid": [0.8]})).empty


def test_a_better_match_that_scores_better_correlates_negatively():
    scores = {"a": [0.9, 0.5], "b": [0.8, 0.6], "c": [0.7, 0.7]}
    matched = {"a": 0.1, "b": 0.2, "c": 0.3}
    table = rows("rff", scores)
    table["mmd2"] = table["method"].map(matched)
    assert mmd.correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0, "d1": 1.0})


def test_clusters_are_compared_with_themselves_only():
    """An easy cluster that is easy to match must not look like an effect of the match."""
    table = rows("rff", {"a": [0.5], "b": [0.5], "c": [0.5]})
    table["cluster_queries"] = [[5, 5]] * 3
    table["cluster_mmd2"] = [[0.1, 1.1], [0.2, 1.2], [0.3, 1.3]]
    table["cluster_score"] = [[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]]
    assert mmd.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": 1.0})
    table["cluster_score"] = [[0.3, 0.9], [0.2, 0.8], [0.1, 0.7]]
    assert mmd.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0})
    table["cluster_queries"] = [[5, 5], [4, 6], [3, 7]]  # other clusters: nothing to compare
    assert mmd.cluster_correlations(table, "rff").empty


def timed(method: str, seconds: dict[int, float]) -> pd.DataFrame:
    return pd.concat(
        [
            rows("complexity", {method: [0.5]}, device="cpu", n=10, seconds=value).assign(N=float(n))
            for n, value in seconds.items()
        ],
        ignore_index=True,
    )


def test_growth_is_read_from_the_large_end():
    table = timed("full", {10: 5.0, 100: 5.0, 1_000: 1.0, 10_000: 100.0, 100_000: 10_000.0})
    assert complexity.growth(table, "N", "seconds") == pytest.approx(2.0)
    assert np.isnan(complexity.growth(table.iloc[:1], "N", "seconds"))


@pytest.mark.parametrize(
    ("crumb", "full", "expected"),
    [
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 10.0}, (1_000.0, True)),
        ({100: 1.0, 10_000: 1.0}, {100: 2.0, 10_000: 10.0}, (100.0, True)),
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 0.5}, (10_000.0, False)),
    ],
)
def test_break_even(crumb, full, expected):
    table = pd.concat([timed("crumb", crumb), timed("full", full)], ignore_index=True)
    at, seen = complexity.break_even(table)
    assert at == pytest.approx(expected[0])
    assert seen == expected[1]
    (sentence,) = complexity.break_even_sentences(table)
    assert ("not faster" in sentence) == (not seen)


def test_without_failures_there_is_no_such_section():
    table = rows("main", {"crumb": [0.9, 0.8]})
    assert failures.section(table) is None
    table.loc[0, ["status", "message"]] = ["timeout", "300 s"]
    section = failures.section(table)
    counts, each = of_kind(section, Table)
    assert cells(counts) == [["main", "timed out", "1", "1"]]
    assert cells(each) == [["main", "timed out", "`d0`", "m", "CRUMB", "1", "300 s"]]
