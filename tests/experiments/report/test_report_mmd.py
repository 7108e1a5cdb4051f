"""MMD² and score: correlated within what is comparable."""

from __future__ import annotations

import pytest
from experiment_rows import rows, titled

from experiments.report import mmd


def test_a_better_match_that_scores_better_correlates_negatively():
    table = rows("rff", {"a": [0.9, 0.5], "b": [0.8, 0.6], "c": [0.7, 0.7]})
    table["mmd2"] = table["method"].map({"a": 0.1, "b": 0.2, "c": 0.3})
    assert mmd.correlations(table, "rff").to_dict() == pytest.approx({"d0": -1.0, "d1": 1.0})
    (line,) = titled(mmd.blocks(table), "Correlation").lines
    assert line[:5] == ("`rff`", "runs", "0.00 ± 1.00", "0.00", "1 / 0 / 1")
    assert line[-2:] == ("−1.00 `d0`", "1.00 `d1`")


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
