"""Complexity: powers and break-even, on times made for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from experiment_rows import column, rows, titled

from experiments.report import complexity


def timed(method: str, seconds: dict[int, float]) -> pd.DataFrame:
    parts = [
        rows("complexity", {method: [0.5]}, device="cpu", n=10, N=size, seconds=value)
        for size, value in seconds.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_growth_is_read_from_the_large_end():
    table = timed("full", {10: 5.0, 100: 5.0, 1_000: 1.0, 10_000: 100.0, 100_000: 10_000.0})
    assert complexity.growth(table, "N", "seconds") == pytest.approx(2.0)
    assert np.isnan(complexity.growth(table.iloc[:1], "N", "seconds"))


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
    at, seen = complexity.break_even(table)
    assert at == pytest.approx(expected[0])
    assert seen == expected[1]
    shown = titled(complexity.blocks(table), "Where CRUMB overtakes")
    assert column(shown, "CRUMB is faster from N ≈") == [said]
