"""Stage 2 on a GPU: exact herding by two Triton kernels a step against the same choices by torch's own operations.

    python benchmarks/stage2_gpu.py --out benchmarks/results/stage2_gpu.json

Cross-terms are included; the first call, which compiles the kernels, is shown beside the warm ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from crumb.files import atomic_write
from crumb.herding.gpu import GpuObjective
from crumb.herding.greedy import Herded, herd
from crumb.herding.kernel import Rbf, median_bandwidth
from crumb.herding.objective import Clusters, ExactObjective
from crumb.selection.clustering import cluster


def timed(work: Callable[[], object]) -> tuple[float, object]:
    torch.cuda.synchronize()
    started = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--budget", type=int, default=2_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, options.columns)) * 2
    X = centres[rng.integers(30, size=options.rows + options.queries)] + rng.normal(
        size=(options.rows + options.queries, options.columns)
    )
    X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    queries, pool = X[: options.queries], X[options.queries :]
    labels, _ = cluster(queries, options.clusters, 0)
    kernel = Rbf(median_bandwidth(pool, np.random.default_rng(0)))
    P, Q, L = (torch.from_numpy(part).cuda() for part in (pool, queries, labels))
    clusters = Clusters(Q, L)

    def fused() -> list[Herded]:
        return herd(GpuObjective(kernel, P, clusters), options.budget)

    def eager() -> list[Herded]:
        return herd(ExactObjective(kernel, P, clusters), options.budget)

    record: dict[str, object] = {"device": torch.cuda.get_device_name()}
    exact = ExactObjective(kernel, P, clusters)
    record["cross_terms"] = min(timed(lambda: exact.cross_terms(clusters))[0] for _ in range(3))
    record["triton_first_call"] = timed(fused)[0]
    torch.cuda.reset_peak_memory_stats()
    seconds, found = min((timed(fused) for _ in range(3)), key=lambda pair: pair[0])
    record["triton"], record["triton_peak_gib"] = seconds, torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    record["torch"], expected = min((timed(eager) for _ in range(2)), key=lambda pair: pair[0])
    record["torch_peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    assert isinstance(found, list)
    assert isinstance(expected, list)
    record["mmd2_triton"], record["mmd2_torch"] = (
        float(
            np.mean(
                [
                    float(kernel.prefix_mmd2(P[c.indices].double(), Q[k == L].double())[-1])
                    for k, c in enumerate(contexts)
                ]
            )
        )
        for contexts in (found, expected)
    )
    same = [
        int(np.argmin(np.append(a.indices == b.indices, False)))
        for a, b in zip(found, expected, strict=True)
    ]
    record["choices_before_the_first_difference"] = same
    print(json.dumps(record, indent=1))
    if options.out:
        settings = {key: value for key, value in vars(options).items() if key != "out"}
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, **record}, indent=1).encode())


if __name__ == "__main__":
    main()
