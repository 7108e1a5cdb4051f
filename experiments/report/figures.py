"""Matplotlib panels as SVG images, and the marks that several figures share.

Each panel is as wide as a phone: panels that stand in a row on a desk stack up there, and no text
shrinks. Nothing goes through pyplot. The colours are those of Okabe and Ito, safe for colour-blind
eyes; they are drawn for a light page, and the page inverts the images in dark mode.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.report import numbers
from experiments.report.blocks import Key, Panel

WIDTH, HEIGHT = 4.4, 3.1  # inches
INK, MUTED, GRID = "#22262e", "#6b7280", "#dfe3e8"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "crumb",  # the same rows make the same file
    "text.parse_math": False,  # a dollar sign in the name of a data set is no formula
    "font.sans-serif": ["Segoe UI", "Roboto", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


class Look(NamedTuple):
    label: str
    colour: str
    marker: str


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
OTHER_COLOURS, MARKERS = ("#a07d00", "#6a51a3", "#7a4a2b", "#2f6f6f"), "os^DvPX"


def look(method: str) -> Look:
    """A method that is not in the paper gets the same colour in every figure and report."""
    number = zlib.crc32(method.encode())
    other = Look(method, OTHER_COLOURS[number % 4], MARKERS[number % 7])
    return METHODS.get(method, other)


def label(method: str) -> str:
    return look(method).label


def in_order(methods: Iterable[str]) -> list[str]:
    """Known methods in the paper's order, then the others by name."""
    places = {name: place for place, name in enumerate(METHODS)}
    return sorted(methods, key=lambda name: (places.get(name, len(places)), name))


def keys(methods: Iterable[str]) -> list[Key]:
    return [Key(*look(name)) for name in methods]


def panel(
    title: str, draw: Callable[[Axes], None], width: float = WIDTH, height: float = HEIGHT
) -> Panel:
    """One set of axes, drawn by the given function."""
    with rc_context(STYLE):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        axes = canvas.subplots()
        draw(axes)
        axes.set_title(title)
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", buffer.getvalue(), flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", svg[svg.index("<svg") :])
    svg = re.sub(r"(\d+\.\d)\d{2,}", r"\1", svg)  # tenths of a point are enough
    return Panel(title, "data:image/svg+xml," + quote(svg, safe=" /:;=,()'!@$*~"), width)


def bars(axes: Axes, summary: pd.DataFrame, names: Sequence[str], colours: Sequence[str]) -> None:
    """Mean ranks with their intervals, the first on top, each with its value behind it."""
    at, means = np.arange(len(summary))[::-1], summary["mean"].to_numpy(float)
    reach = (summary["high"] - summary["mean"]).fillna(0).to_numpy(float)
    axes.barh(at, means, color=colours, height=0.66)
    axes.errorbar(means, at, xerr=reach, fmt="none", ecolor=INK, elinewidth=1, capsize=2.5)
    ends = means + reach
    for y, mean, end in zip(at, means, ends, strict=True):
        axes.annotate(
            numbers.fixed(mean, 2), (end, y), (4, 0), textcoords="offset points", va="center"
        )
    axes.set(xlabel="mean rank (1 is best)", xlim=(0, ends.max() * 1.14))
    name_lines(axes, at, names)


def name_lines(axes: Axes, at: np.ndarray, names: Sequence[str]) -> None:
    axes.set_yticks(at, [str(name)[:28] for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def curve(axes: Axes, grouped: Any, method: str, at: Sequence[float] | None = None) -> None:
    """Means of the groups with ±1 SEM around them; ``at``: where the groups lie, if not at their keys."""
    means, colour = grouped.agg(["mean", "sem"]).fillna({"sem": 0.0}), look(method).colour
    x = means.index.to_numpy(float) if at is None else at
    low, high = means["mean"] - means["sem"], means["mean"] + means["sem"]
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, means["mean"], color=colour, marker=look(method).marker)


def rank_curves(axes: Axes, placed: pd.DataFrame, values: Any, xlabel: str) -> None:
    """Mean rank of every method at each of a few values, evenly spaced, the best on top."""
    at = np.unique(values)
    for method in placed.columns:
        curve(axes, placed[method].groupby(np.asarray(values)), method, range(len(at)))
    axes.set_xticks(range(len(at)), [numbers.short(value) for value in at])
    axes.set(xlabel=xlabel, ylabel="mean rank")
    axes.invert_yaxis()


def cells(axes: Axes, colours: np.ndarray, texts: pd.DataFrame) -> None:
    """A coloured cell with its text for each cell of the frame; ``colours``: (rows, columns, RGB)."""
    axes.imshow(colours, aspect="auto")
    for i, j in np.ndindex(texts.shape):
        dark = colours[i, j] @ [0.299, 0.587, 0.114] < 0.5
        ink = "white" if dark else "#15181c"
        axes.text(j, i, texts.iloc[i, j], ha="center", va="center", color=ink, fontsize=8.5)
    axes.set_xticks(range(texts.shape[1]), texts.columns)
    axes.set_yticks(range(len(texts)), [str(name)[:28] for name in texts.index])
    axes.set_xticks(np.arange(texts.shape[1] - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(texts) - 1) + 0.5, minor=True)
    axes.grid(visible=False)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def shades(values: np.ndarray) -> np.ndarray:
    """From the lowest value (light) to the highest (dark)."""
    low, high = np.nanmin(values), np.nanmax(values)
    share = np.nan_to_num((values - low) / (high - low if high > low else 1))
    return colormaps["YlGnBu"](0.08 + 0.8 * share)[..., :3]


def strip(axes: Axes, at: float, values: np.ndarray, colour: str) -> None:
    """Dots side by side, the box of the middle half, and a diamond at the mean."""
    if not len(values):
        return
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    axes.bar(at, high - low, 0.6, bottom=low, color=colour, alpha=0.18, edgecolor=colour)
    axes.plot([at - 0.3, at + 0.3], [middle, middle], color=colour)
    spread = np.random.default_rng(0).uniform(-0.2, 0.2, len(values))
    axes.scatter(at + spread, values, s=9, color=colour, alpha=0.65, linewidths=0)
    axes.scatter(at, values.mean(), s=34, marker="D", color=colour, edgecolors="white", zorder=5)


def logarithmic(axis: Any) -> None:
    """Ticks such as 500 and 10k: the usual ones are powers in small print."""
    low, high = sorted(axis.get_view_interval())
    few = high / max(low, 1e-12) < 150
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: numbers.short(value)))
    axis.set_minor_formatter(NullFormatter())


def zero_line(axes: Axes, vertical: bool = False) -> None:
    line = axes.axvline if vertical else axes.axhline
    line(0, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
