"""Where does a training step's time go? tabicl's own training pass, ours, ours recorded as a CUDA graph, and the prior.

    python benchmarks/pretrain_speed.py --out benchmarks/results/pretrain_speed.json     (needs a CUDA GPU)

Milliseconds per step, median of several, for a few shapes of the curriculum; then the whole loop for some seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from crumb.files import atomic_write
from crumb.pfn.forward import Block
from pretraining.draw import Draw
from pretraining.network import TEMPERATURE, build, configuration
from pretraining.optimiser import Optimiser
from pretraining.prior import Batch, Shape, sample
from pretraining.step import EagerSteps, RecordedSteps, compiled_block
from pretraining.training import Training

SHAPES = [
    Shape(150, 200, 12, 120, 3),
    Shape(60, 600, 10, 400, 3),
    Shape(20, 1000, 24, 700, 1),
    Shape(6, 6000, 16, 5000, 1),
]


def milliseconds(work: Callable[[], Any], repeats: int = 10) -> float:
    times = []
    for i in range(repeats + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(1e3 * (time.perf_counter() - started))
    return round(statistics.median(times), 2)


class PackageSteps(EagerSteps):
    """tabicl's own training pass under autocast, as its trainer runs it."""

    def _backward(self, batch: Batch) -> torch.Tensor:
        self.optimiser.gradients.zero_()
        train = batch.y.shape[1] - batch.weight.shape[1]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            answer = self.network(batch.X, batch.y[:, :train])
        logits = answer.float().flatten(0, 1) / TEMPERATURE
        loss = F.cross_entropy(logits, batch.y[:, train:].long().flatten(), reduction="none")
        (loss * batch.weight.flatten()).sum().backward()
        return (loss * batch.weight.flatten()).sum().detach()


def measure(shape: Shape, block: Block, profiled: bool) -> dict[str, Any]:
    """Milliseconds of a step of one shape in every way, of the optimiser alone, and of drawing the tables."""
    batch = sample("classification", shape, Draw("cuda", 1))
    row: dict[str, Any] = {"shape": str(shape)}
    ways: dict[str, Callable[..., EagerSteps]] = {
        "tabicl": partial(PackageSteps, dtype=torch.bfloat16),
        "ours": partial(EagerSteps, dtype=torch.bfloat16),
        "recorded": RecordedSteps,
        "compiled": partial(RecordedSteps, block=block),
    }
    for name, steps_of in ways.items():
        network = build(configuration("classification"), 0).cuda()
        steps = steps_of(network, Optimiser(network))
        step = partial(steps, shape, batch, 0.0)
        started = time.perf_counter()
        row[f"{name}_loss"] = float(step())
        row[f"{name}_first_s"] = round(time.perf_counter() - started, 2)
        row[name] = milliseconds(step)
    row["optimiser"] = milliseconds(steps.update.replay)
    seeds = iter(range(10_000))
    row["prior"] = milliseconds(
        lambda: sample("classification", shape, Draw("cuda", next(seeds))), 30
    )
    if profiled:
        profile(step)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--profile", action="store_true", help="print the kernels that take the time"
    )
    options = parser.parse_args()
    torch.backends.cuda.enable_cudnn_sdp(False)
    results: list[dict[str, Any]] = []
    block = compiled_block()
    for shape in SHAPES:
        results.append(measure(shape, block, options.profile))
        print(results[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), "classification", device="cuda")
        for family in training.shapes:
            print([(s.tables, s.rows, s.features) for s in family])
        for name, minutes in (
            ("with recording", options.seconds / 60),
            ("after", options.seconds / 60),
        ):
            before = training.progress.step
            started = time.perf_counter()
            training.run(minutes)
            took = time.perf_counter() - started
            row = {
                "loop": name,
                "ms_per_step": round(1e3 * took / (training.progress.step - before), 2),
            }
            row |= training.progress.log[-1]
            results.append(row)
            print(row, torch.cuda.max_memory_allocated() >> 20, "MiB", flush=True)
    if options.out:
        with atomic_write(options.out) as file:
            file.write(
                json.dumps(
                    {"device": torch.cuda.get_device_name(), "results": results}, indent=1
                ).encode()
            )


def profile(step: Callable[[], Any]) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    print(
        seen.key_averages().table(sort_by="cuda_time_total", row_limit=18, max_name_column_width=70)
    )


if __name__ == "__main__":
    main()
