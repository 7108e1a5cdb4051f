"""Main results: leads of data sets, and other methods beside the paper's five."""

from __future__ import annotations

import experiment_rows
import pandas as pd
import pytest
from experiment_rows import cells, column, rows, titled
from scipy import stats

from experiments.report import main, numbers
from experiments.report.results import as_frame


def test_leads_are_points_or_per_cent_of_the_rmse():
    classes = rows("main", {"crumb": [0.9, 0.7], "uniform": [0.8, 0.75]})
    regression = rows("main", {"crumb": [8.0], "uniform": [10.0]}, "rmse").assign(dataset="r")
    table = pd.concat([classes, regression], ignore_index=True)
    leads = main.dataset_leads(table)["lead"].to_dict()
    assert leads == pytest.approx({"d1": -5.0, "d0": 10.0, "r": 20.0})
    losses = titled(main.blocks(table), "Where CRUMB loses")
    assert cells(losses)[0][:4] == ["CRUMB loses", "1", "1", "0"]
    assert cells(losses)[1][:4] == ["elsewhere", "2", "1", "1"]


def test_other_methods_are_compared_alone_and_change_no_rank_of_the_paper_s_five():
    five = experiment_rows.Maker(6, 0, 2).main()
    crumb = [row for row in five if row["method"] == "crumb"]
    better = [{**row, "method": "new", "accuracy": row["accuracy"] + 0.1} for row in crumb]
    same = [{**row, "method": "same"} for row in crumb]
    tables = [main.blocks(as_frame(each)) for each in (five, five + better + same)]
    assert cells(titled(tables[0], "Ranks by")) == cells(titled(tables[1], "Ranks by"))
    shown = titled(tables[1], "Other methods against CRUMB")
    assert column(shown, "Method") == ["`new`", "`same`"]
    assert column(shown, "accuracy points") == ["+10.00", "0.00"]
    assert column(shown, "sets won / tied / lost") == ["6 / 0 / 0", "0 / 6 / 0"]
    p = stats.wilcoxon([1.0] * 6).pvalue  # a better rank on each of six sets
    assert column(shown, "p adj.") == [numbers.p_value(2 * p), "1"]
