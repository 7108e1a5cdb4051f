"""Failures: listed where there are any."""

from __future__ import annotations

from experiment_rows import cells, of_kind, rows

from experiments.report import failures
from experiments.report.blocks import Table


def test_without_failures_there_is_no_such_section():
    table = rows("main", {"crumb": [0.9, 0.8]})
    assert failures.blocks(table) == []
    table.loc[0, ["status", "message"]] = ["timeout", "300 s"]
    counts, each = of_kind(failures.blocks(table), Table)
    assert cells(counts) == [["main", "timed out", "1", "1"]]
    assert cells(each) == [["main", "timed out", "`d0`", "m", "CRUMB", "300 s", "1"]]
