"""Drift: leads and their trend. Complexity: powers and break-even, on times made for it."""

from __future__ import annotations

import experiment_rows
import numpy as np
import pandas as pd
import pytest
from experiment_rows import column, rows, titled

from experiments.report import conditions
from experiments.report.results import as_frame


def test_a_lead_over_micp_is_positive_when_crumb_is_better():
    classes = rows("drift", {"crumb": [0.8], "micp": [0.5]}, tau=0.5)
    higher = conditions.paired(classes, "classification")
    numbers = rows("drift", {"crumb": [4.0], "micp": [5.0]}, "rmse", tau=0.5)
    lower = conditions.paired(numbers, "regression")
    columns = ["lead", "relative"]
    assert higher[columns].to_numpy().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert lower[columns].to_numpy().tolist() == [[pytest.approx(1.0), pytest.approx(0.2)]]
    assert conditions.paired(classes[classes["method"] == "crumb"], "classification").empty


def test_the_trend_of_the_lead_is_a_slope_for_each_series():
    parts = [
        rows("drift", {"crumb": [0.5 + 0.1 * tau, 0.5 - 0.3 * tau], "micp": [0.5, 0.5]}, tau=tau)
        for tau in (0.0, 0.5, 1.0)
    ]
    table = pd.concat(parts, ignore_index=True)
    pair = conditions.paired(table, "classification")
    assert sorted(conditions.slopes(pair, "lead")) == pytest.approx([-30.0, 10.0])
    ours, theirs = titled(conditions.drift(table), "The lead over MICP").lines
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
    table = titled(conditions.drift(as_frame(every)), "RMSE")
    assert [column.name for column in table.columns] == ["τ", "lead, % of MICP", "p over runs"]


def timed(method: str, seconds: dict[int, float]) -> pd.DataFrame:
    parts = [
        rows("complexity", {method: [0.5]}, device="cpu", n=10, N=size, seconds=value)
        for size, value in seconds.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_growth_is_read_from_the_large_end():
    table = timed("full", {10: 5.0, 100: 5.0, 1_000: 1.0, 10_000: 100.0, 100_000: 10_000.0})
    assert conditions.growth(table, "N", "seconds") == pytest.approx(2.0)
    assert np.isnan(conditions.growth(table.iloc[:1], "N", "seconds"))


@pytest.mark.parametrize(
    ("crumb", "full", "expected", "said"),
    [
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 10.0}, (1_000.0, True), "1,000"),
        ({100: 1.0, 10_000: 1.0}, {100: 2.0, 10_000: 10.0}, (100.0, True), "100"),
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 0.5}, (10_000.0, False), "> 10,000"),
    ],
)
def test_break_even(crumb, full, expected, said):
    table = pd.concat([timed("crumb", crumb), timed("full", full)], ignore_index=True)
    at, seen = conditions.break_even(table)
    assert at == pytest.approx(expected[0])
    assert seen == expected[1]
    shown = titled(conditions.complexity(table), "Where CRUMB overtakes")
    assert column(shown, "CRUMB is faster from N ≈") == [said]
