"""Threads over blocks against torch's own threading, for exact herding on a CPU, idle and beside two busy processes.

python benchmarks/threads.py --rows 50000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from crumb.herding.greedy import herd
from crumb.herding.kernel import Rbf
from crumb.herding.objective import Clusters, ExactObjective
from crumb.parallel import block_threads


def own(pool: torch.Tensor, clusters: Clusters, steps: int) -> None:
    with block_threads(None) as map_blocks:
        herd(ExactObjective(Rbf(5.0), pool, clusters, map_blocks), steps)


def torchs(pool: torch.Tensor, clusters: Clusters, steps: int) -> None:
    herd(ExactObjective(Rbf(5.0), pool, clusters), steps)


def seconds(run: Callable[..., None], rows: int, steps: int) -> float:
    rng = np.random.default_rng(0)
    pool, queries = (torch.from_numpy(rng.normal(size=(size, 20))) for size in (rows, 400))
    started = time.perf_counter()
    run(pool, Clusters(queries, torch.arange(400) % 20), steps)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    for busy in (0, 2):
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            for run in (own, torchs):
                print(
                    f"{busy} busy processes, {run.__name__}: {seconds(run, options.rows, options.steps):.1f} s",
                    flush=True,
                )
        finally:
            for process in others:
                process.kill()


if __name__ == "__main__":
    main()
