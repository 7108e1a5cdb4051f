"""Matplotlib panels as SVG images, and the drawings that several sections share.

Each panel is as wide as a phone: panels that stand in a row on a desk stack up there, and no text
shrinks. Nothing goes through pyplot. The colours are those of Okabe and Ito, safe for colour-blind
eyes; they are drawn for a light page, and the page inverts the images in dark mode.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.report.numbers import short

WIDTH, HEIGHT = 4.4, 3.1  # inches
INK, MUTED = "#22262e", "#6b7280"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crumb",  # the same rows make the same file
    "text.parse_math": False,  # a dollar sign in the name of a data set is no formula
    "font.sans-serif": ["Segoe UI", "Roboto", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(["text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"], INK),
    **dict.fromkeys(["axes.edgecolor", "xtick.color", "ytick.color"], MUTED),
    **dict.fromkeys(["axes.spines.top", "axes.spines.right"], False),
    **dict.fromkeys(["axes.grid", "axes.axisbelow"], True),
    "grid.color": "#dfe3e8",
    "lines.markersize": 4.5,
}


class Look(NamedTuple):
    label: str
    colour: str
    marker: str = "s"


METHODS = {
    "full": Look("Full context", "#33373d", "D"),
    "knn": Look("kNN per query", "#009e73", "^"),
    "crumb": Look("CRUMB", "#d55e00", "o"),
    "micp": Look("MICP", "#0072b2", "s"),
    "uniform": Look("Uniform", "#8a8f98", "v"),
    "centroid": Look("Centroid-NN", "#b8568f", "D"),
    "voronoi": Look("Voronoi-Uniform", "#56a0d0", "v"),
    "case A": Look("A: uniform, no clusters", "#8a8f98", "v"),
    "case B": Look("B: uniform, clusters", "#56a0d0", "s"),
    "case C": Look("C: herding, no clusters", "#b8568f", "^"),
    "case D": Look("D: herding, clusters (CRUMB)", "#d55e00", "o"),
}
# Variants of stage 2 by the first word of names such as "exact, B = 1" and "D = 64, B = 50".
KERNELS = {"exact,": Look("exact kernel", "#33373d"), "D": Look("random features", "#d55e00")}
OTHER_COLOURS, MARKERS = ("#a07d00", "#6a51a3", "#7a4a2b", "#2f6f6f"), "os^DvPX"


def look(method: str) -> Look:
    """A method that is not in the paper gets the same colour in every figure and report."""
    number = zlib.crc32(method.encode())
    other = Look(method, OTHER_COLOURS[number % 4], MARKERS[number % 7])
    return METHODS.get(method) or KERNELS.get(method.split()[0], other)._replace(label=method)


def label(method: str) -> str:
    return look(method).label


def colours(methods: Iterable[str]) -> list[str]:
    return [look(method).colour for method in methods]


def in_order(methods: Iterable[str]) -> list[str]:
    """Known methods in the paper's order, then the others by name."""
    places = {name: place for place, name in enumerate(METHODS)}
    return sorted(set(methods), key=lambda name: (places.get(name, len(places)), name))


def keys(methods: Iterable[str]) -> list[Look]:
    return [look(name) for name in in_order(methods)]


@dataclass(frozen=True)
class Panel:
    title: str
    canvas: Canvas

    @property
    def image(self) -> str:
        """An SVG as a data URI."""
        buffer = io.StringIO()
        with rc_context(STYLE):
            self.canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        svg = re.sub(r"<metadata>.*?</metadata>|\n", "", buffer.getvalue(), flags=re.DOTALL)
        svg = re.sub(r"(\d+\.\d)\d{2,}", r"\1", svg)  # tenths of a point are enough
        return "data:image/svg+xml," + quote(svg[svg.index("<svg") :], safe=" /:;=,()'!@$*~")


def panel(
    title: str, draw: Callable[..., None], *content: Any, height: float = HEIGHT, **settings: Any
) -> Panel:
    """One set of axes: ``draw(axes, *content)``, then ``axes.set(**settings)``."""
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
        axes = canvas.subplots()
        draw(axes, *content)
        axes.set(title=title, **settings)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":  # ticks such as 500 and 10k, not powers in small print
                low, high = sorted(axis.get_view_interval())
                axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 150 * low else (1,)))
                axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
                axis.set_minor_formatter(NullFormatter())
    return Panel(title, canvas)


def bars(axes: Axes, values: pd.Series, colours: Sequence[str], reach: Any = None) -> None:
    """Horizontal bars, the first on top; with the reach of an interval also their values."""
    at = np.arange(len(values))[::-1]
    axes.barh(at, values, color=colours, height=0.7, xerr=reach, ecolor=INK, capsize=2.5)
    for y, value, more in zip(at, values, [] if reach is None else reach.fillna(0), strict=False):
        axes.annotate(f"{value:.2f}", (value + more, y), (4, -3), textcoords="offset points")
    axes.margins(x=0.12 if reach is not None else 0.03)
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.set_yticks(at, [str(name)[:28] for name in values.index])
    axes.set_ylim(-0.6, len(values) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0, labelsize=7.5 if len(values) > 30 else 9)


def curves(axes: Axes, rows: pd.DataFrame, x: str, y: str, even: bool = False) -> None:
    """Mean ± SEM of y at each x for each method; ``even``: the values of x evenly spaced."""
    places = sorted(rows[x].unique())
    for name in in_order(rows["method"]):
        found = rows[rows["method"] == name].groupby(x)[y].agg(["mean", "sem"]).fillna({"sem": 0})
        at = [places.index(value) for value in found.index] if even else found.index.to_numpy(float)
        low, high = found["mean"] - found["sem"], found["mean"] + found["sem"]
        axes.fill_between(at, low, high, color=look(name).colour, alpha=0.15, linewidth=0)
        axes.plot(at, found["mean"], color=look(name).colour, marker=look(name).marker)
    if even:
        axes.set_xticks(range(len(places)), [short(value) for value in places])


def cells(axes: Axes, texts: pd.DataFrame, colours: np.ndarray) -> None:
    """A coloured cell for each cell of the frame; ``colours``: (rows, columns, RGB)."""
    axes.pcolormesh(colours, edgecolors="white", linewidth=1.5)
    for (i, j), text in np.ndenumerate(texts):
        ink = "white" if colours[i, j] @ [0.299, 0.587, 0.114] < 0.5 else INK
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, fontsize=8.5)
    axes.set_xticks(np.arange(texts.shape[1]) + 0.5, texts.columns)
    axes.set_yticks(np.arange(len(texts)) + 0.5, [str(name)[:28] for name in texts.index])
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def shades(values: np.ndarray) -> np.ndarray:
    """From the lowest value (light) to the highest (dark)."""
    low, high = np.nanmin(values), np.nanmax(values)
    share = np.nan_to_num((values - low) / (high - low if high > low else 1))
    return colormaps["YlGnBu"](0.08 + 0.8 * share)[..., :3]


def zero_line(axes: Axes) -> None:
    axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
