"""Paired comparisons: counts and means by hand."""

from __future__ import annotations

import pandas as pd

from experiments.paired import comparison


def test_better_and_worse_are_counted_by_the_sign_of_the_metric() -> None:
    means = pd.DataFrame({"base": [0.5, 0.5, 0.5, 0.5], "other": [0.6, 0.7, 0.4, 0.5]})
    more = comparison(means, "base", "other", 1)
    assert more.startswith("  other: 0.5500, better 2, worse 1 of 4 data sets, p = ")
    less = comparison(means, "base", "other", -1)
    assert "better 1, worse 2 of 4" in less
    assert comparison(means, "base", "base", 1).endswith("better 0, worse 0 of 4 data sets, p = 1")
