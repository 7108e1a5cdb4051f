"""Blocks as Markdown: tables that hold together whatever the names, long ones left out."""

from __future__ import annotations

from crumb.bench.report.blocks import Bullets, Cell, Column, Figure, Heading, Section, Table, Text
from crumb.bench.report.markdown import to_markdown


def test_all_blocks():
    columns = [Column("Set", number=False), Column("rank"), Column("rank", paper=True)]
    table = Table("Ranks", columns, [["a|b<i>", Cell("1", True), "2\n"]])
    long = Table("Long", columns, [["x", "y", "z"]], long=True)
    blocks = [Heading("H"), Text("**T**"), Bullets(["x", "y"]), table, long, Figure("f", "Shown.", [])]
    assert to_markdown("Title", ["fact"], [Section("s", "S", blocks)], "end") == (
        "# Title\n\nfact\n\n## S\n\n### H\n\n**T**\n\n- x\n- y\n\n*Ranks*\n\n"
        "| Set | rank | rank (paper) |\n| --- | ---: | ---: |\n| a\\|b&lt;i> | **1** | 2 |\n\n"
        "*Figure (on the page):* Shown.\n\nend\n"
    )
