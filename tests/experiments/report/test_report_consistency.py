"""Consistency: medals go by mean rank."""

from __future__ import annotations

import pandas as pd

from experiments.report import consistency


def test_medals_go_by_mean_rank_and_are_shared():
    means = pd.DataFrame({"a": [1.0, 2.0, 1.5], "b": [2.0, 1.5, 1.5], "c": [3.0, 2.5, 3.0]})
    assert consistency.medals(means).tolist() == [[0, 1, 2], [1, 0, 2], [0, 0, 2]]
