"""One colour and marker a method in all figures. The colours are Okabe and Ito's, safe for colour-blind eyes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    label: str
    light: str
    dark: str
    marker: str = "o"


# Light colours must differ from each other: a figure is drawn in them, and the page swaps each for its own variable.
METHODS = {
    "full": Look("Full context", "#33373d", "#d7dbe0", "D"),
    "knn": Look("kNN per query", "#009e73", "#2fc79a", "^"),
    "crumb": Look("CRUMB", "#d55e00", "#ff8a3d", "o"),
    "micp": Look("MICP", "#0072b2", "#4aa8e0", "s"),
    "uniform": Look("Uniform", "#8a8f98", "#a2a8b2", "v"),
    "centroid": Look("Centroid-NN", "#b8568f", "#e18abb", "D"),
    "voronoi": Look("Voronoi-Uniform", "#56a0d0", "#86c5ec", "v"),
    "case A": Look("A: uniform, no clusters", "#8b8f99", "#a3a8b3", "v"),
    "case B": Look("B: uniform, clusters", "#57a0d1", "#87c5ed", "s"),
    "case C": Look("C: herding, no clusters", "#b9568f", "#e28abb", "^"),
    "case D": Look("D: herding, clusters (CRUMB)", "#d65e00", "#ff8b3d", "o"),
}
OTHERS = (  # for methods that have no colour of their own
    Look("", "#a07d00", "#e0b93c", "P"),
    Look("", "#6a51a3", "#a994dd", "X"),
    Look("", "#7a4a2b", "#c79a7a", "s"),
    Look("", "#2f6f6f", "#6fb5b5", "^"),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, MUTED, GRID, PAPER = "#22262e", "#6b7280", "#dfe3e8", "#fffffe"
DARK = {INK: "#e8eaed", MUTED: "#a3abb7", GRID: "#3a4049", PAPER: "#16191d"}
NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}


def look(method: str) -> Look:
    if method in METHODS:
        return METHODS[method]
    other = OTHERS[zlib.crc32(method.encode()) % len(OTHERS)]  # the same in every figure and report
    return Look(method, other.light, other.dark, other.marker)


def label(method: str) -> str:
    return look(method).label


def in_order(methods: Iterable[str]) -> list[str]:
    """Known methods in the paper's order, then the others by name."""
    known = list(METHODS)
    return sorted(methods, key=lambda name: (known.index(name) if name in known else len(known), name))


def variables() -> dict[str, tuple[str, str, str]]:
    """Light colour → name of its variable on the page, light and dark value."""
    found = {colour: (NAMES[colour], colour, DARK[colour]) for colour in NAMES}
    for index, each in enumerate([*METHODS.values(), *OTHERS]):
        found[each.light] = (f"c{index}", each.light, each.dark)
    return found


def css_colour(colour: str) -> str:
    """The colour as the page should write it: a variable where the palette has one."""
    known = variables().get(colour.lower())
    return f"var(--{known[0]})" if known else colour
