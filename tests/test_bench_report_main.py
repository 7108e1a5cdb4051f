"""Main results: leads of data sets, and other ways beside the paper's five."""

from __future__ import annotations

import bench_rows
import pandas as pd
import pytest
from bench_rows import cells, of_kind, rows

from crumb.bench.report import main
from crumb.bench.report.blocks import Table
from crumb.bench.report.results import as_frame


def test_leads_are_points_or_per_cent_of_the_rmse():
    found = main.dataset_leads(
        pd.concat(
            [
                rows("main", {"crumb": [0.9, 0.7], "uniform": [0.8, 0.75]}),
                rows("main", {"crumb": [8.0], "uniform": [10.0]}, "rmse").assign(dataset="r"),
            ],
            ignore_index=True,
        )
    )
    assert found["lead"].to_dict() == pytest.approx({"d1": -5.0, "d0": 10.0, "r": 20.0})


def test_other_ways_do_not_touch_the_ranks_of_the_papers_five():
    five = bench_rows.Maker(3, 1, 2).main()
    more = five + [{**row, "method": "crumb+K=50"} for row in five if row["method"] == "crumb"]
    tables = [of_kind(main.section(as_frame(each)), Table) for each in (five, more)]
    ranks = [next(t for t in each if t.caption.startswith("Ranks by")) for each in tables]
    assert cells(ranks[0]) == cells(ranks[1])
    assert any(table.caption.startswith("Other ways against CRUMB") for table in tables[1])
