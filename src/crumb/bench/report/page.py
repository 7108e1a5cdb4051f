"""Sections as one HTML page that needs nothing from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from crumb.bench.report.blocks import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Heading,
    Key,
    Section,
    Table,
    Text,
    is_best,
    text_of,
)
from crumb.bench.report.palette import css_colour
from crumb.bench.report.style import css

SHAPES = {
    "o": '<circle cx="5" cy="5" r="4"/>',
    "s": '<path d="M1.2 1.2h7.6v7.6H1.2z"/>',
    "^": '<path d="M5 .8 9.3 9H.7z"/>',
    "v": '<path d="M5 9.2.7 1h8.6z"/>',
    "D": '<path d="M5 .3 9.7 5 5 9.7.3 5z"/>',
    "P": '<path d="M3.4.8h3.2v2.6h2.6v3.2H6.6v2.6H3.4V6.6H.8V3.4h2.6z"/>',
    "X": '<path d="M2.5.6 5 3 7.5.6l1.9 1.9L7 5l2.4 2.5-1.9 1.9L5 7 2.5 9.4.6 7.5 3 5 .6 2.5z"/>',
}


def to_html(title: str, facts: Sequence[str], sections: Sequence[Section], footer: str) -> str:
    contents = "".join(f'<li><a href="#{section.name}">{marked(section.title)}</a></li>' for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{css()}</style>
</head>
<body>
<div class="layout">
<header><h1>{escape(title)}</h1>{"".join(f"<p>{marked(fact)}</p>" for fact in facts)}</header>
<nav aria-label="Contents"><strong>Contents</strong><ol>{contents}</ol></nav>
<main>
{"".join(_section(section) for section in sections)}
<footer>{marked(footer)}</footer>
</main>
</div>
</body>
</html>
"""


def marked(text: str) -> str:
    """Escaped text, with its two marks as elements; inside code a star is a star."""
    pieces = re.split(r"`([^`]+)`", escape(text))
    pieces[::2] = [re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", piece) for piece in pieces[::2]]
    pieces[1::2] = [f"<code>{piece}</code>" for piece in pieces[1::2]]
    return "".join(pieces)


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    name = escape(section.name)
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{marked(section.title)}</h2>\n{blocks}\n</section>\n'


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h3>{marked(block.text)}</h3>"
    if isinstance(block, Text):
        return f"<p>{marked(block.text)}</p>"
    if isinstance(block, Bullets):
        return "<ul>" + "".join(f"<li>{marked(item)}</li>" for item in block.items) + "</ul>"
    return _table(block) if isinstance(block, Table) else _figure(block)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col"{_classes(column)}>{marked(column.name)}</th>' for column in table.columns)
    body = "\n".join(_row(table.columns, row) for row in table.rows)
    label = escape(_unmarked(table.caption))
    # A region that can be scrolled must be reachable by keyboard, and needs a name then. The caption stands outside:
    # inside it would be as wide as the table and scroll away.
    content = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    region = f'<div class="scroll" role="region" tabindex="0" aria-label="{label}"><table>{content}</table></div>'
    if not table.long:
        return f'<p class="caption">{marked(table.caption)}</p>{region}'
    return f"<details><summary>{marked(table.caption)} ({len(table.rows):,} lines)</summary>{region}</details>"


def _row(columns: Sequence[Column], row: Sequence[Cell | str]) -> str:
    cells = []
    for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
        text = marked(text_of(cell))
        content = f"<strong>{text}</strong>" if is_best(cell) else text
        tag = 'th scope="row"' if index == 0 else "td"
        cells.append(f"<{tag}{_classes(column)}>{content}</{tag[:2]}>")
    return f"<tr>{''.join(cells)}</tr>"


def _classes(column: Column) -> str:
    names = " ".join(name for name, wanted in (("num", column.number), ("from-paper", column.paper)) if wanted)
    return f' class="{names}"' if names else ""


def _figure(figure: Figure) -> str:
    legend = f'<ul class="legend">{"".join(_key(key) for key in figure.legend)}</ul>' if figure.legend else ""
    panels = "\n".join(f"<div{' class=wide' if panel.wide else ''}>{panel.svg}</div>" for panel in figure.panels)
    return (
        f'<figure id="{escape(figure.name)}">{legend}<div class="panels">{panels}</div>'
        f"<figcaption>{marked(figure.caption)}</figcaption></figure>"
    )


def _key(key: Key) -> str:
    shape = SHAPES.get(key.marker, SHAPES["o"])
    swatch = f'<svg viewBox="0 0 10 10" aria-hidden="true" fill="{css_colour(key.colour)}">{shape}</svg>'
    return f"<li>{swatch}{marked(key.label)}</li>"


def _unmarked(text: str) -> str:
    return text.replace("**", "").replace("`", "")
