"""The picture of the demo: how each strategy does, and what one cluster of queries is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from crumb.cli.demo import Line, seconds
from crumb.cli.digits import DARKEST, SIDE, Digits
from crumb.picture import (
    CONTEXT,
    INK,
    QUERIES,
    finish,
    largest_cluster,
    new_figure,
    serving_cluster,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from crumb.plan import Plan

COLOURS = {"mmd": CONTEXT, "uniform": "#6b7686", "micp": "#1b8a7a", "full": "#5b3f8c"}
NAMES = {"mmd": "CRUMB (mmd)", "uniform": "uniform", "micp": "MICP", "full": "full context"}
TILES = (5, 8)  # rows and columns of images in a mosaic


def draw_demo(lines: list[Line], plans: dict[str, Plan], digits: Digits, path: Any) -> Figure:
    """Accuracy and seconds of every strategy; images of one cluster of queries and its contexts."""
    figure = new_figure(11.5, 4.6)
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15], squeeze=False)[0]
    above, below = left.subplots(2, 1)
    accuracy = {line["strategy"]: line["accuracy"] for line in lines}
    cost = {line["strategy"]: seconds(line) for line in lines}
    _bars(above, accuracy, "accuracy on the queries", "{:.1%}")
    _bars(below, cost, "seconds, selection and passes", "{:.1f} s")
    members = plans["mmd"].labels == largest_cluster(plans["mmd"])
    panels = right.subplots(2, 2).ravel()
    _mosaic(panels[0], digits.X_queries[members], "queries of one cluster", QUERIES)
    for panel, name in zip(panels[1:], ("mmd", "micp", "uniform"), strict=True):
        context = plans[name].contexts[serving_cluster(plans[name], members)]
        _mosaic(panel, digits.X_pool[context], f"their context: {NAMES[name]}", COLOURS[name])
    return finish(figure, path)


def _bars(axes: Axes, values: dict[str, float], title: str, label: str) -> None:
    names, colours = ([table[strategy] for strategy in values] for table in (NAMES, COLOURS))
    bars = axes.barh(names, list(values.values()), color=colours, height=0.65)
    texts = [label.format(value) for value in values.values()]
    axes.bar_label(bars, texts, padding=4, fontsize=9, color=INK)
    axes.set(title=title, xticks=[], xlim=(0, 1.18 * max(values.values())))
    axes.invert_yaxis()  # in the order of the table
    axes.spines["bottom"].set_visible(False)


def _mosaic(axes: Axes, images: np.ndarray, title: str, colour: str) -> None:
    """Images from all parts of a set, as many as there is room for."""
    rows, columns = TILES
    shown = images[np.linspace(0, len(images) - 1, min(rows * columns, len(images))).astype(int)]
    sheet = np.zeros((rows * columns, SIDE + 2, SIDE + 2))
    sheet[: len(shown), 1:-1, 1:-1] = shown.reshape(-1, SIDE, SIDE)
    tiles = sheet.reshape(rows, columns, SIDE + 2, SIDE + 2).swapaxes(1, 2)
    shades = LinearSegmentedColormap.from_list(colour, ["white", colour])
    axes.imshow(tiles.reshape(rows * (SIDE + 2), -1), cmap=shades, vmax=DARKEST)
    axes.set_title(title)
    axes.set_axis_off()
