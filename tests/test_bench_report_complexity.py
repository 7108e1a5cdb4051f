"""Complexity: powers and break-even, on times made for it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bench_rows import rows

from crumb.bench.report import complexity


def timed(method: str, seconds: dict[int, float]) -> pd.DataFrame:
    return pd.concat(
        [
            rows("complexity", {method: [0.5]}, device="cpu", n=10, seconds=value).assign(N=float(n))
            for n, value in seconds.items()
        ],
        ignore_index=True,
    )


def test_growth_is_read_from_the_large_end():
    table = timed("full", {10: 5.0, 100: 5.0, 1_000: 1.0, 10_000: 100.0, 100_000: 10_000.0})
    assert complexity.growth(table, "N", "seconds") == pytest.approx(2.0)
    assert np.isnan(complexity.growth(table.iloc[:1], "N", "seconds"))


@pytest.mark.parametrize(
    ("crumb", "full", "expected"),
    [
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 10.0}, (1_000.0, True)),
        ({100: 1.0, 10_000: 1.0}, {100: 2.0, 10_000: 10.0}, (100.0, True)),
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 0.5}, (10_000.0, False)),
    ],
)
def test_break_even(crumb, full, expected):
    table = pd.concat([timed("crumb", crumb), timed("full", full)], ignore_index=True)
    at, seen = complexity.break_even(table)
    assert at == pytest.approx(expected[0])
    assert seen == expected[1]
    (sentence,) = complexity.break_even_sentences(table)
    assert ("not faster" in sentence) == (not seen)
