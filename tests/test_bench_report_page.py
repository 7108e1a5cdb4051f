"""Blocks as HTML: marks become elements, everything else is literal."""

from __future__ import annotations

from crumb.bench.report.blocks import (
    Bullets,
    Cell,
    Column,
    Figure,
    Heading,
    Key,
    Panel,
    Section,
    Table,
    Text,
    mark_best,
)
from crumb.bench.report.page import marked, to_html

TABLE = Table(
    "Scores & more",
    [Column("Set", number=False), Column("ours"), Column("theirs", paper=True)],
    [["a<b", Cell("1", True), "2"]],
)


def page(*blocks):
    return to_html("A <title>", ["fact"], [Section("one", "First", blocks)], "end")


def test_marks():
    assert marked("**a** < `b**c**`") == "<strong>a</strong> &lt; <code>b**c**</code>"
    assert marked('"><script>') == "&quot;&gt;&lt;script&gt;"


def test_a_table_has_headers_numbers_and_the_best_in_bold():
    text = page(TABLE)
    assert '<th scope="row">a&lt;b</th><td class="num"><strong>1</strong></td><td class="num from-paper">2</td>' in text
    assert 'aria-label="Scores &amp; more"' in text
    assert "<details>" not in text
    assert "<details>" in page(Table(TABLE.caption, TABLE.columns, TABLE.rows, long=True))


def test_the_other_blocks():
    text = page(
        Heading("H"), Text("T"), Bullets(["x", "y"]), Figure("f", "C", [Panel("<svg/>")], [Key("k", "#d55e00", "^")])
    )
    assert "<h3>H</h3>" in text
    assert "<p>T</p>" in text
    assert "<ul><li>x</li><li>y</li></ul>" in text
    assert '<figure id="f">' in text
    assert "var(--c2)" in text
    assert "<title>A &lt;title&gt;</title>" in text
    assert '<a href="#one">First</a>' in text


def test_the_best_of_one_is_nothing_special():
    assert [cell.best for cell in mark_best([1.0, 2.0, float("nan"), 2.0], list("abcd"))] == [False, True, False, True]
    assert [cell.best for cell in mark_best([1.0, 2.0], list("ab"), higher=False)] == [True, False]
    assert not mark_best([1.0], ["a"])[0].best
