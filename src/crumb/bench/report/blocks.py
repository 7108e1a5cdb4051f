"""What a report is made of, before it becomes HTML or Markdown.

Text may hold two marks, ``**bold**`` and ```code```; everything else is taken literally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False


@dataclass(frozen=True)
class Column:
    name: str
    number: bool = True
    paper: bool = False  # a column of published numbers, set apart from ours


@dataclass(frozen=True)
class Table:
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    long: bool = False  # folded away on the page, left out of the summary


@dataclass(frozen=True)
class Panel:
    svg: str
    wide: bool = False


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    label: str
    colour: str  # a colour of the palette
    marker: str = "o"


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    panels: Sequence[Panel]
    legend: Sequence[Key] = ()


Block = Heading | Text | Bullets | Table | Figure


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)


def text_of(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def is_best(cell: Cell | str) -> bool:
    return isinstance(cell, Cell) and cell.best


def mark_best(values: Sequence[float], texts: Sequence[str], higher: bool = True) -> list[Cell]:
    """The texts as cells, the best of the values in bold (all of them if several are best)."""
    known = [value for value in values if value == value]
    best = (max(known) if higher else min(known)) if known else None
    return [
        Cell(text, best is not None and value == best and len(known) > 1)
        for value, text in zip(values, texts, strict=True)
    ]
