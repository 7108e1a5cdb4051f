"""The whole report: everything that has rows is there, nothing comes from outside, and odd rows do no harm."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser

import bench_rows
import pytest

from crumb.bench.report import SECTIONS, build_sections, write_report
from crumb.bench.report.blocks import Figure
from crumb.bench.report.results import as_frame
from crumb.errors import InvalidInput

VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def rows():
    return bench_rows.Maker(4, 2, 2).everything()


@pytest.fixture(scope="module")
def written(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return write_report(bench_rows.write_rows(folder / "rows.jsonl", rows), folder / "out" / "report.html")


@pytest.fixture(scope="module")
def page(written):
    return written[0].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def summary(written):
    return written[1].read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Tags that are opened and closed in order, ids, and what is referred to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]
        self.labels += found.get("aria-labelledby", "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outline(page):
    outline = Outline()
    outline.feed(page)
    outline.close()
    return outline


def test_page_and_summary_stand_side_by_side(written):
    assert [path.name for path in written] == ["report.html", "report.md"]
    assert [path.name for path in sorted(written[0].parent.iterdir())] == ["report.html", "report.md"]


def test_the_page_is_well_formed_and_needs_nothing_from_outside(page, outline):
    assert outline.open == []
    assert [name for name, count in Counter(outline.ids).items() if count > 1] == []
    assert all(link.startswith("#") or link == "data:," for link in outline.links)
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert set(outline.labels) <= set(outline.ids)
    assert "<script" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert "http://" not in page
    assert "https://" not in page


def test_every_figure_of_the_paper_is_there_with_a_description(page, rows):
    figures = [
        block for section in build_sections(as_frame(rows)) for block in section.blocks if isinstance(block, Figure)
    ]
    assert {figure.name for figure in figures} >= {
        "consistency-medals",
        "large-wins-and-sizes",
        "drift-panels",
        "drift-lead",
        "clusters-k",
        "clusters-share",
        "retrieval-exact",
        "retrieval-rff",
        "factorial-ranks",
        "rff-ranks",
        "rff-rank-map",
        "rff-time-map",
        "rff-gaps",
        "complexity-n",
        "complexity-t",
    }
    for figure in figures:
        assert f'<figure id="{figure.name}">' in page
        for panel in figure.panels:
            assert panel.svg in page
            assert re.search(r"<title [^>]+>[^<]+</title><desc [^>]+>[^<]{10,}</desc>", panel.svg)


def test_contents_lead_to_every_section(page, rows):
    for module in SECTIONS:
        assert f'<a href="#{module.PROTOCOL}">' in page
        assert f'<h2 id="{module.PROTOCOL}">' in page


def test_the_paper_stands_beside_ours(page, summary):
    for number in ("2.202 ± 0.098", "1.809 ± 0.027", "+0.171 ± 0.021", "~10⁻¹⁹", "O(N²)"):
        assert number in page
        assert number in summary


def test_protocols_without_rows_do_not_appear(rows, tmp_path):
    some = [row for row in rows if row["protocol"] in ("factorial", "large")]
    page, summary = write_report(bench_rows.write_rows(tmp_path / "a.jsonl", some), tmp_path / "r.html")
    shown = re.findall(r'<h2 id="([\w-]+)">', page.read_text())
    assert shown == ["learned", "large", "factorial"]
    assert "Covariate drift" not in summary.read_text()


def test_a_folder_of_files_is_one_report(rows, written, tmp_path):
    for protocol in bench_rows.PROTOCOLS:
        bench_rows.write_rows(tmp_path / f"{protocol}.jsonl", [row for row in rows if row["protocol"] == protocol])
    page, _ = write_report(tmp_path, tmp_path / "report.html")
    assert page.read_text().replace("from 9 files", "from 1 file") == written[0].read_text()


def test_the_same_rows_in_another_order_make_the_same_findings(rows, summary, tmp_path):
    _, other = write_report(bench_rows.write_rows(tmp_path / "a.jsonl", rows[::-1]), tmp_path / "r.html")
    assert _numbers(other.read_text()) == _numbers(summary)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+\.\d{3}|\d+ / \d+ / \d+", text)


def test_failures_are_counted_named_and_harmless(page, summary):
    assert "broken.parquet is no &lt;Parquet&gt; file | or a truncated one" in page
    assert "broken.parquet is no &lt;Parquet> file \\| or a truncated one" in summary
    assert "not done after 300 s" in page
    assert "1 timed out and 1 failed" in page


def test_names_cannot_break_out(tmp_path):
    maker = bench_rows.Maker(2, 0, 2)
    rows = [{**row, "dataset": '<script>alert("1")</script> **`$x$' + row["dataset"]} for row in maker.main()]
    rows += [{**row, "dataset": '"><b>' + row["dataset"]} for row in maker.drift() if row["task"] == "classification"]
    page, _ = write_report(bench_rows.write_rows(tmp_path / "a.jsonl", rows), tmp_path / "r.html")
    outline = Outline()
    outline.feed(page.read_text())
    outline.close()
    assert outline.open == []
    assert "<script" not in page.read_text()
    assert "<b>" not in page.read_text()


def test_torn_lines_repeats_and_strange_protocols_are_told(rows, tmp_path):
    path = bench_rows.write_rows(tmp_path / "a.jsonl", [rows[0], rows[0], {**rows[0], "protocol": "new"}])
    with path.open("a") as file:
        file.write(json.dumps(rows[2])[:50])
    page, _ = write_report(path, tmp_path / "r.html")
    text = page.read_text()
    assert "1 line could not be read" in text
    assert "1 run had a later row" in text
    assert "No section knows the protocol new" in text


def test_a_report_needs_rows_and_a_name_of_a_page(rows, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="no rows of crumb bench"):
        write_report(tmp_path / "empty.jsonl", tmp_path / "r.html")
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "nowhere", tmp_path / "r.html")
    with pytest.raises(InvalidInput, match=r"ends in \.html"):
        write_report(bench_rows.write_rows(tmp_path / "a.jsonl", rows[:5]), tmp_path / "r.md")
    assert not list(tmp_path.glob("r.*"))


NOTHING = dict.fromkeys((*bench_rows.OUTCOME, "contexts", "mmd2", "cluster_mmd2"))
ODD = {
    "all timed out": lambda rows: [{**row, "status": "timeout", "message": "late", **NOTHING} for row in rows],
    "one set and seed": lambda rows: [r for r in rows if (r["dataset"], r["seed"]) == (rows[0]["dataset"], 0)],
    "only crumb": lambda rows: [r for r in rows if r["method"] in ("crumb", "case D", "exact B=1")],
    "no crumb": lambda rows: [r for r in rows if r["method"] not in ("crumb", "case D", "exact B=1")] or rows[:1],
    "one row": lambda rows: rows[:1],
    "no sizes": lambda rows: [{**row, **dict.fromkeys(("N", "T", "n", "K", "device", "when"))} for row in rows],
    "all alike": lambda rows: [{**row, **{m: row[m] and 0.5 for m in ("accuracy", "rmse", "r2")}} for row in rows],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("protocol", bench_rows.PROTOCOLS)
def test_odd_rows_make_a_section_too(protocol, odd):
    rows = ODD[odd](getattr(bench_rows.Maker(2, 1, 2), protocol)())
    shown = [section.name for section in build_sections(as_frame(rows))]
    assert shown[:2] == ["learned", protocol]
