"""Factorial: what each part adds."""

from __future__ import annotations

import pytest
from bench_rows import rows

from crumb.bench.report import factorial


def test_effects_of_the_four_cases():
    table = rows("factorial", {"case A": [0.5], "case B": [0.52], "case C": [0.55], "case D": [0.7]}, n=500)
    found = factorial.effects(table, "accuracy").loc["d0"]
    assert found.to_dict() == pytest.approx({"clusters": 2.0, "herding": 5.0, "both": 20.0, "interaction": 13.0})
    assert factorial.effects(table[table["method"] != "case B"], "accuracy").empty
