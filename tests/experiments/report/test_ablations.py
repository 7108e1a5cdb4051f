"""K and n, herding against its rivals, what each part adds, variants, and MMD² against score."""

from __future__ import annotations

import experiment_rows
import pandas as pd
import pytest
from experiment_rows import column, rows, titled

from experiments.report import ablations, blocks
from experiments.report.results import as_frame


def test_normalised_scores_run_from_the_worst_setting_to_the_best():
    table = pd.concat(
        [
            rows("clusters", {"crumb": [0.5, 2.0]}, K=1, n=10).assign(seed=0),
            rows("clusters", {"crumb": [0.6, 2.0]}, K=5, n=10).assign(seed=0),
            rows("clusters", {"crumb": [0.9, 2.0]}, K=20, n=10).assign(seed=0),
        ],
        ignore_index=True,
    )
    found = ablations.normalised(ablations.with_share(table), "K")
    assert found.set_index("K")["score"].to_dict() == pytest.approx({1: 0.0, 5: 0.25, 20: 1.0})
    assert set(found["dataset"]) == {"d0"}  # on d1 no setting differs


def test_the_two_sweeps_are_told_apart():
    table = ablations.with_share(as_frame(experiment_rows.Maker(2, 1, 2).clusters()))
    assert sorted(blocks.sweep(table, "K", "share")["K"].unique()) == [1, 5, 10, 20, 30]
    assert blocks.sweep(table, "K", "share")["share"].unique() == [0.1]
    assert sorted(blocks.sweep(table, "share", "K")["share"].unique()) == [
        0.02,
        0.05,
        0.1,
        0.2,
        0.5,
    ]


def test_each_method_has_sweeps_of_its_own():
    paper_s = experiment_rows.Maker(2, 0, 1).clusters()
    better = [
        {**row, "method": "crumb exact", "accuracy": row["accuracy"] + 0.1} for row in paper_s
    ]
    alone, both = (ablations.clusters(as_frame(each)) for each in (paper_s, better + paper_s))
    assert alone[::2] == both[:4:2]  # tables; the figures between them are drawn anew
    added = titled(both, "K varied, n = 0.1 N, CRUMB")
    before = [float(value.strip("*")) for value in column(alone[0], "accuracy")]
    now = [float(value.strip("*")) for value in column(added, "accuracy")]
    assert now == pytest.approx([value + 0.1 for value in before])
    names = [block.name for block in both if isinstance(block, blocks.Figure)]
    assert len(set(names)) == len(names) == 4


def test_advantages_of_each_kernel():
    table = pd.concat(
        [
            rows("retrieval", {"crumb": [0.9, 0.8]}, kernel="exact"),
            rows("retrieval", {"crumb": [0.7, 0.8]}, kernel="rff"),
            rows("retrieval", {"centroid": [0.8, 0.8], "voronoi": [0.6, 0.9]}),
        ],
        ignore_index=True,
    )
    exact = ablations.advantages(table, "exact").set_index(["rival", "dataset"])["lead"]
    assert exact.to_dict() == pytest.approx(
        {
            ("centroid", "d0"): 10,
            ("centroid", "d1"): 0,
            ("voronoi", "d0"): 30,
            ("voronoi", "d1"): -10,
        }
    )
    assert ablations.advantages(table, "rff")["lead"].iloc[0] == pytest.approx(-10)
    shown = titled(ablations.retrieval(table), "Advantage")
    assert [line[0] for line in shown.lines] == ["exact", "exact", "rff", "rff"]
    assert shown.lines[1][2:7] == ("Voronoi-Uniform", "m", "+10.00 ± 20.00", "+10.00", "1 / 0 / 1")


def test_effects_of_the_four_cases():
    cases = {"case A": [0.5], "case B": [0.52], "case C": [0.55], "case D": [0.7]}
    table = rows("factorial", cases, n=500)
    found = ablations.effects(table, "accuracy").loc["d0"]
    assert found.tolist() == pytest.approx([2.0, 5.0, 20.0, 13.0])  # clusters, herding, both, rest
    assert ablations.effects(table[table["method"] != "case B"], "accuracy").empty


def variants(scores: dict[tuple[str, int | None, int | None], list[float]]) -> pd.DataFrame:
    parts = [rows("rff", {name: each}, D=D, B=B) for (name, D, B), each in scores.items()]
    return pd.concat(parts, ignore_index=True)


def test_variants_are_named_by_what_they_are():
    table = variants({("rff D=64 B=50", 64, 50): [0.5], ("exact B=1", None, 1): [0.5],
                      ("centroid", None, None): [0.5]})  # fmt: skip
    assert list(ablations.with_variants(table)["method"]) == [
        "D = 64, B = 50",
        "exact, B = 1",
        "centroid",
    ]


def test_gaps_are_measured_from_exact_herding_with_single_rows():
    table = variants({("e", None, 1): [0.8, 0.7], ("e", None, 10): [0.81, 0.7],
                      ("r", 64, 50): [0.78, 0.71],
                      ("centroid", None, None): [0.6, 0.7]})  # fmt: skip
    found = ablations.gaps_to_exact(ablations.with_variants(table))
    assert list(found.columns) == ["exact, B = 10", "D = 64, B = 50", "centroid"]
    assert sorted(found["D = 64, B = 50"]) == pytest.approx([-2.0, 1.0])
    shown = titled(ablations.rff(table), "All variants")
    gaps = dict(zip(column(shown, "Variant"), column(shown, "gap, points"), strict=True))
    assert gaps["D = 64, B = 50"] == "−0.50 ± 1.50"
    within = dict(zip(column(shown, "Variant"), column(shown, "% within ±1"), strict=True))
    assert (within["D = 64, B = 50"], within["exact, B = 10"], within["Centroid-NN"]) == (
        "50",
        "100",
        "50",
    )
    exact, batches = titled(ablations.rff(table), "Two kinds of runs").lines
    assert exact[:2] == ("exact kernel", "random features")
    assert exact[6] == "1 / 0 / 1"
    assert batches[:2] == ("B = 1", "B = 50")
    assert ablations.gaps_to_exact(
        ablations.with_variants(variants({("centroid", None, None): [0.8]}))
    ).empty


def test_a_better_match_that_scores_better_correlates_negatively():
    table = rows("rff", {"a": [0.9, 0.5], "b": [0.8, 0.6], "c": [0.7, 0.7]})
    table["mmd2"] = table["method"].map({"a": 0.1, "b": 0.2, "c": 0.3})
    assert ablations.correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0, "d1": 1.0})
    (line,) = titled(ablations.match_and_score(table), "Correlation").lines
    assert line[:5] == ("`rff`", "runs", "0.00 ± 1.00", "0.00", "1 / 0 / 1")
    assert line[-2:] == ("−1.00 `d0`", "1.00 `d1`")


def test_clusters_are_compared_with_themselves_only():
    """An easy cluster that is easy to match must not look like an effect of the match."""
    table = rows("rff", {"a": [0.5], "b": [0.5], "c": [0.5]})
    table["cluster_queries"] = [[5, 5]] * 3
    table["cluster_mmd2"] = [[0.1, 1.1], [0.2, 1.2], [0.3, 1.3]]
    table["cluster_score"] = [[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]]
    assert ablations.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": 1.0})
    table["cluster_score"] = [[0.3, 0.9], [0.2, 0.8], [0.1, 0.7]]
    assert ablations.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0})
    table["cluster_queries"] = [[5, 5], [4, 6], [3, 7]]  # other clusters: nothing to compare
    assert ablations.cluster_correlations(table, "rff").empty
