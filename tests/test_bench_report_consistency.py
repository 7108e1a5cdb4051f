"""Consistency: medals on every data set and model."""

from __future__ import annotations

import bench_rows
from bench_rows import of_kind

from crumb.bench.report import consistency
from crumb.bench.report.blocks import Figure
from crumb.bench.report.results import as_frame


def test_medals_go_by_mean_rank():
    table = as_frame(bench_rows.Maker(2, 0, 2).consistency())
    section = consistency.section(table)
    medals = next(block for block in of_kind(section, Figure) if block.name == "consistency-medals")
    assert len(medals.panels) == 2
    for panel in medals.panels:
        assert sum(panel.svg.count(colour) for colour in consistency.MEDALS) == 6
        assert panel.svg.count(consistency.MEDALS[0]) >= 2
