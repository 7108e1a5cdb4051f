"""Random features: names of variants, gaps to exact herding."""

from __future__ import annotations

import numpy as np
import pytest
from bench_rows import rows

from crumb.bench.report import rff


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
