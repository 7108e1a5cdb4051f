"""Stage 3 on a GPU: contexts one by one through the package, and stacked in shared passes.

    python benchmarks/fused.py --out benchmarks/results/fused.json      (needs a CUDA GPU)
    python benchmarks/fused.py --small                                  (a minute's smoke test on a CPU)

A network of the official TabICLv2 size with random weights, which do not change the cost; one ensemble member. Seconds
are the least of several runs that end when the device is done; "network" is the part spent inside the forward pass, the
rest is encoding, copying and preparing rows. "difference" is the largest one in any probability from the package's
own answers in float32.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pass_speed import OFFICIAL
from tabicl import TabICLClassifier
from tabicl._model.tabicl import TabICL

import crumb.pfn.fused as fused
from crumb.files import atomic_write
from crumb.pfn import BackendSettings, ContextTask, Output, resolve_backend
from crumb.pfn.forward import Block, forward
from crumb.pfn.tabicl import TabICLBackend
from pretraining.step import compiled_block

SMALL = {
    "embed_dim": 16,
    "col_num_blocks": 1,
    "col_num_inds": 8,
    "row_num_blocks": 1,
    "row_num_cls": 2,
    "icl_num_blocks": 2,
    "col_nhead": 2,
    "row_nhead": 2,
    "icl_nhead": 2,
}
Answers = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """Contexts to answer."""

    name: str
    sizes: list[int]  # rows of each context
    queries: int  # of each context
    columns: int
    package: bool = (
        True  # whether to wait for the package, which reads its weights again for every context
    )

    def tasks(self) -> list[ContextTask]:
        rng = np.random.default_rng(0)
        made = []
        for size in self.sizes:
            X = rng.normal(size=(size + self.queries, self.columns))
            y = rng.permutation(np.arange(size) % 3)
            made.append(ContextTask(X[:size], y, X[size:]))
        return made


def cases(small: bool) -> list[Case]:
    few, many, size, queries, columns = (4, 8, 60, 10, 5) if small else (20, 200, 2_000, 500, 20)
    unequal = np.linspace(0.75 * size, size, few).astype(int).tolist()
    return [
        Case("clusters", [size] * few, queries, columns),
        Case("clusters of unequal size", unequal, queries, columns, package=False),
        Case("clusters, more columns", [size] * few, queries, columns * 5 // 2, package=False),
        Case("a context for each query", [size // 4] * many, 1, columns, package=False),
    ]


def checkpoint(folder: Path, small: bool) -> Path:
    torch.manual_seed(0)
    config = {**OFFICIAL, **(SMALL if small else {}), "max_classes": 10, "bias_free_ln": False}
    torch.save(
        {"config": config, "state_dict": TabICL(**config).state_dict()}, folder / "network.ckpt"
    )
    return folder / "network.ckpt"


class Clock:
    """Seconds inside the network, each forward pass waited for."""

    def __init__(self, device: str, block: Block | None):
        self.device, self.block, self.seconds = device, block, 0.0

    def finish(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    @contextmanager
    def running(self) -> Iterator[None]:
        def timed(*args: Any, **kwargs: Any) -> torch.Tensor:
            self.finish()
            started = time.perf_counter()
            answer = forward(*args, **kwargs, block=self.block)
            self.finish()
            self.seconds += time.perf_counter() - started
            return answer

        fused.forward, usual = timed, fused.forward
        try:
            yield
        finally:
            fused.forward = usual

    def measure(self, work: Callable[[], Answers], repeats: int) -> tuple[dict[str, Any], Answers]:
        """The fastest of several runs after a warm-up, and the most memory that one took."""
        answers = work()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        runs = []
        for _ in range(repeats):
            self.seconds = 0.0
            self.finish()
            started = time.perf_counter()
            work()
            self.finish()
            runs.append((time.perf_counter() - started, self.seconds))
        seconds, network = min(runs)
        found: dict[str, Any] = {"seconds": round(seconds, 4)}
        if network:
            found["network_seconds"] = round(network, 4)
        if self.device == "cuda":
            found["peak_mib"] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
        return found, answers


def backend(path: Path, device: str, fuse: bool, amp: bool) -> TabICLBackend:
    made = resolve_backend(
        path, "classification", BackendSettings(1, {"use_amp": amp}, device, 0, None)
    )
    assert isinstance(made, TabICLBackend)
    made.fuse = fuse
    return made


def ways(case: Case, path: Path, device: str) -> dict[str, Callable[[], Answers]]:
    tasks, output = case.tasks(), Output("proba")

    def package() -> Answers:
        made = TabICLClassifier(
            n_estimators=1, model_path=path, device=device, use_amp=False, random_state=0
        )
        return [made.fit(task.X, task.y).predict_proba(task.queries) for task in tasks]

    def passes(fuse: bool, amp: bool) -> Callable[[], Answers]:
        made = backend(path, device, fuse, amp)
        return lambda: list(made.predict_contexts(tasks, output))

    every = {"package": package} if case.package else {}
    return every | {
        "one by one": passes(fuse=False, amp=False),
        "one by one, half precision": passes(fuse=False, amp=True),
        "fused": passes(fuse=True, amp=False),
        "fused, half precision": passes(fuse=True, amp=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes on a CPU")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--compile", action="store_true", help="compile the attention block (a minute of waiting)"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cpu" if options.small else "cuda"
    clock, results = Clock(device, compiled_block() if options.compile else None), []
    with tempfile.TemporaryDirectory() as folder, clock.running():
        path = checkpoint(Path(folder), options.small)
        for case in cases(options.small):
            reference: Answers | None = None
            for way, work in ways(case, path, device).items():
                found, answers = clock.measure(work, 1 if way == "package" else options.repeats)
                reference = reference or answers
                difference = max(
                    np.abs(a - b).max() for a, b in zip(answers, reference, strict=True)
                )
                results.append(
                    {
                        "case": case.name,
                        "way": way,
                        **found,
                        "difference": float(f"{difference:.2g}"),
                    }
                )
                print(json.dumps(results[-1]), flush=True)
    if options.out:
        settings = {k: v for k, v in vars(options).items() if k != "out"}
        settings |= {"python": platform.python_version(), "torch": torch.__version__}
        settings["device"] = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "results": results}, indent=1).encode())


if __name__ == "__main__":
    main()
