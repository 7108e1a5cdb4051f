"""Variants compared at the end of a run: each begins with the same network and cools down.

What a network can become shows only when its rate falls. All runs share one process, so that the
network is compiled once.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from crumb.files import atomic_write
from pretraining import ablation
from pretraining.training import Training


def compare(
    runs: list[str],
    start: Path,
    steps: int,
    size: str,
    device: str,
    tables: Path | None,
    out: Path,
    export: Path | None = None,
) -> dict[str, Any]:
    """The losses of every run after these steps, written down after each.

    ``export``: a folder for the networks.
    """
    results: dict[str, Any] = {}
    for run in runs:
        path = export / f"{run.replace('/', '-')}.ckpt" if export else None
        results[run] = one(run, start, steps, size, device, tables, path)
        print(json.dumps(results[run]), flush=True)
        with atomic_write(out) as file:
            file.write(json.dumps(results, indent=1).encode())
    return results


def one(
    run: str,
    start: Path,
    steps: int,
    size: str,
    device: str,
    tables: Path | None,
    export: Path | None = None,
) -> dict[str, Any]:
    variant, task, seed = ablation.named(run)
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder, "from"), task, size, variant, seed, device, start)
        training.cool_down(Path(folder, "to"), steps=steps)
        began = time.monotonic()
        training.prepare()
        ready = time.monotonic()
        losses = _trained(training)
        seconds = time.monotonic() - ready
        training.progress.seconds += seconds
        if export is not None:
            export.parent.mkdir(parents=True, exist_ok=True)
            training.export(export)
    return {
        "run": run,
        "start": start.name,
        "steps": steps,
        "ready_after": round(ready - began, 1),
        "seconds": round(seconds, 1),
        "loss": round(float(torch.stack(losses[-steps // 4 :]).nanmean()), 5),
        "final": ablation.judged(training, tables),
    }


def _trained(training: Training) -> list[torch.Tensor]:
    losses = []
    for step, shape, batch in training.batches(training.progress.step, training.end):
        losses.append(training.do_step(shape, batch, training.curriculum.rate_at(step)))
        training.count(step, shape)
        if step % 10 == 9:
            losses[-1].item()  # the host runs ahead: wait, so that the clock is the GPU's
    return losses
