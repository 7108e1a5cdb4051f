"""The demo's picture: what each strategy gets right and costs, and what one cluster of queries is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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

    from crumb.cli.demo import Outcome

COLOURS = {"mmd": CONTEXT, "uniform": "#6b7686", "micp": "#1b8a7a", "full": "#5b3f8c"}
NAMES = {"mmd": "CRUMB (mmd)", "uniform": "uniform", "micp": "MICP", "full": "full context"}
TILES = (5, 8)  # rows and columns of images in a mosaic


def draw_demo(outcomes: list[Outcome], digits: Digits, path: Any) -> Figure:
    """Accuracy and seconds of every strategy; the images of one cluster of queries and of its contexts."""
    figure = new_figure(11.5, 4.6)
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15], squeeze=False)[0]
    accuracy, seconds = left.subplots(2, 1)
    _bars(
        accuracy,
        outcomes,
        [outcome.accuracy for outcome in outcomes],
        "accuracy on the queries",
        "{:.1%}",
    )
    _bars(
        seconds,
        outcomes,
        [outcome.seconds for outcome in outcomes],
        "seconds, selection and passes",
        "{:.1f} s",
    )
    plans = {outcome.strategy: outcome.plan for outcome in outcomes}
    members = plans["mmd"].labels == largest_cluster(plans["mmd"])
    panels = right.subplots(2, 2).ravel()
    _mosaic(panels[0], digits.X_queries[members], "queries of one cluster", QUERIES)
    for panel, strategy in zip(panels[1:], ("mmd", "micp", "uniform"), strict=True):
        context = plans[strategy].contexts[serving_cluster(plans[strategy], members)]
        _mosaic(
            panel, digits.X_pool[context], f"their context: {NAMES[strategy]}", COLOURS[strategy]
        )
    return finish(figure, path)


def _bars(axes: Axes, outcomes: list[Outcome], values: list[float], title: str, label: str) -> None:
    names = [NAMES[outcome.strategy] for outcome in outcomes]
    bars = axes.barh(
        names, values, color=[COLOURS[outcome.strategy] for outcome in outcomes], height=0.65
    )
    axes.bar_label(
        bars, [label.format(value) for value in values], padding=4, fontsize=9, color=INK
    )
    axes.set(title=title, xticks=[], xlim=(0, 1.18 * max(values)))
    axes.invert_yaxis()  # in the order of the table
    axes.spines["bottom"].set_visible(False)


def _mosaic(axes: Axes, images: np.ndarray, title: str, colour: str) -> None:
    """Images of a set, as many as there is room for, drawn from all of it."""
    from matplotlib.colors import LinearSegmentedColormap

    rows, columns = TILES
    shown = images[np.linspace(0, len(images) - 1, min(rows * columns, len(images))).astype(int)]
    sheet = np.zeros((rows * columns, SIDE + 2, SIDE + 2))
    sheet[: len(shown), 1:-1, 1:-1] = shown.reshape(-1, SIDE, SIDE)
    tiled = (
        sheet.reshape(rows, columns, SIDE + 2, SIDE + 2)
        .swapaxes(1, 2)
        .reshape(rows * (SIDE + 2), -1)
    )
    axes.imshow(
        tiled, cmap=LinearSegmentedColormap.from_list(colour, ["white", colour]), vmax=DARKEST
    )
    axes.set_title(title)
    axes.set_axis_off()
