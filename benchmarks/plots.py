"""The pictures of performance.md, online.md and defaults.md in docs, from the results here.

python benchmarks/plots.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

RESULTS, PICTURES = (
    Path(__file__).parent / "results",
    Path(__file__).parent.parent / "docs" / "images",
)
COLOURS = {
    "auto": "#0072B2",
    "candidates": "#0072B2",
    "exact": "#555555",
    "textbook": "#999999",
    "coreax": "#CC79A7",
    "rff 256, batch 10": "#E69F00",
    "rff 64, batch 50": "#D55E00",
    "textbook rff 64, batch 50": "#F0A36B",
}

DRIFT: dict[str, tuple[str, dict[str, str]]] = {
    "drift": ("refresh='drift'", {"color": "#0072B2"}),
    "never": ("refresh='never'", {"color": "#E69F00"}),
    "drift alone": ("drift, for the queries alone", {"color": "#0072B2", "linestyle": ":"}),
    "never alone": ("never, for the queries alone", {"color": "#E69F00", "linestyle": ":"}),
    "micp": ("MICP", {"color": "#CC79A7"}),
}


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


def save(figure: Any, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / name, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def stage2() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    seconds_and_mmd2(left)
    real_tables(right)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    save(figure, "stage2.png")


def seconds_and_mmd2(axes: Any) -> None:
    for record in read("stage2.json")["records"]:
        way, place = record["way"], (record["seconds"], record["mmd2"])
        axes.scatter(*place, s=60, color=COLOURS[way], zorder=3)
        below = way in ("rff 64, batch 50", "coreax", "exact")
        where = {"xytext": (0, -16 if below else 9), "textcoords": "offset points"}
        axes.annotate(way, place, ha="center", fontsize=8, **where)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="mean MMD²")
    axes.set(xlim=(0.15, 200), ylim=(8e-7, 2e-2), title="200,000 rows in blobs, two cores")


def real_tables(axes: Any) -> None:
    tables: dict[str, dict[str, float]] = {}
    for record in read("stage2_real.json")["records"]:
        tables.setdefault(record["table"], {})[record["way"]] = record["mmd2_ratio"]
    for i, ratios in enumerate(tables.values()):
        for way in ("auto", "rff 256, batch 10", "rff 64, batch 50"):
            label = way if i == 0 else None
            axes.scatter(ratios[way], i, color=COLOURS[way], label=label, zorder=3)
    axes.axvline(1.0, color="#999999", linewidth=1)
    axes.set(xscale="log", xlabel="MMD² as a multiple of exact herding's", title="real tables")
    axes.set_yticks(range(len(tables)), list(tables), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0.8, 5_000)
    axes.legend(fontsize=8, loc="center right")


def stage3() -> None:
    results = [
        r
        for r in read("fused.json")["records"]
        if r["case"] in ("clusters", "a context for each query")
    ]
    names = {
        "clusters": "20 contexts of 2,000 rows,\n500 queries each",
        "a context for each query": "200 contexts of\n500 rows, 1 query each",
    }
    figure, all_axes = plt.subplots(1, 2, figsize=(10.5, 3.2))
    for axes, (case, title) in zip(all_axes, names.items(), strict=True):
        mine = [record for record in results if record["case"] == case]
        axes.barh([r["way"] for r in mine], [r["seconds"] for r in mine], color="#0072B2")
        for place, record in enumerate(mine):
            axes.annotate(
                f" {record['seconds']:.2f} s", (record["seconds"], place), va="center", fontsize=8
            )
        axes.invert_yaxis()
        axes.set(xscale="log", xlabel="seconds on an H200", title=title, xlim=(0.05, 60))
        axes.tick_params(labelsize=8)
    figure.tight_layout()
    save(figure, "stage3.png")


def online_drift() -> None:
    """Accuracy while the queries slide along the table; the mean of five steps at a time."""
    curves: dict[str, dict[str, dict[float, list[float]]]] = {}
    for record in read("online_drift.json")["records"]:
        curve = curves.setdefault(record["table"], {}).setdefault(record["way"], {})
        curve.setdefault(record["tau"], []).append(record["accuracy"])
    columns = min(4, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 2.8 * rows), squeeze=False, layout="constrained"
    )
    for axes, (table, found) in zip(panels.flat, curves.items(), strict=False):
        for way, (label, style) in DRIFT.items():
            if way in found:
                taus = np.array(sorted(found[way]))
                accuracy = np.array([np.mean(found[way][tau]) for tau in taus])
                axes.plot(smooth(taus), smooth(accuracy), label=label, **style)
        axes.set_title(table, fontsize=9)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
    for axes in panels.flat[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel("how far the queries have slid along the first component (τ)", fontsize=9)
    figure.supylabel("accuracy", fontsize=9)
    panels[0, 0].legend(fontsize=8)
    save(figure, "online_drift.png")


def sizes() -> None:
    """What K contexts of n rows cost and bring: the mean loss over large tables."""
    losses: dict[str, dict[str, float]] = {}
    for record in read("large_sizes.json")["records"]:
        loss = record.get("log_loss", record.get("rmse"))
        losses.setdefault(record["method"], {})[record["table"]] = math.log(loss)
    first = losses["200x500-plain"]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for method, found in losses.items():
        numbers = [int(number) for number in method.split("-")[0].split("x") if number.isdigit()]
        both = [found[table] - first[table] for table in first if table in found]
        if len(numbers) < 2 or len(both) < len(first):  # on some tables only
            continue
        (clusters, size), weighed = numbers, "plain" not in method
        place = clusters * size, math.exp(np.mean(both))
        axes.plot(*place, "o", color=COLOURS["auto"] if weighed else COLOURS["exact"])
        label = f"{clusters} × {size:,}" + (", columns weighed" if weighed else "")
        shift = (6, -11 if size == 2_000 else 4)
        axes.annotate(label, place, xytext=shift, textcoords="offset points", fontsize=8)
    axes.set(xscale="log", xlabel="rows of all contexts, K · n", xlim=(8e4, 7e5))
    axes.set_ylabel("loss, relative to 200 × 500 (mean of 27 tables)")
    axes.grid(alpha=0.3)
    save(figure, "sizes.png")


def policy() -> None:
    """Seconds against the loss, by the number of queries; the frontier, and what "auto" takes."""
    records = read("policy_cpu.json")["records"]
    counts = sorted({record["queries"] for record in records})
    figure, panels = plt.subplots(1, len(counts), figsize=(13, 3.6), layout="constrained")
    for axes, queries in zip(panels, counts, strict=True):
        points = frontier_points([r for r in records if r["queries"] == queries])
        ordered = sorted(points.values())
        lowest = np.minimum.accumulate([loss for _, loss in ordered])
        axes.step([x for x, _ in ordered], lowest, where="post", color=COLOURS["exact"], alpha=0.5)
        for (clusters, size), place in points.items():
            auto = clusters == "auto"
            axes.plot(*place, "D" if auto else "o", color=COLOURS["auto" if auto else "textbook"])
            label = "auto" if auto else f"{clusters} × {size:,}"
            axes.annotate(label, place, xytext=(4, 4), textcoords="offset points", fontsize=7)
        axes.set(xscale="log", yscale="log", title=f"{queries:,} queries")
        axes.yaxis.set_major_formatter("{x:.2f}")
        axes.yaxis.set_minor_formatter("{x:.2f}")
        axes.tick_params(labelsize=7, which="both")
        axes.grid(alpha=0.3)
    figure.supxlabel("seconds of two cores: planning and passes", fontsize=9)
    figure.supylabel("loss, relative to each table's best", fontsize=9)
    save(figure, "policy.png")


def frontier_points(records: list[Any]) -> dict[tuple[Any, Any], tuple[float, float]]:
    """Mean seconds and loss of each K and n, over the tables that have all of them."""
    tables: dict[Any, dict[tuple[Any, Any], Any]] = {}
    for record in records:
        choice = record["clusters"], record["size"]
        tables.setdefault((record["table"], record["seed"]), {})[choice] = record
    every = set.intersection(*(set(found) for found in tables.values()))
    best = {name: min(one["loss"] for one in found.values()) for name, found in tables.items()}
    points = {}
    for choice in every:
        some = [(name, found[choice]) for name, found in tables.items()]
        seconds = np.mean([one["cpu_seconds"] / 2 for _, one in some])
        losses = [math.log(one["loss"] / best[name]) for name, one in some]
        points[choice] = float(seconds), math.exp(np.mean(losses))
    return points


def smooth(values: np.ndarray, width: int = 5) -> np.ndarray:
    return (
        np.convolve(values, np.full(width, 1 / width), mode="valid")
        if len(values) >= width
        else values
    )


if __name__ == "__main__":
    stage2()
    stage3()
    if (RESULTS / "online_drift.json").exists():  # from real tables, which not everybody has
        online_drift()
    sizes()
    policy()
