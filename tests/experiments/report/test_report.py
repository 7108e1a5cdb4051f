"""The whole report: everything that has rows is there, nothing comes from outside, and odd rows
do no harm."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree

import experiment_rows
import pytest

from crumb.errors import InvalidInput
from experiments.report import SECTIONS, as_markdown, build_sections, failures, marked, write_report
from experiments.report.blocks import Figure, Table
from experiments.report.results import as_frame

VOID = {"meta", "link", "br", "hr", "img", "input"}


@pytest.fixture(scope="module")
def rows():
    return experiment_rows.Maker(2, 2, 1).everything()


@pytest.fixture(scope="module")
def sections(rows):
    """From the same rows as the page, in another order, which must not matter."""
    return build_sections(as_frame(rows[::-1]))


@pytest.fixture(scope="module")
def written(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    path = experiment_rows.write_rows(folder / "rows.jsonl", rows)
    return write_report(path, folder / "out" / "report.html")


@pytest.fixture(scope="module")
def page(written):
    return written[0].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def summary(written):
    return written[1].read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Tags that are opened and closed in order, ids, what is referred to, and tables by caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[tuple[str, str]] = []
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        if tag == "img":
            self.images.append((found["src"], found["alt"]))
        if "aria-label" in found and tag == "div":
            self.lines: list[list[str]] = []
            self.tables.append((found["aria-label"], self.lines))
        if tag == "tr":
            self.lines.append([])
        if tag in ("th", "td"):
            self.lines[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_data(self, data):
        if {"th", "td"} & set(self.open):
            self.lines[-1][-1] += data

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outline(page):
    return Outline(page)


def test_page_and_summary_stand_side_by_side(written):
    assert [path.name for path in written] == ["report.html", "report.md"]
    there = sorted(path.name for path in written[0].parent.iterdir())
    assert there == ["report.html", "report.md"]


def test_the_page_is_well_formed_and_needs_nothing_from_outside(page, outline):
    assert outline.open == []
    assert [name for name, count in Counter(outline.ids).items() if count > 1] == []
    assert all(link.startswith("#") or link == "data:," for link in outline.links)
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert all(source.startswith("data:image/svg+xml,") for source, _ in outline.images)
    assert "url(" not in page.partition("</style>")[0]
    for outside in ("<script", "@import", 'src="http', 'href="http'):
        assert outside not in page


def test_every_figure_of_the_paper_is_there_with_a_description(outline, sections):
    blocks = [block for section in sections for block in section.blocks]
    figures = experiment_rows.of_kind(blocks, Figure)
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
        "rff-maps",
        "rff-gaps",
        "complexity-n",
        "complexity-t",
        "mmd-correlations",
    }
    assert {figure.name for figure in figures} <= set(outline.ids)
    assert len(outline.images) == sum(len(figure.panels) for figure in figures)
    for source, alt in outline.images:
        drawing = ElementTree.fromstring(unquote(source.removeprefix("data:image/svg+xml,")))
        assert len(list(drawing.iter())) > 20
        assert len(alt) > 20


def test_the_numbers_of_the_tables_are_on_the_page_and_in_the_summary(outline, sections, summary):
    blocks = [block for section in sections for block in section.blocks]
    tables = experiment_rows.of_kind(blocks, Table)
    assert len(tables) > 30
    assert [caption for caption, _ in outline.tables] == [table.caption for table in tables]
    for table, (_, (head, *body)) in zip(tables, outline.tables, strict=True):
        assert head == list(table.cells)
        plain = [[re.sub(r"\*\*|`", "", cell) for cell in line] for line in table.lines]
        assert body == plain
        if not table.long:
            for line in table.lines:
                assert f"| {' | '.join(map(as_markdown, line))} |" in summary


def test_contents_lead_to_every_section(page):
    for protocol in SECTIONS:
        assert f'<a href="#{protocol}">' in page
        assert f'<h2 id="{protocol}">' in page


def test_the_paper_stands_beside_ours(page, summary):
    for number in ("2.202 ± 0.098", "1.809 ± 0.027", "+0.171 ± 0.021", "~10⁻¹⁹", "O(N²)"):
        assert number in page
        assert number in summary


def test_protocols_without_rows_do_not_appear(rows):
    some = [row for row in rows if row["protocol"] == "factorial"]
    assert [section.name for section in build_sections(as_frame(some))] == ["factorial", "mmd"]


def test_failures_are_counted_named_and_harmless(page, summary):
    assert "broken.parquet is no &lt;Parquet&gt; file | or a truncated one" in page
    assert "broken.parquet is no &lt;Parquet> file \\| or a truncated one" in summary
    assert "not done after 300 s" in page
    assert "1 timed out, 1 failed" in page


def test_without_failures_there_is_no_such_section():
    table = experiment_rows.rows("main", {"crumb": [0.9, 0.8]})
    assert failures(table) == []
    table.loc[0, ["status", "message"]] = ["timeout", "300 s"]
    counts, each = failures(table)
    assert counts.lines == [("main", "timed out", "1", "1")]
    assert each.lines == [
        ("main", "timed out", "`d0`", "m", "CRUMB, as in the paper", "300 s", "1")
    ]


def test_names_cannot_break_out(tmp_path):
    maker = experiment_rows.Maker(1, 0, 2)
    name = '<script>alert("1")</script> **`$x$'
    rows = [{**row, "dataset": name + row["dataset"]} for row in maker.main()]
    rows += [{**row, "dataset": '"><b>' + row["dataset"]} for row in maker.retrieval()]
    path = experiment_rows.write_rows(tmp_path / "a.jsonl", rows)
    page = write_report(path, tmp_path / "r.html")[0].read_text()
    assert Outline(page).open == []
    assert "<script" not in page
    assert "<b>" not in page


def test_marks_become_elements_and_all_else_is_literal():
    assert marked("**a** < `b**c**`") == "<strong>a</strong> &lt; <code>b**c**</code>"
    assert marked('"><script>') == "&#34;&gt;&lt;script&gt;"


def test_torn_lines_repeats_and_strange_protocols_are_told(rows, tmp_path):
    some = [rows[0], rows[0], {**rows[0], "protocol": "new"}]
    path = experiment_rows.write_rows(tmp_path / "a.jsonl", some)
    with path.open("a") as file:
        file.write(json.dumps(rows[2])[:50])
    text = write_report(path, tmp_path / "r.html")[0].read_text()
    assert "1 line could not be read" in text
    assert "1 run had a later row" in text
    assert "unknown protocols are not shown: new" in text


def test_a_report_needs_rows_and_a_name_of_a_page(rows, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="holds no rows"):
        write_report(tmp_path / "empty.jsonl", tmp_path / "r.html")
    with pytest.raises(FileNotFoundError):
        write_report(tmp_path / "nowhere", tmp_path / "r.html")
    path = experiment_rows.write_rows(tmp_path / "a.jsonl", rows[:5])
    with pytest.raises(InvalidInput, match=r"ends in \.html"):
        write_report(path, tmp_path / "r.md")
    assert not list(tmp_path.glob("r.*"))


NOTHING = dict.fromkeys((*experiment_rows.OUTCOME, "contexts", "mmd2", "cluster_mmd2"))
CRUMB = ("crumb", "case D", "exact B=1")
SIZES = dict.fromkeys(("N", "T", "n", "K", "device", "when"))
ALIKE = ("accuracy", "rmse", "r2")
ODD = {
    "all late": lambda rows: [{**row, "status": "timeout", **NOTHING} for row in rows],
    "one set": lambda rows: [
        r for r in rows if r["dataset"] == rows[0]["dataset"] and not r["seed"]
    ],
    "only crumb": lambda rows: [row for row in rows if row["method"] in CRUMB],
    "no crumb": lambda rows: [row for row in rows if row["method"] not in CRUMB] or rows[:1],
    "one row": lambda rows: rows[:1],
    "no sizes": lambda rows: [{**row, **SIZES} for row in rows],
    "all alike": lambda rows: [{**row, **{m: row[m] and 0.5 for m in ALIKE}} for row in rows],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("protocol", experiment_rows.PROTOCOLS)
def test_odd_rows_make_a_section_too(protocol, odd):
    rows = ODD[odd](getattr(experiment_rows.Maker(1, 1, 1), protocol)())
    assert build_sections(as_frame(rows))[0].name == protocol
