"""The picture of the model card: loss against GPU time, of every variant and of the runs so far.

    python -m pretraining.pictures --out docs/images/ablations.png

It reads ``pretraining/results``: what ``ablate --out`` wrote, and ``progress.json`` of the runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MARKED = {"ranks-fourier": "#1b6ca8", "base": "#444444", "base@1": "#444444"}
OTHER = "#b5b5b5"
RUNS = {  # how their files end, and their colours
    "from nothing": ("", OTHER),
    "from nothing, cooled": ("-cooled", "#777777"),
    "from 0.1": ("-continued", "#1b6ca8"),
    "from 0.1, certain": ("-certain", "#c1592b"),
    "from 0.1, deeper": ("-deeper", "#3f8f4f"),
    "from 0.1, even": ("-even", "#b58bc9"),
    "gentle-even": ("-gentle", "#7b2d8e"),
    "gentle-even, longer": ("-gentle-long", "#d11f6a"),
    "its continuation, smooth": ("-smooth", "#c48a00"),
    "its continuation, larger batches": ("-double", "#0a8f8f"),
    "again from its trunk": ("-double-on", "#e02020"),
}
ENDED = {"classification-deeper": 22_691}  # when its rate began to fall: the log has both pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), width_ratios=(1.35, 1, 1))
    variants(axes[0], json.loads((args.results / "ablations.json").read_text()))
    lines: dict[str, Any] = {}
    for axis, task in zip(axes[1:], ("classification", "regression"), strict=True):
        lines |= runs(axis, args.results, task)
        axis.set_xlabel("GPU minutes after the start")
        loss = "log-loss" if task == "classification" else "pinball loss"
        axis.set_title(f"{task}: {loss}, held-out tables", fontsize=10)
    ends = axes[1].inset_axes((0.46, 0.5, 0.54, 0.46), xlim=(22, 33.5), ylim=(0.4899, 0.4937))
    runs(ends, args.results, "classification")
    ends.tick_params(labelsize=7)
    axes[1].indicate_inset_zoom(ends)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    named = [(lines[name], name) for name in RUNS]
    figure.legend(*zip(*named, strict=True), loc="lower right", ncols=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(args.out, dpi=120)


def variants(axis: Any, results: dict[str, Any]) -> None:
    """Held-out loss of the averaged weights; names in the order of the last points."""
    done = [result for result in results.values() if "curve" in result]
    done.sort(key=lambda result: result["final"]["average"]["mean"])
    for place, result in enumerate(done):
        seconds = [point["seconds"] for point in result["curve"]]
        losses = [point["average"]["mean"] for point in result["curve"]]
        colour = MARKED.get(result["run"], OTHER)
        axis.plot(seconds, losses, "o-", color=colour, markersize=3, linewidth=1.3)
        text = f"{result['run']}  {losses[-1]:.3f}".replace("0.", ".")
        colour = MARKED.get(result["run"], "#777777")
        axis.text(21.3, 0.615 + 0.0125 * place, text, va="center", fontsize=8, color=colour)
    axis.set(xlabel="GPU seconds", ylabel="log-loss, held-out synthetic tables", xlim=(5, 29))
    axis.set_title("variants, equal seconds", fontsize=10)


def runs(axis: Any, folder: Path, task: str) -> dict[str, Any]:
    """Held-out loss of the averaged weights, of every run of a task, as lines by their names;
    dashed: the rate falls."""
    lines = {}
    for name, (ending, colour) in RUNS.items():
        path = folder / f"{task}{ending}.json"
        if not path.exists():
            continue
        progress = json.loads(path.read_text())
        points = [
            (entry["step"], entry["seconds"] / 60, entry["average_mean"])
            for entry in progress["log"]
            if "average_mean" in entry
        ]
        turn = ENDED.get(f"{task}{ending}") or (progress["cooling"] or [progress["step"]])[0]
        constant = [point[1:] for point in points if point[0] <= turn]
        falling = [*constant[-1:], *(point[1:] for point in points if point[0] > turn)]
        (line,) = axis.plot(*zip(*falling, strict=True), "o--", color=colour, markersize=3)
        if constant:
            (line,) = axis.plot(*zip(*constant, strict=True), "o-", color=colour, markersize=3)
        lines[name] = line
    return lines


if __name__ == "__main__":
    main()
