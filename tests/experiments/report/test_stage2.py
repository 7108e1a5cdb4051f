"""Variants of stage 2, and MMD² against score."""

from __future__ import annotations

import pandas as pd
import pytest
from experiment_rows import column, rows, titled

from experiments.report import stage2


def variants(scores: dict[tuple[str, int | None, int | None], list[float]]) -> pd.DataFrame:
    parts = [rows("rff", {name: each}, D=D, B=B) for (name, D, B), each in scores.items()]
    return pd.concat(parts, ignore_index=True)


def test_variants_are_named_by_what_they_are():
    table = variants({("rff D=64 B=50", 64, 50): [0.5], ("exact B=1", None, 1): [0.5],
                      ("centroid", None, None): [0.5]})  # fmt: skip
    assert list(stage2.with_variants(table)["method"]) == [
        "D = 64, B = 50",
        "exact, B = 1",
        "centroid",
    ]


def test_gaps_are_measured_from_exact_herding_with_single_rows():
    table = variants({("e", None, 1): [0.8, 0.7], ("e", None, 10): [0.81, 0.7],
                      ("r", 64, 50): [0.78, 0.71],
                      ("centroid", None, None): [0.6, 0.7]})  # fmt: skip
    found = stage2.gaps_to_exact(stage2.with_variants(table))
    assert list(found.columns) == ["exact, B = 10", "D = 64, B = 50", "centroid"]
    assert sorted(found["D = 64, B = 50"]) == pytest.approx([-2.0, 1.0])
    shown = titled(stage2.rff(table), "All variants")
    gaps = dict(zip(column(shown, "Variant"), column(shown, "gap, points"), strict=True))
    assert gaps["D = 64, B = 50"] == "−0.50 ± 1.50"
    within = dict(zip(column(shown, "Variant"), column(shown, "% within ±1"), strict=True))
    assert (within["D = 64, B = 50"], within["exact, B = 10"], within["Centroid-NN"]) == (
        "50",
        "100",
        "50",
    )
    exact, batches = titled(stage2.rff(table), "Two kinds of runs").lines
    assert exact[:2] == ("exact kernel", "random features")
    assert exact[6] == "1 / 0 / 1"
    assert batches[:2] == ("B = 1", "B = 50")
    assert stage2.gaps_to_exact(
        stage2.with_variants(variants({("centroid", None, None): [0.8]}))
    ).empty


def test_a_better_match_that_scores_better_correlates_negatively():
    table = rows("rff", {"a": [0.9, 0.5], "b": [0.8, 0.6], "c": [0.7, 0.7]})
    table["mmd2"] = table["method"].map({"a": 0.1, "b": 0.2, "c": 0.3})
    assert stage2.correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0, "d1": 1.0})
    (line,) = titled(stage2.match_and_score(table), "Correlation").lines
    assert line[:5] == ("`rff`", "runs", "0.00 ± 1.00", "0.00", "1 / 0 / 1")
    assert line[-2:] == ("−1.00 `d0`", "1.00 `d1`")


def test_clusters_are_compared_with_themselves_only():
    """An easy cluster that is easy to match must not look like an effect of the match."""
    table = rows("rff", {"a": [0.5], "b": [0.5], "c": [0.5]})
    table["cluster_queries"] = [[5, 5]] * 3
    table["cluster_mmd2"] = [[0.1, 1.1], [0.2, 1.2], [0.3, 1.3]]
    table["cluster_score"] = [[0.1, 0.7], [0.2, 0.8], [0.3, 0.9]]
    assert stage2.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": 1.0})
    table["cluster_score"] = [[0.3, 0.9], [0.2, 0.8], [0.1, 0.7]]
    assert stage2.cluster_correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0})
    table["cluster_queries"] = [[5, 5], [4, 6], [3, 7]]  # other clusters: nothing to compare
    assert stage2.cluster_correlations(table, "rff").empty
