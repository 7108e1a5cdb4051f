"""Paired comparisons: counts and means by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from experiments.paired import comparison, main, trend


def test_better_and_worse_are_counted_by_the_sign_of_the_metric() -> None:
    means = pd.DataFrame({"base": [0.5, 0.5, 0.5, 0.5], "other": [0.6, 0.7, 0.4, 0.5]})
    more = comparison(means, "base", "other", 1)
    assert more.startswith("  other: 0.5500, better 2, worse 1 of 4 data sets, p = ")
    less = comparison(means, "base", "other", -1)
    assert "better 1, worse 2 of 4" in less
    assert comparison(means, "base", "base", 1).endswith("better 0, worse 0 of 4 data sets, p = 1")


def test_slopes_of_the_lead_are_of_each_data_set() -> None:
    index = pd.MultiIndex.from_product([["a", "b", "c"], [0.0, 0.5, 1.0]], names=["dataset", "tau"])
    lead = [0.0, 0.1, 0.2, 0.3, 0.2, 0.1, 0.0, 0.2, 0.4]  # slopes 0.2, -0.2 and 0.4
    means = pd.DataFrame({"base": 0.5, "other": [0.5 + more for more in lead]}, index)
    line = trend(means, "base", "other", 1)
    assert "lead +0.1000 to +0.2333, slope +0.1333, grows on 2 of 3 data sets" in line
    assert "slope -0.1333, grows on 1 of 3" in trend(means, "base", "other", -1)


def test_some_rows_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = {"protocol": "drift", "task": "classification", "model": "embedded", "seed": 0}
    rows = [
        {**common, "dataset": name, "method": method, "tau": tau, "status": "ok", "accuracy": score}
        for name in "ab"
        for method, score in (("micp", 0.5), ("crumb", 0.6))
        for tau in (0.0, 1.0)
    ]
    for row in rows[2::4]:  # crumb at τ = 0
        row["accuracy"] = 0.4
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    main([str(path), "--base", "micp", "--where", "tau == 1"])
    assert "crumb: 0.6000, better 2, worse 0 of 2 data sets" in capsys.readouterr().out
    main([str(path), "--base", "micp", "--along", "tau"])
    assert "crumb: lead -0.1000 to +0.1000, slope +0.2000" in capsys.readouterr().out
