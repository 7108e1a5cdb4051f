"""Retrieval: advantages of each kernel over both rivals."""

from __future__ import annotations

import pandas as pd
import pytest
from experiment_rows import rows, titled

from experiments.report import retrieval


def test_advantages_of_each_kernel():
    table = pd.concat(
        [
            rows("retrieval", {"crumb": [0.9, 0.8]}, kernel="exact"),
            rows("retrieval", {"crumb": [0.7, 0.8]}, kernel="rff"),
            rows("retrieval", {"centroid": [0.8, 0.8], "voronoi": [0.6, 0.9]}),
        ],
        ignore_index=True,
    )
    exact = retrieval.advantages(table, "exact").set_index(["rival", "dataset"])["lead"]
    assert exact.to_dict() == pytest.approx(
        {
            ("centroid", "d0"): 10,
            ("centroid", "d1"): 0,
            ("voronoi", "d0"): 30,
            ("voronoi", "d1"): -10,
        }
    )
    assert retrieval.advantages(table, "rff")["lead"].iloc[0] == pytest.approx(-10)
    shown = titled(retrieval.blocks(table), "Advantage")
    assert [line[0] for line in shown.lines] == ["exact", "exact", "rff", "rff"]
    assert shown.lines[1][2:7] == ("Voronoi-Uniform", "m", "+10.00 ± 20.00", "+10.00", "1 / 0 / 1")
