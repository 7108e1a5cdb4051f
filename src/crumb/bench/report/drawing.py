"""Matplotlib figures as inline SVG that takes its colours and its font from the page.

Each panel is drawn at the size of a phone's width, so that panels in a row on a desk stand one below the other on a
phone, and no text shrinks. Nothing goes through pyplot.
"""

from __future__ import annotations

import html
import io
import re
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.bench.report import palette, words
from crumb.bench.report.blocks import Key, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 4.4, 3.1  # inches
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be found, copied and read aloud
    "text.parse_math": False,  # a dollar sign in the name of a data set is no formula
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "text.color": palette.INK,
    "axes.labelcolor": palette.INK,
    "axes.titlecolor": palette.INK,
    "axes.edgecolor": palette.MUTED,
    "xtick.color": palette.MUTED,
    "ytick.color": palette.MUTED,
    "xtick.labelcolor": palette.INK,
    "ytick.labelcolor": palette.INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": palette.GRID,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "axes.unicode_minus": True,
}


def panel(
    name: str,
    title: str,
    alt: str,
    draw: Callable[[Axes], None],
    width: float = WIDTH,
    height: float = HEIGHT,
    wide: bool = False,
) -> Panel:
    """One set of axes, drawn by the given function. ``name`` must be its own on the page: ids are made of it."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    settings: Any = {**STYLE, "svg.hashsalt": name}  # matplotlib types every key, each release its own
    with rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.set_title(title)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return Panel(inline(buffer.getvalue(), name, title, alt, width), wide)


def inline(svg: str, name: str, title: str, alt: str, width: float) -> str:
    """What matplotlib wrote, as a part of a page: ids of its own, no outside names, the page's colours and font."""
    svg = svg[svg.index("<svg") :]
    for unwanted in (r"<metadata>.*?</metadata>", r"<style[^>]*>.*?</style>", r"<!--.*?-->", r"<defs>\s*</defs>"):
        svg = re.sub(unwanted, "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href", "href")
    wanted = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    prefix = f"{zlib.crc32(name.encode()):x}"
    svg = re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], prefix, wanted), svg)  # tags only: text stays as it is
    box = re.search(r'viewBox="[^"]+"', svg)
    body = re.sub(r">\s+<", "><", svg[svg.index(">") + 1 :]).strip()
    heading = f'<title id="{name}-title">{html.escape(title)}</title><desc id="{name}-desc">{html.escape(alt)}</desc>'
    opening = (
        f'<svg class="plot" role="img" aria-labelledby="{name}-title {name}-desc" {box[0] if box else ""} '
        f'style="max-width:{width * 120:.0f}px">'
    )
    return opening + heading + body


def _tag(tag: str, prefix: str, wanted: set[str]) -> str:
    # Only what is referred to needs an id, and ids of two figures must not meet on one page.
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in wanted else "", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", tag)
    tag = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), tag)
    tag = re.sub(r"font: ((?:\w+ )*)([\d.]+)px [^;\"]+", _font, tag)  # how some releases of matplotlib write it
    tag = re.sub(r"font-family: [^;\"]+;? ?", "", tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]+"', "", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda m: palette.css_colour(m[0]), tag)
    return re.sub(r"\s*\n\s*", " ", tag).replace(' "', '"').replace("; ", ";").replace(": ", ":")


def _font(match: re.Match[str]) -> str:
    weight = "font-weight: 600; " if re.search(r"bold|[67]00", match[1]) else ""
    return f"{weight}font-size: {match[2]}px"


def keys(methods: Sequence[str]) -> list[Key]:
    return [Key(palette.label(name), palette.look(name).light, palette.look(name).marker) for name in methods]


def model_markers(models: Sequence[str]) -> dict[str, str]:
    return {model: palette.MARKERS[index % len(palette.MARKERS)] for index, model in enumerate(models)}


def plain_logarithm(axis: Any) -> None:
    """Ticks such as 500 and 10k: the usual ones are formulas, and too small to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    decades = np.log10(max(high, 1e-12) / max(low, 1e-12))
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.2 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: words.short(value)))
    axis.set_minor_formatter(NullFormatter())


def horizontal_bars(
    axes: Axes, names: Sequence[str], values: Any, low: Any, high: Any, colours: Sequence[str], label: str
) -> None:
    """Bars with intervals, the first on top, each with its value behind it."""
    values, low, high = (np.asarray(each, dtype=float) for each in (values, low, high))
    at = np.arange(len(names))[::-1]
    axes.barh(at, values, color=colours, height=0.66)
    known = np.isfinite(low)
    reach = np.where(known, [values - low, high - values], 0)
    axes.errorbar(values, at, xerr=reach, fmt="none", ecolor=palette.INK, elinewidth=1, capsize=2.5)
    ends = np.where(known, high, values)
    room = 0.02 * (np.nanmax(ends) if len(ends) else 1)
    for position, value, end in zip(at, values, ends, strict=True):
        axes.text(end + room, position, words.fixed(value, 2), va="center", fontsize=8.5)
    axes.set_yticks(at, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlim(right=float(np.nanmax(ends)) * 1.14)
    axes.set_xlabel(label)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def heat_map(
    axes: Axes, values: np.ndarray, texts: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Cells coloured from the lowest value (light) to the highest (dark), with their text in them."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    known = values[np.isfinite(values)]
    scale = Normalize(known.min(), known.max() if np.ptp(known) else known.min() + 1) if len(known) else Normalize()
    shades = colormaps["YlGnBu"]
    for i, j in np.ndindex(values.shape):
        share = float(scale(values[i, j])) if np.isfinite(values[i, j]) else 0.0
        # The two ends of the scale are cut: pure white and near-black vanish on one page or the other.
        colour = shades(0.08 + 0.8 * share)
        light = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
        cell(axes, i, j, colour, texts[i][j], "#15181c" if light > 0.5 else "#ffffff")
    frame_cells(axes, rows, columns)


def cell(axes: Axes, row: int, column: int, colour: Any, text: str, ink: str, size: float = 8.5) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=palette.PAPER, linewidth=1.5))
    axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, color=ink, linespacing=1.15)


def frame_cells(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def strip(axes: Axes, position: float, values: np.ndarray, colour: str, seed: int = 0) -> None:
    """Dots side by side, the box of the middle half, and a diamond at the mean."""
    from matplotlib.patches import Rectangle

    values = values[np.isfinite(values)]
    if not len(values):
        return
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    box = Rectangle((position - 0.3, low), 0.6, high - low, facecolor=colour, alpha=0.18, edgecolor=colour)
    axes.add_patch(box)
    axes.plot([position - 0.3, position + 0.3], [middle, middle], color=colour, linewidth=1.4)
    spread = np.random.default_rng(seed).uniform(-0.2, 0.2, len(values))
    axes.scatter(position + spread, values, s=9, color=colour, alpha=0.65, linewidths=0)
    axes.scatter([position], [values.mean()], s=34, marker="D", color=colour, edgecolors=palette.PAPER, zorder=5)


def zero_line(axes: Axes) -> None:
    axes.axhline(0, color=palette.MUTED, linewidth=1, linestyle=(0, (4, 3)))
