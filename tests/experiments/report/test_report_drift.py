"""Drift: leads have the right sign, their trend is tested, and no scales are mixed."""

from __future__ import annotations

import experiment_rows
import pandas as pd
import pytest
from experiment_rows import rows, titled

from experiments.report import drift
from experiments.report.results import as_frame


def test_a_lead_over_micp_is_positive_when_crumb_is_better():
    classes = rows("drift", {"crumb": [0.8], "micp": [0.5]}, tau=0.5)
    higher = drift.paired(classes, "classification")
    numbers = rows("drift", {"crumb": [4.0], "micp": [5.0]}, "rmse", tau=0.5)
    lower = drift.paired(numbers, "regression")
    columns = ["lead", "relative"]
    assert higher[columns].to_numpy().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert lower[columns].to_numpy().tolist() == [[pytest.approx(1.0), pytest.approx(0.2)]]
    assert drift.paired(classes[classes["method"] == "crumb"], "classification").empty


def test_the_trend_of_the_lead_is_a_slope_for_each_series():
    parts = [
        rows("drift", {"crumb": [0.5 + 0.1 * tau, 0.5 - 0.3 * tau], "micp": [0.5, 0.5]}, tau=tau)
        for tau in (0.0, 0.5, 1.0)
    ]
    table = pd.concat(parts, ignore_index=True)
    pair = drift.paired(table, "classification")
    assert sorted(drift.slopes(pair, "lead")) == pytest.approx([-30.0, 10.0])
    ours, theirs = titled(drift.blocks(table), "Does the lead").lines
    assert ours[:5] == ("classification", "accuracy points", "0.0", "−10.0", "−10.0 ± 20.0")
    assert theirs[2:4] == ("+4.9", "+17.1")


def test_rmses_of_several_sets_are_not_averaged():
    maker = experiment_rows.Maker(0, 2, 2)
    every = [
        maker.row("drift", name, kind, "m", method, seed, tau=tau)
        for name, kind, seed in maker.each()
        for tau in (0.0, 1.0)
        for method in ("crumb", "micp")
    ]
    table = titled(drift.blocks(as_frame(every)), "RMSE")
    assert [column.name for column in table.columns] == ["τ", "lead, % of MICP", "p over runs"]
