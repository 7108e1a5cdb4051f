"""Matplotlib panels as SVG images, and the drawings that several sections share.

Each panel is as wide as a phone, so that no text shrinks there. Nothing goes through pyplot. The
colours are those of Okabe and Ito, safe for colour-blind eyes; the page inverts them in dark mode.
"""

import io
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogLocator

from experiments.report.numbers import short

WIDTH, HEIGHT = 4.4, 3.1  # inches
INK, MUTED = "#22262e", "#6b7280"
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crumb",  # the same rows make the same file
    "text.parse_math": False,  # a dollar sign in the name of a data set is no formula
    "font.size": 9,
    "axes.titlelocation": "left",
    **dict.fromkeys(["axes.spines.top", "axes.spines.right"], False),
}
STYLE: Any = ["seaborn-v0_8-whitegrid", SETTINGS]


class Look(NamedTuple):
    label: str
    colour: str
    marker: str = "s"


METHODS = {
    "full": Look("Full context", "#33373d", "D"),
    "knn": Look("kNN per query", "#009e73", "^"),
    "crumb exact": Look("CRUMB", "#d55e00", "o"),  # what the library does by itself
    "crumb": Look("CRUMB, as in the paper", "#e69f00", "P"),
    "micp": Look("MICP", "#0072b2", "s"),
    "uniform": Look("Uniform", "#8a8f98", "v"),
    "centroid": Look("Centroid-NN", "#b8568f", "D"),
    "voronoi": Look("Voronoi-Uniform", "#56a0d0", "v"),
    "case A": Look("A: uniform, no clusters", "#8a8f98", "v"),
    "case B": Look("B: uniform, clusters", "#56a0d0", "s"),
    "case C": Look("C: herding, no clusters", "#b8568f", "^"),
    "case D": Look("D: herding, clusters", "#e69f00", "P"),
}
# Variants of stage 2 by the first word of names such as "exact, B = 1" and "D = 64, B = 50".
KERNELS = {"exact,": Look("exact kernel", "#33373d"), "D": Look("random features", "#d55e00")}
OTHER_COLOURS, MARKERS = ("#a07d00", "#6a51a3", "#7a4a2b", "#2f6f6f"), "os^DvPX"


def look(method: str) -> Look:
    """A method without a look of its own gets the same colour in every figure and report."""
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


class Panel(NamedTuple):
    title: str
    canvas: Canvas

    @property
    def image(self) -> str:
        """An SVG as a data URI."""
        buffer = io.StringIO()
        with style.context(STYLE):
            self.canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        svg = re.sub(r"<metadata>.*?</metadata>|\n", "", buffer.getvalue(), flags=re.DOTALL)
        svg = re.sub(r"(\d+\.\d)\d{2,}", r"\1", svg)  # tenths of a point are enough
        return "data:image/svg+xml," + quote(svg[svg.index("<svg") :], safe=" /:;=,()'!@$*~")


def panel(title: str, draw: Callable[..., Any], *content: Any, **settings: Any) -> Panel:
    """One set of axes: ``draw(*content, ax=axes)``, then ``axes.set(**settings)``."""
    with style.context(STYLE):
        canvas = Canvas(figsize=(WIDTH, settings.pop("height", HEIGHT)), layout="constrained")
        axes, legend = canvas.subplots(), settings.pop("legend", False)
        draw(*content, ax=axes)
        axes.set(title=title, **settings)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":  # ticks such as 500 and 10k, not powers in small print
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.set_major_formatter(lambda value, _: short(value))
                axis.set_minor_formatter("")
        if legend:
            canvas.legend(loc="outside lower center", ncols=2, fontsize=8)
    return Panel(title, canvas)


def bars(values: pd.Series, colours: Sequence[str], reach: Any = None, *, ax: Axes) -> None:
    """Horizontal bars with the reach of their intervals, the first on top."""
    named = values.rename(lambda name: label(str(name))[:28]).rename_axis(None)
    named.plot.barh(ax=ax, color=colours, xerr=reach, width=0.7, capsize=2.5)
    ax.tick_params(axis="y", labelsize=7.5 if len(values) > 30 else 9)
    ax.invert_yaxis()


def curves(rows: pd.DataFrame, x: str, y: str, even: bool = False, *, ax: Axes) -> None:
    """Mean ± SEM of y at each x for each method; ``even``: the values of x evenly spaced."""
    found = rows.groupby([x, "method"])[y].agg(["mean", "sem"]).unstack()
    found = found.set_axis(found.index.map(short)) if even else found
    for name in in_order(rows["method"]):
        label, colour, marker = look(name)
        each = found.xs(name, axis=1, level="method").dropna(subset="mean")
        sem = each["sem"].fillna(0)
        ax.errorbar(each.index, each["mean"], sem, label=label, color=colour, marker=marker)


def cells(
    texts: pd.DataFrame, values: np.ndarray, colours: Any, top: Any = None, *, ax: Axes
) -> None:
    """A text in each cell, on the colour of its value; ``top``: the value of the last colour."""
    ax.pcolormesh(values, cmap=colours, vmax=top, edgecolors="white", linewidth=1.5, alpha=0.6)
    for (i, j), text in np.ndenumerate(texts):
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8.5)
    ax.set_xticks(np.arange(texts.shape[1]) + 0.5, texts.columns)
    ax.set_yticks(np.arange(len(texts)) + 0.5, [str(name)[:28] for name in texts.index])
    ax.invert_yaxis()
    ax.grid(visible=False)


def spreads(values: pd.DataFrame, colours: Sequence[str], dots: bool = False, *, ax: Axes) -> None:
    """For each column the mean (diamond), the middle half (box), 5 to 95 % (line), each value."""
    bars(0 * values.mean(), colours, ax=ax)
    at, q = np.arange(values.shape[1]), values.quantile([0.05, 0.25, 0.75, 0.95]).to_numpy()
    ax.hlines(at, q[0], q[3], color=colours, linewidth=1.2)
    ax.hlines(at, q[1], q[2], color=colours, linewidth=7, alpha=0.4)
    ax.scatter(values.mean(), at, marker="D", s=20, color=colours, zorder=3)
    jitter = np.random.default_rng(0).uniform(-0.3, 0.3, len(values))
    for y, (_, each) in enumerate(values.items() if dots else ()):
        ax.scatter(each, y + jitter, s=5, color=colours[y])
