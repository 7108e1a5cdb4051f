"""Stage 2 on a CPU: the textbook loops of the paper and a peer against this library, on clustered tables.

    python benchmarks/stage2.py --out benchmarks/results/stage2.json
    python benchmarks/stage2.py --grow 100000 200000 400000 --out benchmarks/results/stage2_growth.json

The textbook loops go cluster by cluster in numpy: exact, row by row, with the running sum kept; and with random
features, the pool embedded once, then a matrix–vector product and a partition a round. The peer is coreax's
KernelHerding (``pip install 'crumb-pfn[peers]'``) with the mean embedding of the queries injected, compiled and warm,
the time of that embedding left out. All ways get the same clusters of queries and the same σ; seconds are one after the
other in one run, MMD² is the exact one, averaged over the clusters. With --grow, ``kernel="auto"`` plans in a process
of its own for each number of rows, to see its memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_blobs

from crumb.files import atomic_write
from crumb.herding.candidates import herd_candidates
from crumb.herding.greedy import herd
from crumb.herding.kernel import RandomFourierFeatures, Rbf, median_bandwidth
from crumb.herding.objective import Clusters, ExactObjective, RffObjective
from crumb.herding.search import Load, resolve_search
from crumb.parallel import block_threads
from crumb.selection.clustering import cluster

Contexts = list[np.ndarray]


@dataclass
class Task:
    pool: np.ndarray
    queries: np.ndarray
    labels: np.ndarray
    sigma: float
    n: int

    @classmethod
    def of(cls, options: argparse.Namespace, rows: int) -> Task:
        X, _ = make_blobs(
            rows + options.queries,
            options.columns,
            centers=options.clusters,
            random_state=options.seed,
        )
        X = (X - X.mean(0)) / X.std(0)
        pool, queries = X[options.queries :], X[: options.queries]
        labels, _ = cluster(queries, options.clusters, options.seed)
        return cls(
            pool, queries, labels, median_bandwidth(pool, np.random.default_rng(0)), options.budget
        )

    @property
    def clusters(self) -> int:
        return int(self.labels.max()) + 1

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            torch.from_numpy(self.pool),
            torch.from_numpy(self.queries),
            torch.from_numpy(self.labels),
        )

    def features(self, dim: int) -> RandomFourierFeatures:
        return RandomFourierFeatures.draw(
            self.pool.shape[1], dim, self.sigma, np.random.default_rng(0)
        )


def textbook(task: Task) -> Contexts:
    pool, norms, contexts = task.pool, (task.pool**2).sum(1), []

    def kernel(x: np.ndarray) -> np.ndarray:
        return np.exp((2 * (pool @ x) - norms - x @ x) / (2 * task.sigma**2))

    for k in range(task.clusters):
        cross = np.mean([kernel(q) for q in task.queries[task.labels == k]], axis=0)
        redundancy, chosen = np.zeros(len(pool)), []
        for t in range(task.n):
            score = -2 * cross + 2 * redundancy / (t + 1)
            score[chosen] = np.inf
            chosen.append(int(score.argmin()))
            redundancy += kernel(pool[chosen[-1]])
        contexts.append(np.array(chosen))
    return contexts


def textbook_rff(task: Task, dim: int, batch: int) -> Contexts:
    features = task.features(dim)
    omega, phase = features.omega.numpy(), features.phase.numpy()

    def embed(rows: np.ndarray) -> np.ndarray:
        return np.sqrt(2 / dim) * np.cos(rows @ omega + phase)

    embedded, contexts = embed(task.pool), []
    for k in range(task.clusters):
        target, total, chosen = embed(task.queries[task.labels == k]).mean(0), np.zeros(dim), []
        while len(chosen) < task.n:
            score = embedded @ (2 * total / (len(chosen) + 1) - 2 * target)
            score[chosen] = np.inf
            count = min(batch, task.n - len(chosen))
            best = np.argpartition(score, count)[:count]
            best = best[np.argsort(score[best], kind="stable")]
            total += embedded[best].sum(0)
            chosen += best.tolist()
        contexts.append(np.array(chosen))
    return contexts


def coreax(task: Task) -> Callable[[], Contexts]:
    """The peer, compiled beforehand."""
    import equinox
    import jax.numpy as jnp
    from coreax import Data
    from coreax.kernels import SquaredExponentialKernel
    from coreax.solvers import KernelHerding
    from coreax.solvers.coresubset import HerdingState

    kernel = SquaredExponentialKernel(length_scale=task.sigma)
    solver, data = (
        KernelHerding(coreset_size=task.n, kernel=kernel),
        Data(jnp.asarray(task.pool, dtype=jnp.float32)),
    )

    @equinox.filter_jit
    def herd_one(mean: Any) -> Any:
        return solver.reduce(data, HerdingState(mean))[0].unweighted_indices

    def mean_embedding(members: np.ndarray) -> Any:
        squared = (task.pool**2).sum(1)[:, None] + (members**2).sum(1) - 2 * task.pool @ members.T
        return jnp.asarray(
            np.exp(-np.maximum(squared, 0) / (2 * task.sigma**2)).mean(1), dtype=jnp.float32
        )

    means = [mean_embedding(task.queries[task.labels == k]) for k in range(task.clusters)]
    np.asarray(herd_one(means[0]))  # compiled; what is timed is the herding alone

    def herd_all() -> Contexts:
        return [np.array(herd_one(mean)) for mean in means]

    return herd_all


def ways(task: Task) -> dict[str, Callable[[Any], Contexts]]:
    P, Q, L = task.tensors()
    exact, n, clusters = Rbf(task.sigma), task.n, Clusters(Q, L)
    auto = resolve_search("auto", 256, "auto", Load(len(P), len(Q), len(clusters), n))
    assert auto.name == "candidates"

    def rff(dim: int, batch: int) -> Callable[[Any], Contexts]:
        features = task.features(dim).like(P)
        return lambda blocks: [
            h.indices for h in herd(RffObjective(features, P, clusters, blocks), n, batch)
        ]

    return {
        "auto": lambda blocks: [
            h.indices
            for h in herd_candidates(exact, P, clusters, n, auto.most_candidates, 0, blocks)[0]
        ],
        "exact": lambda blocks: [
            h.indices for h in herd(ExactObjective(exact, P, clusters, blocks), n)
        ],
        "rff 64, batch 50": rff(64, 50),
        "rff 256, batch 10": rff(256, 10),
        "textbook rff 64, batch 50": lambda _: textbook_rff(task, 64, 50),
        "textbook": lambda _: textbook(task),
    }


def measure(task: Task, skip: list[str], repeats: int) -> list[dict[str, Any]]:
    P, Q, L = task.tensors()
    exact, records = Rbf(task.sigma), []
    todo: dict[str, Callable[[Any], Contexts]] = ways(task)
    if "coreax" not in skip and find_spec("coreax") is None:
        print("coreax is not installed (pip install 'crumb-pfn[peers]'): left out")
    elif "coreax" not in skip:
        peer = coreax(task)
        todo = {"coreax": lambda _: peer(), **todo}
    for name, way in todo.items():
        if name in skip:
            continue
        seconds = []
        for _ in range(1 if name in ("textbook", "exact", "coreax") else repeats):
            with block_threads(None) as blocks:
                started = time.perf_counter()
                contexts = way(blocks)
                seconds.append(time.perf_counter() - started)
        traces = [exact.prefix_mmd2(P[rows], Q[k == L]) for k, rows in enumerate(contexts)]
        mmd2 = float(np.mean([float(trace[-1]) for trace in traces]))
        records.append(
            {
                "way": name,
                "seconds": round(float(np.median(seconds)), 3),
                "mmd2": mmd2,
                "contexts": contexts,
            }
        )
        print(f"{name}: {records[-1]['seconds']:.2f} s, mean MMD² {mmd2:.3g}", flush=True)
    by_name = {record["way"]: record for record in records}
    for record in records:
        reference = (
            "textbook rff 64, batch 50" if record["way"] == "rff 64, batch 50" else "textbook"
        )
        pairs = zip(record["contexts"], by_name[reference]["contexts"], strict=True)
        record["same_choices"] = float(np.mean([np.array_equal(a, b) for a, b in pairs]))
        record["against"] = reference
        record["times_faster"] = round(by_name[reference]["seconds"] / record["seconds"], 1)
        record["mmd2_ratio"] = round(record["mmd2"] / by_name["textbook"]["mmd2"], 4)
    for record in records:
        del record["contexts"]
        print(record)
    return records


def grow(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time and memory of ``select_contexts`` at several numbers of rows, each in a process of its own."""
    records = []
    for rows in options.grow:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            records.append(pool.apply(_grown, (options, rows)))
        print(records[-1], flush=True)
    return records


def _grown(options: argparse.Namespace, rows: int) -> dict[str, Any]:
    task = Task.of(options, rows)
    P, Q, L = task.tensors()
    clusters = Clusters(Q, L)
    most = resolve_search(
        "auto", 256, "auto", Load(rows, len(Q), task.clusters, task.n)
    ).most_candidates
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(3):
        with block_threads(None) as blocks:
            started = time.perf_counter()
            _, doubling = herd_candidates(Rbf(task.sigma), P, clusters, task.n, most, 0, blocks)
            seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "seconds": round(min(seconds), 3),
        "candidates": doubling.candidates,
        "more_than_the_table_mb": round((peak - before) / 1e3),
        "peak_mb": round(peak / 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--clusters", type=int, default=20)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--skip", nargs="*", default=[], help="ways to leave out")
    parser.add_argument("--grow", nargs="*", type=int, help="numbers of rows")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    records = (
        grow(options)
        if options.grow
        else measure(Task.of(options, options.rows), options.skip, options.repeats)
    )
    if options.out:
        settings = {
            key: value for key, value in vars(options).items() if key not in ("out", "skip", "grow")
        }
        with atomic_write(options.out) as file:
            file.write(json.dumps({"settings": settings, "records": records}, indent=1).encode())


if __name__ == "__main__":
    main()
