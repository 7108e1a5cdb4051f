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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4), width_ratios=(1.35, 1, 1))
    variants(axes[0], json.loads((args.results / "ablations.json").read_text()))
    for axis, task in zip(axes[1:], ("classification", "regression"), strict=True):
        run(axis, json.loads((args.results / f"{task}.json").read_text()))
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
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


def run(axis: Any, progress: dict[str, Any]) -> None:
    """The loss of the training, and at the end of a piece the held-out one."""
    log = progress["log"]
    minutes = [entry["seconds"] / 60 for entry in log]
    axis.plot(minutes, [entry["loss"] for entry in log], color=OTHER, label="training, 10 s")
    for name, marker, label in (
        ("raw_mean", "x", "held-out, last step"),
        ("average_mean", "o-", "held-out, averaged weights"),
    ):
        points = [(m, entry[name]) for m, entry in zip(minutes, log, strict=True) if name in entry]
        axis.plot(*zip(*points, strict=True), marker, color="#1b6ca8", label=label)
    axis.set(xlabel="GPU minutes", ylim=(0, None))
    loss = "log-loss" if progress["task"] == "classification" else "pinball loss"
    axis.set_title(f"{progress['task']}: {loss}", fontsize=10)
    axis.legend(fontsize=8, frameon=False)


if __name__ == "__main__":
    main()
