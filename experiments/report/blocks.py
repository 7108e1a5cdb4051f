"""What a section is made of: paragraphs, tables and figures. Templates write them down.

Text may hold two marks, ``**bold**`` and ```code```; everything else is taken literally.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NUMBER = re.compile(r"\**[−+<~]?\s?(\d|–)|$")


class Column(NamedTuple):
    name: str
    number: bool  # every cell starts with a number: to the right
    paper: bool  # published numbers, set apart from ours


@dataclass(frozen=True)
class Table:
    caption: str
    cells: Mapping[str, Sequence[str]]  # by column; the first one names the lines
    long: bool = False  # folded away on the page, left out of the summary

    @property
    def columns(self) -> list[Column]:
        return [
            Column(name, all(NUMBER.match(cell) for cell in cells), name.startswith("paper"))
            for name, cells in self.cells.items()
        ]

    @property
    def lines(self) -> list[tuple[str, ...]]:
        return list(zip(*self.cells.values(), strict=True))


class Panel(NamedTuple):
    title: str
    image: str  # an SVG as a data URI
    width: float  # inches


class Key(NamedTuple):
    """An entry of a legend."""

    label: str
    colour: str
    marker: str = "o"


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    panels: Sequence[Panel]
    legend: Sequence[Key] = ()


Block = str | Table | Figure


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence[Block]
