"""Failures: listed where there are any."""

from __future__ import annotations

from bench_rows import cells, of_kind, rows

from crumb.bench.report import failures
from crumb.bench.report.blocks import Table


def test_without_failures_there_is_no_such_section():
    table = rows("main", {"crumb": [0.9, 0.8]})
    assert failures.section(table) is None
    table.loc[0, ["status", "message"]] = ["timeout", "300 s"]
    section = failures.section(table)
    counts, each = of_kind(section, Table)
    assert cells(counts) == [["main", "timed out", "1", "1"]]
    assert cells(each) == [["main", "timed out", "`d0`", "m", "CRUMB", "1", "300 s"]]
