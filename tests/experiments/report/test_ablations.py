"""K and n, herding against its rivals, and what each part adds."""

from __future__ import annotations

import experiment_rows
import pandas as pd
import pytest
from experiment_rows import rows, titled

from experiments.report import ablations
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
    assert sorted(ablations.sweep(table, "K")["K"].unique()) == [1, 5, 10, 20, 30]
    assert ablations.sweep(table, "K")["share"].unique() == [0.1]
    assert sorted(ablations.sweep(table, "share")["share"].unique()) == [0.02, 0.05, 0.1, 0.2, 0.5]


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
