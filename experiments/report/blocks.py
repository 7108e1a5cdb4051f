"""What a section is made of: paragraphs, tables and figures. Templates write them down.

Text may hold two marks, ``**bold**`` and ```code```; everything else is taken literally.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

NUMBER = re.compile(r"\**[−+<>~]?\s?(\d|–)|$")


class Column(NamedTuple):
    name: str
    number: bool  # every cell starts with a number: to the right
    paper: bool  # published numbers, set apart from ours


@dataclass(frozen=True)
class Table:
    caption: str
    cells: Mapping[str, Iterable[str]]  # by column; the first one names the lines
    long: bool = False  # folded away on the page, left out of the summary

    @property
    def columns(self) -> list[Column]:
        right = {name: all(map(NUMBER.match, cells)) for name, cells in self.cells.items()}
        return [Column(name, number, name.startswith("paper")) for name, number in right.items()]

    @property
    def lines(self) -> list[tuple[str, ...]]:
        return list(zip(*self.cells.values(), strict=True))


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    panels: Sequence[Any]  # of ``figures.panel``
    legend: Sequence[Any] = ()  # of ``figures.look``


Block = str | Table | Figure | None  # None: there was nothing to show


def by_lines(
    caption: str, columns: str, lines: Sequence[Sequence[str]], long: bool = False
) -> Table | None:
    """A table from its lines, with the names of the columns separated by bars."""
    names = [name.strip() for name in columns.split("|")]
    cells = dict(zip(names, zip(*lines, strict=True), strict=False))
    return Table(caption, cells, long) if lines else None


def figure(
    name: str, caption: str, panels: Sequence[Any], legend: Sequence[Any] = ()
) -> Figure | None:
    return Figure(name, " ".join(caption.split()), panels, legend) if panels else None
