"""K and n: normalised scores, and two sweeps in one set of rows."""

from __future__ import annotations

import experiment_rows
import pandas as pd
import pytest
from experiment_rows import rows

from experiments.report import clusters
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
    found = clusters.normalised(clusters.with_share(table), "K")
    assert found.set_index("K")["score"].to_dict() == pytest.approx({1: 0.0, 5: 0.25, 20: 1.0})
    assert set(found["dataset"]) == {"d0"}  # on d1 no setting differs


def test_the_two_sweeps_are_told_apart():
    table = clusters.with_share(as_frame(experiment_rows.Maker(2, 1, 2).clusters()))
    assert sorted(clusters.sweep(table, "K")["K"].unique()) == [1, 5, 10, 20, 30]
    assert clusters.sweep(table, "K")["share"].unique() == [0.1]
    assert sorted(clusters.sweep(table, "share")["share"].unique()) == [0.02, 0.05, 0.1, 0.2, 0.5]
