"""Stage 2: how fast are contexts chosen, and how good is their MMD²?

    python benchmarks/stage2.py --out benchmarks/results/stage2.json
    python benchmarks/stage2.py --grow 100000 200000 400000 --out ….json    (memory and time with N)
    python benchmarks/stage2.py --data FOLDER --out ….json                  (real tables)
    python benchmarks/stage2.py --device cuda --rows 1000000 --columns 50 --queries 10000 \\
        --context-size 2000 --out ….json                                    (one GPU)

The textbook loops go cluster by cluster in numpy: exact, row by row, with the running sum kept;
and with random features, the pool embedded once, then a product and a partition a round. The peer
is coreax's KernelHerding (``pip install 'crumb-pfn[peers]'``), given the mean embedding of the
queries, compiled and warm. All ways get the same clusters of queries and the same σ. MMD² is the
exact one, averaged over the clusters. The library's ways include the clustering of the queries.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier, Plan, select_contexts
from crumb.herding.greedy import RandomFourierFeatures, Rbf
from crumb.rng import generator

Contexts = list[np.ndarray]
WAYS: dict[str, dict[str, Any]] = {
    "auto": {"kernel": "auto"},
    "exact": {"kernel": "exact"},
    "rff 64, batch 50": {"kernel": "rff", "rff_dim": 64, "herd_batch": 50},
    "rff 256, batch 10": {"kernel": "rff", "rff_dim": 256, "herd_batch": 10},
}
SLOW = ("textbook", "exact", "coreax")  # once is enough
TABLES = (
    "electricity,diamonds,adult,airline_passenger_satisfaction,GiveMeSomeCredit,poker_hand_100k,"
    "diabetes_brfss2015,census_income_kdd,heart_brfss2020,health_insurance_cross_sell"
)


class Task:
    """Blobs as points of the selection space, and what every way of choosing shares."""

    def __init__(self, options: argparse.Namespace, rows: int):
        self.n, self.seed = options.context_size, options.seed
        self.shared = {
            "model": LogisticRegression(),
            "n_clusters": options.clusters,
            "context_size": options.context_size,
            "min_per_class": 0,
            "random_state": options.seed,
            "device": options.device,
        }
        total = rows + options.queries
        X = common.blobs(total, options.columns, options.clusters, options.seed)
        self.X, self.y = X[options.queries :], np.arange(rows) % 2
        self.sigma = self.fitted(kernel="exact").bandwidth_
        fitted = self.fitted(kernel="rff", rff_dim=16)
        self.pool, self.queries = fitted.pool_.points, fitted.encode(X[: options.queries])[1]
        self.labels = fitted.plan_points(self.queries, evidence=False).labels

    def fitted(self, **more: Any) -> CrumbClassifier:
        return CrumbClassifier(**self.shared, **more).fit(self.X, self.y)

    def members(self) -> list[np.ndarray]:
        """The queries of each cluster."""
        return [self.queries[self.labels == k] for k in range(self.labels.max() + 1)]

    def plan(self, **more: Any) -> Callable[[], Plan]:
        """Stages 1 and 2 as the library does them, ready to be timed."""
        fitted = self.fitted(bandwidth=self.sigma, **more)
        return lambda: fitted.plan_points(self.queries, evidence=False)

    def mmd2(self, contexts: Contexts) -> float:
        kernel = Rbf(self.sigma)
        pairs = zip(self.members(), contexts, strict=True)
        tensors = ((torch.from_numpy(q), torch.from_numpy(self.pool[rows])) for q, rows in pairs)
        return float(np.mean([kernel.mmd2(queries, rows) for queries, rows in tensors]))


def textbook(task: Task) -> Contexts:
    pool, norms, contexts = task.pool, (task.pool**2).sum(1), []

    def kernel(x: np.ndarray) -> np.ndarray:
        return np.exp((2 * (pool @ x) - norms - x @ x) / (2 * task.sigma**2))

    for members in task.members():
        cross = np.mean([kernel(q) for q in members], axis=0)
        redundancy, chosen = np.zeros(len(pool)), []
        for t in range(task.n):
            score = -2 * cross + 2 * redundancy / (t + 1)
            score[chosen] = np.inf
            chosen.append(int(score.argmin()))
            redundancy += kernel(pool[chosen[-1]])
        contexts.append(np.array(chosen))
    return contexts


def textbook_rff(task: Task, dim: int, batch: int) -> Contexts:
    rng = generator(task.seed, "rff")  # as the library draws them
    features = RandomFourierFeatures.draw(task.pool.shape[1], dim, task.sigma, rng)
    omega, phase = features.omega.numpy(), features.phase.numpy()

    def embed(rows: np.ndarray) -> np.ndarray:
        return np.sqrt(2 / dim) * np.cos(rows @ omega + phase)

    embedded, contexts = embed(task.pool), []
    for members in task.members():
        target, total, chosen = embed(members).mean(0), np.zeros(dim), []
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
    """The peer, compiled beforehand: what is timed is the herding alone."""
    import equinox
    import jax.numpy as jnp
    from coreax import Data
    from coreax.kernels import SquaredExponentialKernel
    from coreax.solvers import KernelHerding
    from coreax.solvers.coresubset import HerdingState

    kernel = SquaredExponentialKernel(length_scale=task.sigma)
    solver = KernelHerding(coreset_size=task.n, kernel=kernel)
    data = Data(jnp.asarray(task.pool, dtype=jnp.float32))

    @equinox.filter_jit
    def herd_one(mean: Any) -> Any:
        return solver.reduce(data, HerdingState(mean))[0].unweighted_indices

    def mean_embedding(members: np.ndarray) -> Any:
        squared = (task.pool**2).sum(1)[:, None] + (members**2).sum(1) - 2 * task.pool @ members.T
        values = np.exp(-np.maximum(squared, 0) / (2 * task.sigma**2))
        return jnp.asarray(values.mean(1), dtype=jnp.float32)

    means = [mean_embedding(members) for members in task.members()]
    np.asarray(herd_one(means[0]))
    return lambda: [np.array(herd_one(mean)) for mean in means]


def measure(task: Task, skip: list[str], repeats: int) -> list[common.Record]:
    """All ways in turn, each beside the textbook loop whose choices it should repeat."""
    plans = {name: task.plan(**more) for name, more in WAYS.items()}
    ways = {name: lambda plan=plan: plan().contexts for name, plan in plans.items()}
    ways["textbook rff 64, batch 50"] = lambda: textbook_rff(task, 64, 50)
    ways["textbook"] = lambda: textbook(task)
    if "coreax" not in skip and find_spec("coreax") is not None:
        ways["coreax"] = coreax(task)
    ways = {name: way for name, way in ways.items() if name not in skip}
    found, seconds = common.in_turn(ways, repeats, SLOW)
    records = []
    for name, contexts in found.items():
        like = "textbook rff 64, batch 50" if name == "rff 64, batch 50" else "textbook"
        record: common.Record = {"way": name, "seconds": float(np.median(seconds[name]))}
        record["mmd2"] = task.mmd2(contexts)
        if "textbook" in found and like in found:
            pairs = zip(contexts, found[like], strict=True)
            record["against"] = like
            record["same_choices"] = float(np.mean([np.array_equal(a, b) for a, b in pairs]))
            record["times_faster"] = float(np.median(seconds[like])) / record["seconds"]
            record["mmd2_ratio"] = record["mmd2"] / task.mmd2(found["textbook"])
        records.append(common.say(record))
    return records


def grown(options: argparse.Namespace, rows: int) -> common.Record:
    """Time and memory of ``kernel="auto"`` in a process of its own."""
    plan = Task(options, rows).plan(kernel="auto")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, seconds = common.in_turn({"auto": plan}, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "seconds": round(min(seconds["auto"]), 3),
        "candidates": found["auto"].settings.get("candidates"),
        "more_than_the_table_mb": round((peak - before) / 1e3),
        "peak_mb": round(peak / 1e3),
    }


def on_gpu(task: Task, repeats: int) -> list[common.Record]:
    """Exact herding; the first call compiles the kernels."""
    plan = task.plan(kernel="exact")
    first = common.timed(plan)[1]
    torch.cuda.reset_peak_memory_stats()
    found, seconds = common.in_turn({"exact": plan}, repeats)
    peak = torch.cuda.max_memory_allocated() / 2**30
    record = {"first_call": first, "seconds": min(seconds["exact"]), "peak_gib": peak}
    return [common.say(record | {"mmd2": task.mmd2(found["exact"].contexts)})]


def mean_mmd2(plan: Plan) -> float:
    """By the exact kernel, weighted by queries."""
    kernel = Rbf(plan.settings["bandwidth"])
    pool, queries = (torch.from_numpy(p).double() for p in (plan.pool_points, plan.query_points))
    values = [
        kernel.mmd2(pool[rows], queries[plan.labels == k]) for k, rows in enumerate(plan.contexts)
    ]
    return float(np.average(values, weights=np.bincount(plan.labels)))


def on_table(name: str, frame: pd.DataFrame, n: int, queries: int) -> list[common.Record]:
    """``select_contexts`` on a real table, whose rows are pool and queries."""
    frame = frame.sample(frac=1.0, random_state=0)
    records: list[common.Record] = []
    for way in ("exact", "auto", "rff 256, batch 10", "rff 64, batch 50"):
        more = {"context_size": n, "device": "cpu", **WAYS[way]}
        plan, seconds = common.timed(
            lambda more=more: select_contexts(frame[queries:], frame[:queries], **more)
        )
        record = {"table": name, "rows": len(frame) - queries, "columns": frame.shape[1]}
        record |= {"way": way, "seconds": round(seconds, 2), "kernel": plan.settings["kernel"]}
        record |= {"mmd2": mean_mmd2(plan), "candidates": plan.settings.get("candidates")}
        exact = records[0] if records else record
        record["mmd2_ratio"] = round(record["mmd2"] / exact["mmd2"], 3)
        records.append(common.say(record))
    return records


def on_tables(folder: Path, names: str, options: argparse.Namespace) -> list[common.Record]:
    about = common.index(folder)
    records = []
    for name in names.split(","):
        frame, _ = common.read_table(folder, about[name])
        records += on_table(name, frame, options.context_size, options.queries)
    return records


def main() -> None:
    parser = common.parser(
        __doc__,
        rows=200_000,
        columns=20,
        queries=1_000,
        clusters=20,
        context_size=500,
        seed=0,
        repeats=5,
    )
    common.add_data(parser, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--skip", nargs="*", default=[], help="ways to leave out")
    parser.add_argument("--grow", nargs="*", type=int, help="numbers of rows")
    parser.add_argument("--tables", default=TABLES, help="with --data: names, with commas")
    options = parser.parse_args()
    if options.data:
        records = on_tables(options.data, options.tables, options)
    elif options.grow:
        records = [common.say(common.in_own_process(grown, options, rows)) for rows in options.grow]
    elif options.device != "cpu":
        records = on_gpu(Task(options, options.rows), options.repeats)
    else:
        records = measure(Task(options, options.rows), options.skip, options.repeats)
    common.write(options, records, options.device)


if __name__ == "__main__":
    main()
