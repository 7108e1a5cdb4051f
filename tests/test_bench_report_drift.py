"""Drift: leads have the right sign, and only what has a common scale is averaged."""

from __future__ import annotations

import bench_rows
import pytest
from bench_rows import of_kind, rows

from crumb.bench.report import drift
from crumb.bench.report.blocks import Table
from crumb.bench.report.results import as_frame


def test_a_lead_over_micp_is_positive_when_crumb_is_better():
    higher = drift.paired(rows("drift", {"crumb": [0.8], "micp": [0.5]}, tau=0.5), "classification")
    lower = drift.paired(rows("drift", {"crumb": [4.0], "micp": [5.0]}, "rmse", tau=0.5), "regression")
    assert higher[["lead", "relative"]].to_numpy().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert lower[["lead", "relative"]].to_numpy().tolist() == [[pytest.approx(1.0), pytest.approx(0.2)]]
    assert drift.paired(rows("drift", {"crumb": [0.8]}, tau=0.5), "classification").empty


def test_rmses_of_several_sets_are_not_averaged():
    maker = bench_rows.Maker(0, 2, 2)
    every = [
        maker.row("drift", name, kind, "m", method, seed, tau=tau)
        for name, kind, seed in maker.each()
        for tau in (0.0, 1.0)
        for method in ("crumb", "micp")
    ]
    table = next(t for t in of_kind(drift.section(as_frame(every)), Table) if t.caption.startswith("RMSE"))
    assert [column.name for column in table.columns] == ["τ", "lead, % of MICP", "p over runs"]
