"""Which method is best: leads of data sets, medals, wins, other methods beside the five."""

from __future__ import annotations

import experiment_rows
import numpy as np
import pandas as pd
import pytest
from experiment_rows import cells, column, rows, titled
from scipy import stats

from experiments.report import common, comparisons, numbers
from experiments.report.results import as_frame


def test_leads_are_points_or_per_cent_of_the_rmse():
    classes = rows("main", {"crumb": [0.9, 0.7], "uniform": [0.8, 0.75]})
    regression = rows("main", {"crumb": [8.0], "uniform": [10.0]}, "rmse").assign(dataset="r")
    table = pd.concat([classes, regression], ignore_index=True)
    leads = comparisons.dataset_leads(table)["lead"].to_dict()
    assert leads == pytest.approx({"d1": -5.0, "d0": 10.0, "r": 20.0})
    losses = titled(comparisons.main(table), "Where CRUMB loses")
    assert cells(losses)[0][:4] == ["CRUMB loses", "1", "1", "0"]
    assert cells(losses)[1][:4] == ["elsewhere", "2", "1", "1"]


def test_other_methods_are_compared_alone_and_change_no_rank_of_the_paper_s_five():
    five = experiment_rows.Maker(6, 0, 1).main()
    crumb = [row for row in five if row["method"] == "crumb"]
    better = [{**row, "method": "new", "accuracy": row["accuracy"] + 0.1} for row in crumb]
    same = [{**row, "method": "same"} for row in crumb]
    tables = [comparisons.main(as_frame(each)) for each in (five, five + better + same)]
    assert cells(titled(tables[0], "Ranks by")) == cells(titled(tables[1], "Ranks by"))
    shown = titled(tables[1], "Other methods against CRUMB")
    assert column(shown, "Method") == ["`new`", "`same`"]
    assert column(shown, "accuracy points") == ["+10.00", "0.00"]
    assert column(shown, "sets won / tied / lost") == ["6 / 0 / 0", "0 / 6 / 0"]
    p = stats.wilcoxon([1.0] * 6).pvalue  # a better rank on each of six sets
    assert column(shown, "p adj.") == [numbers.p_value(2 * p), "1"]


def test_medals_go_by_mean_rank_and_are_shared():
    means = pd.DataFrame({"a": [1.0, 2.0, 1.5], "b": [2.0, 1.5, 1.5], "c": [3.0, 2.5, 3.0]})
    assert comparisons.medals(means).tolist() == [[0, 1, 2], [1, 0, 2], [0, 0, 2]]


def test_the_test_against_micp_is_scipy_s():
    crumb, micp = np.linspace(0.8, 0.9, 12), np.linspace(0.7, 0.75, 12)
    table = rows("large", {"crumb": list(crumb), "micp": list(micp)})
    scores = common.scores_of(table, "large")
    expected = stats.wilcoxon((crumb - micp).round(12)).pvalue
    assert comparisons.against_micp(scores) == {"m": pytest.approx(expected)}
    assert comparisons.against_micp(scores[["crumb"]]) == {}
    assert comparisons.wins_by_model(scores).loc["m"].to_dict() == {"crumb": 12, "micp": 0}
