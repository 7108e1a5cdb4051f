"""Random features: names of variants, gaps to exact herding, exact against random features."""

from __future__ import annotations

import pandas as pd
import pytest
from experiment_rows import column, rows, titled

from experiments.report import rff


def variants(scores: dict[tuple[str, int | None, int | None], list[float]]) -> pd.DataFrame:
    parts = [rows("rff", {name: each}, D=D, B=B) for (name, D, B), each in scores.items()]
    return pd.concat(parts, ignore_index=True)


def test_variants_are_named_by_what_they_are():
    table = variants({("rff D=64 B=50", 64, 50): [0.5], ("exact B=1", None, 1): [0.5],
                      ("centroid", None, None): [0.5]})  # fmt: skip
    assert list(rff.with_variants(table)["method"]) == [
        "D = 64, B = 50",
        "exact, B = 1",
        "centroid",
    ]


def test_gaps_are_measured_from_exact_herding_with_single_rows():
    table = variants({("e", None, 1): [0.8, 0.7], ("e", None, 10): [0.81, 0.7],
                      ("r", 64, 50): [0.78, 0.71], ("centroid", None, None): [0.6, 0.7]})  # fmt: skip
    found = rff.gaps_to_exact(rff.with_variants(table))
    assert list(found.columns) == ["exact, B = 10", "D = 64, B = 50", "centroid"]
    assert sorted(found["D = 64, B = 50"]) == pytest.approx([-2.0, 1.0])
    shown = titled(rff.blocks(table), "All variants")
    gaps = dict(zip(column(shown, "Variant"), column(shown, "gap, points"), strict=True))
    assert gaps["D = 64, B = 50"] == "−0.50 ± 1.50"
    within = dict(zip(column(shown, "Variant"), column(shown, "% within ±1"), strict=True))
    assert (within["D = 64, B = 50"], within["exact, B = 10"], within["Centroid-NN"]) == (
        "50",
        "100",
        "50",
    )
    exact, batches = titled(rff.blocks(table), "Two kinds of runs").lines
    assert exact[:2] == ("exact kernel", "random features")
    assert exact[6] == "1 / 0 / 1"
    assert batches[:2] == ("B = 1", "B = 50")
    assert rff.gaps_to_exact(rff.with_variants(variants({("centroid", None, None): [0.8]}))).empty
