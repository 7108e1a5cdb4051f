"""Factorial: what each part adds."""

from __future__ import annotations

import pytest
from experiment_rows import rows

from experiments.report import factorial


def test_effects_of_the_four_cases():
    cases = {"case A": [0.5], "case B": [0.52], "case C": [0.55], "case D": [0.7]}
    table = rows("factorial", cases, n=500)
    found = factorial.effects(table, "accuracy").loc["d0"]
    assert found.tolist() == pytest.approx([2.0, 5.0, 20.0, 13.0])  # clusters, herding, both, rest
    assert factorial.effects(table[table["method"] != "case B"], "accuracy").empty
