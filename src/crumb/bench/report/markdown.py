"""Sections as a Markdown summary: the words and the tables; figures by their caption, long tables left out."""

from __future__ import annotations

from collections.abc import Sequence

from crumb.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Figure,
    Heading,
    Section,
    Table,
    Text,
    is_best,
    text_of,
)


def to_markdown(title: str, facts: Sequence[str], sections: Sequence[Section], footer: str) -> str:
    parts = [f"# {_safe(title)}", *(_safe(fact) for fact in facts)]
    for section in sections:
        parts.append(f"## {_safe(section.title)}")
        parts.extend(_block(block) for block in section.blocks)
    return "\n\n".join([*(part for part in parts if part), _safe(footer)]) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### {_safe(block.text)}"
    if isinstance(block, Text):
        return _safe(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_safe(item)}" for item in block.items)
    if isinstance(block, Figure):
        return f"*Figure (on the page):* {_safe(block.caption)}"
    return "" if block.long else _table(block)


def _table(table: Table) -> str:
    head = [
        f"{column.name} (paper)" if column.paper and "paper" not in column.name else column.name
        for column in table.columns
    ]
    rule = ["---:" if column.number else "---" for column in table.columns]
    lines = [[_cell(cell) for cell in row] for row in table.rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in [[_cell(name) for name in head], rule, *lines])
    return f"*{_safe(table.caption)}*\n\n{body}"


def _cell(cell: Cell | str) -> str:
    text = _safe(text_of(cell)).replace("|", "\\|")
    return f"**{text}**" if is_best(cell) else text


def _safe(text: str) -> str:
    """Names of data sets may hold anything; Markdown lets HTML through."""
    return " ".join(text.replace("<", "&lt;").split())
