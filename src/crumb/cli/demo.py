"""``crumb demo``: the strategies side by side on the embedded model; seconds, no download.

The table is scikit-learn's handwritten digits, tilted a little.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import crumb
from crumb import picture
from crumb.cli.console import print_json, print_table
from crumb.cli.options import verbosity
from crumb.cli.tables import PICTURES, check_output
from crumb.errors import InvalidInput

Line = dict[str, Any]  # a row of the table that is printed
CONTEXT_ROWS, QUERIES = 300, 300
SIDE, DARKEST = 8, 16.0  # images are 8 × 8 pixels
TILTS = (0, 5, -5, 10, -10, 15, -15)  # degrees
TILES = (5, 8)  # rows and columns of images in a mosaic
CLUSTERS = 20  # as many contexts as MICP has here
STRATEGIES = {  # name and colour in the picture
    "uniform": ("uniform", "#6b7686"),
    "micp": ("MICP", "#1b8a7a"),
    "mmd": ("CRUMB (mmd)", picture.CONTEXT),
    "full": ("full context", "#5b3f8c"),
}


class Digits(NamedTuple):
    X_pool: np.ndarray
    y_pool: np.ndarray
    X_queries: np.ndarray
    y_queries: np.ndarray


def run(args: argparse.Namespace) -> None:
    check_output(args.out, PICTURES)
    digits = tilted_digits(args.rows)
    context = min(CONTEXT_ROWS, args.rows // 5)
    if not args.json:
        print(
            f"Handwritten digits, {digits.X_pool.shape[1]} pixels: {args.rows:,} pool rows, "
            f"{len(digits.X_queries)} queries, contexts of {context} rows, the embedded network."
        )
    lines, plans = compare(digits, context, verbosity(args))
    draw_demo(lines, plans, digits, args.out)
    if args.json:
        print_json({"strategies": lines, "picture": args.out})
        return
    print_table(lines)
    print(f"\nThe picture is in {args.out}. On a table of your own:")
    print("  crumb predict --train train.csv --test test.csv --target NAME --out predictions.csv")


def tilted_digits(n_rows: int) -> Digits:
    """``n_rows`` labelled images and 300 queries; no query is a tilted copy of a pool row."""
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(images))
    queries, originals = order[:QUERIES], order[QUERIES:]
    largest = len(originals) * len(TILTS)
    if not 100 <= n_rows <= largest:
        raise InvalidInput(f"--rows must be between 100 and {largest:,}, got {n_rows:,}.")
    copies = rng.permutation(largest)[:n_rows]
    source = originals[copies % len(originals)]
    return Digits(
        X_pool=_tilted(images[source], copies // len(originals)),
        y_pool=labels[source],
        X_queries=_tilted(images[queries], rng.integers(len(TILTS), size=QUERIES)),
        y_queries=labels[queries],
    )


def _tilted(rows: np.ndarray, tilts: np.ndarray) -> np.ndarray:
    """Each image turned about its middle, still in whole levels of grey."""
    images = rows.reshape(-1, SIDE, SIDE)
    turned = np.empty_like(images)
    for index, degrees in enumerate(TILTS):
        mine = tilts == index
        turned[mine] = rotate(images[mine], degrees, axes=(1, 2), reshape=False, order=1)
    return turned.round().clip(0, DARKEST).reshape(len(rows), -1)


def compare(digits: Digits, context: int, verbose: int) -> tuple[list[Line], dict[str, crumb.Plan]]:
    """Every strategy with the same network, the same pool and the same context size."""
    # Load the network and start the threads first: the first strategy must not pay for them.
    warm_up = crumb.CrumbClassifier(context_size=20).fit(digits.X_pool[:100], digits.y_pool[:100])
    warm_up.predict(digits.X_queries[:2])
    lines: list[Line] = []
    plans = {}
    for strategy in STRATEGIES:
        model = crumb.CrumbClassifier(
            strategy=strategy,
            n_clusters=CLUSTERS if strategy == "mmd" else "auto",
            context_size=context,
            features=None,  # pixels all say the same kind of thing
            verbose=verbose,
        )
        model.fit(digits.X_pool, digits.y_pool)
        started = time.perf_counter()
        plans[strategy] = plan = model.plan(digits.X_queries)
        planned = time.perf_counter()
        proba = model.predict_proba(digits.X_queries, plan=plan)
        passed = time.perf_counter()
        lines.append(
            {
                "strategy": strategy,
                "contexts": plan.n_clusters,
                "rows": int(plan.sizes.max()),
                # The classes are the digits, so a column's number is its class.
                "accuracy": float((proba.argmax(axis=1) == digits.y_queries).mean()),
                "roc_auc": float(roc_auc_score(digits.y_queries, proba, multi_class="ovr")),
                "selection_s": round(planned - started, 2),
                "passes_s": round(passed - planned, 2),
            }
        )
    return lines, plans


def draw_demo(lines: list[Line], plans: dict[str, crumb.Plan], digits: Digits, path: str) -> Figure:
    """Accuracy and seconds of every strategy; images of one cluster of queries and its contexts."""
    figure = picture.new_figure(11.5, 4.6)
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.15], squeeze=False)[0]
    above, below = left.subplots(2, 1)
    _bars(above, [line["accuracy"] for line in lines], "accuracy on the queries", "{:.1%}")
    seconds = [line["selection_s"] + line["passes_s"] for line in lines]
    _bars(below, seconds, "seconds, selection and passes", "{:.1f} s")
    members = plans["mmd"].labels == picture.largest_cluster(plans["mmd"])
    panels = right.subplots(2, 2).ravel()
    _mosaic(panels[0], digits.X_queries[members], "queries of one cluster", picture.QUERIES)
    for panel, strategy in zip(panels[1:], ("mmd", "micp", "uniform"), strict=True):
        plan, (name, colour) = plans[strategy], STRATEGIES[strategy]
        context = plan.contexts[picture.serving_cluster(plan, members)]
        _mosaic(panel, digits.X_pool[context], f"their context: {name}", colour)
    return picture.finish(figure, path)


def _bars(axes: Axes, values: list[float], title: str, label: str) -> None:
    names, colours = zip(*STRATEGIES.values(), strict=True)
    bars = axes.barh(names, values, color=colours, height=0.65)
    texts = [label.format(value) for value in values]
    axes.bar_label(bars, texts, padding=4, fontsize=9, color=picture.INK)
    axes.set(title=title, xticks=[], xlim=(0, 1.18 * max(values)))
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
