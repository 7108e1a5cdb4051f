"""Large sets: stars where a test says so."""

from __future__ import annotations

import numpy as np
from bench_rows import rows

from crumb.bench import statistics
from crumb.bench.report import large


def test_stars_follow_the_test():
    groups = 12
    clear = rows("large", {"crumb": list(np.linspace(0.8, 0.9, groups)), "micp": list(np.linspace(0.7, 0.75, groups))})
    scores = statistics.score_table(clear, statistics.group_keys("large"))
    assert large._stars(scores) == "**"
    assert large._stars(scores.iloc[:3]) == ""
    assert large._stars(scores[["crumb"]]) == ""
