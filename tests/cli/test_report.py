"""crumb report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tables import FAST, make_table


def report_args(target, *more):
    tables = ["--train", "train.csv", "--test", "test.csv", "--target", target]
    return ["report", *tables, "--out", "page.html", *FAST, *more]


class Tags(HTMLParser):
    """The tags that are open at the end, and the headings."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_one_page_on_classes(crumb, folder):
    status, out, err = crumb(*report_args("animal", "--json"))
    assert status == 0, err
    scores = {line["way"]: line for line in json.loads(out)["scores"]}
    assert list(scores) == ["CRUMB", "uniform contexts", "trees and curves"]
    assert scores["CRUMB"]["accuracy"] > 0.7
    assert 0 < scores["trees and curves"]["log_loss"] < 1
    page, tags = Path("page.html").read_text(), Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.headings[0] == "Data at a glance"
    assert tags.headings[1:3] == ["Scores", "Calibration"]
    assert page.count("data:image/png;base64,") == 1
    assert len(re.findall("<h3>row", page)) == 5
    assert len(page) < 200_000


def test_the_worst_queries_of_regression_come_first(crumb, folder):
    train = make_table(200, 0).rename(columns={"a": "<a>"})
    train.to_csv("train.csv", index=False)
    test = make_table(30, 1).rename(columns={"a": "<a>"})
    test.loc[7, "price"] = 500.0
    test.loc[6, "price"] = np.nan
    test.to_csv("test.csv", index=False)
    status, out, err = crumb(*report_args("price"))
    assert status == 0, err
    assert out.split()[:5] == ["way", "rmse", "r2", "mae", "seconds"]
    page = Path("page.html").read_text()
    assert re.findall("<h3>(row [0-9]+: [0-9]+)", page)[0] == "row 7: 500"
    assert "Residuals" in page
    assert "&lt;a&gt;" in page
    assert "<a>" not in page


@pytest.mark.parametrize("target", ["price", "animal"])
def test_a_page_on_a_few_rows(crumb, folder, target):
    make_table(8, 0).to_csv("train.csv", index=False)
    status, out, err = crumb(*report_args(target))
    assert status == 0, err
    assert "trees and curves" in out
    assert "nan" not in out


def test_a_report_needs_the_target_of_the_test_table(crumb, folder):
    pd.read_csv("test.csv").drop(columns="animal").to_csv("test.csv", index=False)
    status, _, err = crumb(*report_args("animal"))
    assert status == 1
    assert "test.csv has no column 'animal': a report compares predictions with it." in err
    assert not Path("page.html").exists()


@pytest.mark.parametrize("name", ["page.pdf", "train.csv"])
def test_a_page_is_html(crumb, folder, name):
    assert crumb(*report_args("animal"), "--out", name)[0] == 1
