"""Which method is best: leads, medals, wins, other methods beside the five; drift and times."""

from __future__ import annotations

import experiment_rows
import numpy as np
import pandas as pd
import pytest
from experiment_rows import cells, column, rows, titled
from scipy import stats

from experiments.report import ablations, blocks, comparisons, figures, numbers
from experiments.report.results import as_frame


def test_leads_are_points_or_per_cent_of_the_rmse():
    classes = rows("main", {"crumb": [0.9, 0.7], "uniform": [0.8, 0.75]})
    regression = rows("main", {"crumb": [8.0], "uniform": [10.0]}, "rmse").assign(dataset="r")
    table = pd.concat([classes, regression], ignore_index=True)
    leads = comparisons.dataset_leads(table)["lead"].to_dict()
    assert leads == pytest.approx({"d1": -5.0, "d0": 10.0, "r": 20.0})
    losses = titled(comparisons.main(table), "CRUMB, as in the paper: where it loses")
    assert cells(losses)[0][:4] == ["it loses", "1", "1", "0"]
    assert cells(losses)[1][:4] == ["elsewhere", "2", "1", "1"]


def test_other_methods_are_compared_alone_and_change_no_rank_of_the_paper_s_five():
    five = experiment_rows.Maker(6, 0, 1).main()
    crumb = [row for row in five if row["method"] == "crumb"]
    better = [{**row, "method": "crumb exact", "accuracy": row["accuracy"] + 0.1} for row in crumb]
    same = [{**row, "method": "same"} for row in crumb]
    tables = [comparisons.main(as_frame(each)) for each in (five, five + better + same)]
    assert cells(titled(tables[0], "Ranks by")) == cells(titled(tables[1], "Ranks by"))
    shown = titled(tables[1], "Other methods against CRUMB, as in the paper")
    assert column(shown, "Method") == ["CRUMB", "`same`"]
    assert column(shown, "accuracy points") == ["+10.00", "0.00"]
    assert column(shown, "sets won / tied / lost") == ["6 / 0 / 0", "0 / 6 / 0"]
    p = stats.wilcoxon([1.0] * 6).pvalue  # a better rank on each of six sets
    assert column(shown, "p adj.") == [numbers.p_value(2 * p), "1"]


@pytest.mark.parametrize(
    ("protocol", "section", "base"),
    [
        ("consistency", comparisons.consistency, "crumb"),
        ("large", comparisons.large, "crumb"),
        ("factorial", ablations.factorial, "case D"),
    ],
)
def test_another_method_changes_no_rank_of_the_other_protocols_either(protocol, section, base):
    paper_s = getattr(experiment_rows.Maker(6, 0, 1), protocol)()
    more = [
        {**row, "method": "crumb exact", "accuracy": row["accuracy"] + 0.1}
        for row in paper_s
        if row["method"] == base
    ]
    before, after = (section(as_frame(each)) for each in (paper_s, paper_s + more))
    assert cells(titled(before, "Ranks")) == cells(titled(after, "Ranks"))
    shown = titled(after, f"Other methods against {figures.label(base)}, over data sets")
    assert column(shown, "Method") == ["CRUMB"]
    assert column(shown, "accuracy points") == ["+10.00"]


def test_medals_go_by_mean_rank_and_are_shared():
    means = pd.DataFrame({"a": [1.0, 2.0, 1.5], "b": [2.0, 1.5, 1.5], "c": [3.0, 2.5, 3.0]})
    assert comparisons.medals(means).tolist() == [[0, 1, 2], [1, 0, 2], [0, 0, 2]]


def test_the_test_against_micp_is_scipy_s():
    crumb, micp = np.linspace(0.8, 0.9, 12), np.linspace(0.7, 0.75, 12)
    table = rows("large", {"crumb": list(crumb), "micp": list(micp)})
    scores = blocks.scores_of(table, "large")
    expected = stats.wilcoxon((crumb - micp).round(12)).pvalue
    assert comparisons.against_micp(scores) == {"m": pytest.approx(expected)}
    assert comparisons.against_micp(scores[["crumb"]]) == {}
    assert comparisons.wins_by_model(scores).loc["m"].to_dict() == {"crumb": 12, "micp": 0}


def test_a_lead_over_micp_is_positive_when_crumb_is_better():
    classes = rows("drift", {"crumb": [0.8], "micp": [0.5]}, tau=0.5)
    higher = comparisons.paired(classes, "classification")
    numbers = rows("drift", {"crumb": [4.0], "micp": [5.0]}, "rmse", tau=0.5)
    lower = comparisons.paired(numbers, "regression")
    columns = ["lead", "relative"]
    assert higher[columns].to_numpy().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert lower[columns].to_numpy().tolist() == [[pytest.approx(1.0), pytest.approx(0.2)]]
    assert comparisons.paired(classes[classes["method"] == "crumb"], "classification").empty


def test_the_trend_of_the_lead_is_a_slope_for_each_series():
    parts = [
        rows("drift", {"crumb": [0.5 + 0.1 * tau, 0.5 - 0.3 * tau], "micp": [0.5, 0.5]}, tau=tau)
        for tau in (0.0, 0.5, 1.0)
    ]
    table = pd.concat(parts, ignore_index=True)
    pair = comparisons.paired(table, "classification")
    assert sorted(comparisons.slopes(pair["points"])) == pytest.approx([-30.0, 10.0])
    ours, theirs = titled(comparisons.drift(table), "The lead over MICP").lines
    assert ours[:5] == ("classification", "accuracy points", "0.0", "−10.0", "−10.0 ± 20.0")
    assert theirs[2:4] == ("+4.9", "+17.1")


def test_rmses_of_several_sets_are_not_averaged():
    maker = experiment_rows.Maker(0, 2, 2)
    every = [
        maker.row("drift", name, kind, "m", method, seed, tau=tau)
        for name, kind, seed in maker.each()
        for tau in (0.0, 1.0)
        for method in ("crumb", "micp")
    ]
    table = titled(comparisons.drift(as_frame(every)), "RMSE")
    assert list(table.cells) == ["τ", "lead, % of MICP", "p over runs"]


def timed(method: str, seconds: dict[int, float]) -> pd.DataFrame:
    parts = [
        rows("complexity", {method: [0.5]}, device="cpu", n=10, N=size, seconds=value)
        for size, value in seconds.items()
    ]
    return pd.concat(parts, ignore_index=True)


def test_growth_is_read_from_the_large_end():
    table = timed("full", {10: 5.0, 100: 5.0, 1_000: 1.0, 10_000: 100.0, 100_000: 10_000.0})
    assert comparisons.growth(table, "N", "seconds") == pytest.approx(2.0)
    assert np.isnan(comparisons.growth(table.iloc[:1], "N", "seconds"))


@pytest.mark.parametrize(
    ("crumb", "full", "expected", "said"),
    [
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 10.0}, (1_000.0, True), "1,000"),
        ({100: 1.0, 10_000: 1.0}, {100: 2.0, 10_000: 10.0}, (100.0, True), "100"),
        ({100: 1.0, 10_000: 1.0}, {100: 0.1, 10_000: 0.5}, (10_000.0, False), "> 10,000"),
    ],
)
def test_break_even(crumb, full, expected, said):
    table = pd.concat([timed("crumb", crumb), timed("full", full)], ignore_index=True)
    at, seen = comparisons.break_even(table)
    assert at == pytest.approx(expected[0])
    assert seen == expected[1]
    shown = titled(comparisons.complexity(table), "CRUMB, as in the paper: where it overtakes")
    assert column(shown, "it is faster from N ≈") == [said]
