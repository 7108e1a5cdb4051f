"""Large sets: wins of each model, and the test of CRUMB against MICP."""

from __future__ import annotations

import numpy as np
import pytest
from experiment_rows import rows
from scipy import stats

from experiments.report import common, large


def test_the_test_against_micp_is_scipy_s():
    crumb, micp = np.linspace(0.8, 0.9, 12), np.linspace(0.7, 0.75, 12)
    table = rows("large", {"crumb": list(crumb), "micp": list(micp)})
    scores = common.scores_of(table, "large")
    expected = stats.wilcoxon((crumb - micp).round(12)).pvalue
    assert large.against_micp(scores) == {"m": pytest.approx(expected)}
    assert large.against_micp(scores[["crumb"]]) == {}
    assert large.wins_by_model(scores).loc["m"].to_dict() == {"crumb": 12, "micp": 0}
