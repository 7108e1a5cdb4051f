"""Stage 3: what passes cost.

    python benchmarks/stage3.py fused --out benchmarks/results/fused.json        (needs a CUDA GPU)
    python benchmarks/stage3.py fused --small                                    (a minute on a CPU)
    python benchmarks/stage3.py mixed --out benchmarks/results/mixed.json        (needs a CUDA GPU)
    python benchmarks/stage3.py mixed --small                                    (a minute on a CPU)
    python benchmarks/stage3.py powers --out benchmarks/results/powers.json      (CPU or CUDA)
    python benchmarks/stage3.py side --out benchmarks/results/side_by_side.json  (CPU)
    python benchmarks/stage3.py kept --out benchmarks/results/kept_contexts.json (CPU)
    python benchmarks/stage3.py size --out benchmarks/results/pass_speed.json    (CPU)
    python benchmarks/stage3.py models --out benchmarks/results/model_costs.json (CPU)
    python benchmarks/stage3.py widths --out benchmarks/results/width_costs.json (CPU)

fused: contexts one by one through the package, and stacked in shared passes. "network_seconds" is
the part inside the forward pass; the rest is encoding, copying and preparing rows. "difference" is
the largest one in any probability from the package's own answers in float32.
mixed: contexts of a table of 117,000 rows with 12 columns of categories and 17 of numbers, 2,000
queries. "prepare_seconds" is what is not the network; "package_prepare_seconds" is what the
package's own encoders take for the same contexts, one by one, from a sample of them;
"fit_seconds" is what it takes once to bring the pool to numbers.
powers: four members, of which every second has the norm method "power": done for each context by
the package's transformers, and for whole stacks. 500 contexts, or on a CPU 8 of them in one thread,
in seconds of the processor; each stacked and, on a CPU, side by side.
side: contexts on a CPU, one after the other through the package, and side by side, one thread each;
milliseconds a context, the fastest of several runs in turn; "processor_ms" with one thread.
kept: repeated prediction with a frozen plan, with and without what is kept of its contexts.
size: one pass of the embedded network, and of a network of the official TabICLv2 size.
models: one pass of a classifier of every official size that is known, in passes of embedded-0.1.
widths: one pass of networks that the training can make, in passes of embedded-0.1, and their files.

Networks of the official size, and those of "widths", have random weights, which do not change the
cost; one member.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import common
import numpy as np
import pandas as pd
import torch

import crumb.pfn.fused as fused
from crumb import CrumbClassifier, CrumbRegressor
from crumb.infer import infer
from crumb.machine import quiet
from crumb.pfn import BackendSettings, ContextTask, Output, resolve_backend
from crumb.pfn.forward import forward
from crumb.pfn.preprocess import Columns
from crumb.pfn.tabicl import TabICLBackend
from crumb.pool import HeldRows
from crumb.table.encoder import TableEncoder
from pretraining import state
from pretraining.network import build, configuration
from pretraining.variants import OURS, VARIANTS

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
TWICE = {"embed_dim": 96, "col_nhead": 6, "row_nhead": 6}  # the widest column embedding
WIDTHS = {  # embedding, in-context blocks x their width
    "48, 6 x 240": VARIANTS["ranks-fourier"].widths,
    "48, 10 x 240": VARIANTS["deeper"].widths,
    "64, 6 x 256": VARIANTS["wide"].widths,
    "96, 6 x 192": {**TWICE, "row_num_cls": 2, "icl_nhead": 8},
    "96, 6 x 288": {**TWICE, "row_num_cls": 3, "icl_nhead": 12},
    "96, 6 x 480": {**TWICE, "row_num_cls": 5, "icl_nhead": 10},
}
Answers = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """Contexts to answer."""

    name: str
    sizes: list[int]  # rows of each context
    queries: int  # of each context
    columns: int
    package: bool = False  # it reads its weights again for every context: it takes long

    def tasks(self) -> list[ContextTask]:
        rng = np.random.default_rng(0)
        made = []
        for size in self.sizes:
            X = rng.normal(size=(size + self.queries, self.columns))
            y = rng.permutation(np.arange(size) % 3)
            made.append(ContextTask.of(X[:size], y, X[size:]))
        return made


def cases(small: bool) -> list[Case]:
    few, many, size, queries, columns = (4, 8, 60, 10, 5) if small else (20, 200, 2_000, 500, 20)
    unequal = np.linspace(0.75 * size, size, few).astype(int).tolist()
    return [
        Case("clusters", [size] * few, queries, columns, package=True),
        Case("clusters of unequal size", unequal, queries, columns),
        Case("clusters, more columns", [size] * few, queries, columns * 5 // 2),
        Case("a context for each query", [size // 4] * many, 1, columns),
    ]


class Clock:
    """Seconds inside the network, each forward pass waited for."""

    seconds = 0.0

    def __init__(self, timed: Callable[[Callable[[], Any]], tuple[Any, float]] = common.timed):
        self.timed = timed

    @contextmanager
    def running(self) -> Iterator[None]:
        def watched(*words: Any, **more: Any) -> torch.Tensor:
            answer, seconds = self.timed(lambda: forward(*words, **more))
            self.seconds += seconds
            return answer

        fused.forward, usual = watched, fused.forward
        try:
            yield
        finally:
            fused.forward = usual

    def fastest(self, work: Callable[[], Answers], repeats: int) -> common.Record:
        """The fastest of several runs, and the most memory that one took."""
        cuda = torch.cuda.is_initialized()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        runs = []
        for _ in range(repeats):
            self.seconds = 0.0
            runs.append((self.timed(work)[1], self.seconds))
        seconds, network = min(runs)
        found: common.Record = {"seconds": round(seconds, 4)}
        if network:
            found["network_seconds"] = round(network, 4)
        if cuda:
            found["peak_mib"] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
        return found


def fused_ways(case: Case, path: Path, device: str) -> dict[str, Callable[[], Answers]]:
    tasks, output = case.tasks(), Output("proba")

    def package() -> Answers:
        from tabicl import TabICLClassifier

        made = TabICLClassifier(
            n_estimators=1, model_path=path, device=device, use_amp=False, random_state=0
        )
        return [made.fit(task.X, task.y).predict_proba(task.queries) for task in tasks]

    def passes(fuse: bool, half: bool) -> Callable[[], Answers]:
        settings = BackendSettings(1, {"use_amp": half}, device, 0, None)
        made: Any = resolve_backend(path, "classification", settings)
        made.fuse = fuse
        return lambda: list(made.predict_contexts(tasks, output))

    ways = {"package": package} if case.package else {}
    return ways | {
        "one by one": passes(fuse=False, half=False),
        "one by one, half precision": passes(fuse=False, half=True),
        "fused": passes(fuse=True, half=False),
        "fused, half precision": passes(fuse=True, half=True),
    }


def measure_fused(options: argparse.Namespace) -> list[common.Record]:
    device, records = "cpu" if options.small else "cuda", []
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, clock.running():
        path = common.write_network(folder, **(SMALL if options.small else {}))
        for case in cases(options.small):
            reference: Answers | None = None
            for way, work in fused_ways(case, path, device).items():
                answers = work()  # and a warm-up
                found = clock.fastest(work, 1 if way == "package" else options.repeats)
                reference = reference or answers
                pairs = zip(answers, reference, strict=True)
                found["difference"] = float(f"{max(np.abs(a - b).max() for a, b in pairs):.2g}")
                records.append(common.say({"case": case.name, "way": way, **found}))
    return records


@dataclass(frozen=True)
class Mixed:
    """A table with categories, numbers and holes, and random contexts of it."""

    rows: int
    queries: int

    def frame(self, rows: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        levels = np.geomspace(2, 200, 12).astype(int)
        columns = {
            f"c{j}": pd.Series(rng.integers(0, most, rows)).map("v{:03d}".format)
            for j, most in enumerate(levels)
        }
        columns |= {f"x{j}": pd.Series(rng.normal(size=rows)) for j in range(17)}
        table = pd.DataFrame(columns)
        return table.mask(rng.random(table.shape) < 0.02)

    def pool(self) -> tuple[HeldRows, TableEncoder]:
        encoder = TableEncoder()
        rows = encoder.fit_transform(self.frame(self.rows, 0))
        y = np.random.default_rng(2).integers(0, 2, self.rows)
        return HeldRows(rows, y, np.arange(self.rows), 2, b"pool"), encoder


def measure_mixed(options: argparse.Namespace) -> list[common.Record]:
    size = Mixed(20_000, 40) if options.small else Mixed(117_000, 2_000)
    shapes = [(4, 1_000), (8, 500)] if options.small else [(300, 1_000), (1_000, 500), (2_000, 500)]
    pool, encoder = size.pool()
    queries = encoder.transform(size.frame(size.queries, 1))
    device = "cpu" if options.small else "cuda"
    backend = network_backend(options.weights[0], device, n_jobs=1)
    fit_seconds = common.timed(lambda: pool.numbers.columns)[1]
    records = []
    for clusters, n in shapes:
        rng, clock = np.random.default_rng(3), Clock()
        contexts = [np.sort(rng.choice(size.rows, n, replace=False)) for _ in range(clusters)]
        labels = np.arange(size.queries) % clusters
        words = backend, pool, contexts, labels, queries, Output("proba")
        with clock.running():
            found = clock.fastest(lambda words=words: infer(*words), options.repeats)
        found["prepare_seconds"] = round(found["seconds"] - found["network_seconds"], 4)
        some = contexts[:: max(1, clusters // 8)]
        taken = sum(common.timed(lambda ids=ids: as_package(pool, ids))[1] for ids in some)
        found["package_prepare_seconds"] = round(taken / len(some) * clusters, 3)
        record = {"clusters": clusters, "rows": n, "fit_seconds": round(fit_seconds, 3), **found}
        records.append(common.say(record))
    return records


def as_package(pool: HeldRows, ids: np.ndarray) -> np.ndarray:
    """What tabicl does to a context before its network sees it."""
    from tabicl._sklearn.preprocessing import EnsembleGenerator, TransformToNumerical

    rows = pool.slice(ids).rows()
    with quiet():
        numbers = TransformToNumerical().fit(rows).transform(rows)
    made = EnsembleGenerator(classification=True, n_estimators=1, norm_methods="none")
    return made.fit(numbers, pool.labels(ids)).transform(numbers[:7])


def network_backend(
    weights: str, device: str, n_jobs: int | None = None, **more: Any
) -> TabICLBackend:
    made = resolve_backend(
        weights, "classification", BackendSettings(1, more, device, seed=0, n_jobs=n_jobs)
    )
    assert isinstance(made, TabICLBackend)
    return made


def measure_powers(options: argparse.Namespace) -> list[common.Record]:
    """Contexts of 1,000 rows, 50 queries each, 20 columns of several kinds."""
    cuda = torch.cuda.is_available() and not options.small
    clusters, n = (2, 100) if options.small else (500 if cuda else 8, 1_000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * n, 20))
    X[:, 5:10], X[:, 10:14] = np.exp(X[:, 5:10]), rng.poisson(2, (len(X), 4))
    X[:, 14:17], X[:, 17:] = X[:, 14:17] > 0, rng.standard_cauchy((len(X), 3))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    pool = HeldRows(X, y, np.arange(len(X)), 2, b"pool")
    contexts = [np.sort(rng.choice(len(X), n, replace=False)) for _ in range(clusters)]
    queries = X[rng.choice(len(X), 50 * clusters)]
    labels, output = np.arange(len(queries)) % clusters, Output("proba")
    clock = Clock(common.timed if cuda else common.processor_timed)
    backend = network_backend(
        options.weights[0], "cuda" if cuda else "cpu", n_jobs=1, n_estimators=4
    )
    words = backend, pool, contexts, labels, queries, output
    rules = {"package": lambda _, norm: norm == "none", "stacks": Columns.stacked}
    modes = {"stacked": True} if cuda else {"stacked": True, "side by side": None}
    runs: dict[tuple[str, str], list[common.Record]] = {}
    answers: dict[tuple[str, str], np.ndarray] = {}

    def answer(key: tuple[str, str]) -> None:
        answers[key] = infer(*words)

    for mode, way in [*product(modes, rules)] * options.repeats:
        backend.fuse, Columns.stacked = modes[mode], rules[way]
        with clock.running():
            run = clock.fastest(partial(answer, (mode, way)), 1)
        run["prepare_seconds"] = round(run["seconds"] - run["network_seconds"], 4)
        run["difference"] = float(np.abs(answers[mode, way] - answers[mode, "package"]).max())
        runs.setdefault((mode, way), []).append(run)
    return [
        common.say({"mode": mode, "way": way, **min(some, key=lambda run: run["prepare_seconds"])})
        for (mode, way), some in runs.items()
    ]


def measure_side(options: argparse.Namespace) -> list[common.Record]:
    """1,000 rows of context, 50 queries, 20 columns."""
    clusters, n = (2, 100) if options.small else (max(4, os.cpu_count() or 1), 1_000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * n, 20))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    pool = HeldRows(X, y, np.arange(len(X)), 2, b"pool")
    contexts = [np.sort(rng.choice(len(X), n, replace=False)) for _ in range(clusters)]
    queries = rng.normal(size=(50 * clusters, 20))
    labels, output = np.arange(len(queries)) % clusters, Output("proba")
    kinds = {
        "package": (False, {}),
        "side by side": (None, {}),
        "side by side, half precision": (None, {"use_amp": True}),
    }

    def ways(n_jobs: int | None) -> dict[str, Callable[[], np.ndarray]]:
        made = {}
        for name, (fuse, more) in kinds.items():
            backend = network_backend(options.weights[0], "cpu", n_jobs, **more)
            backend.fuse = fuse
            words = backend, pool, contexts, labels, queries, output
            made[name] = lambda words=words: infer(*words)
        return made

    answers, seconds = common.in_turn(ways(None), options.repeats)
    alone = processor_seconds(ways(1), options.repeats)
    records = []
    for way, taken in seconds.items():
        apart = np.abs(answers[way] - answers["package"])
        found = {"ms": min(taken), "median_ms": median(taken), "processor_ms": min(alone[way])}
        found = {name: round(1_000 * value / clusters, 1) for name, value in found.items()}
        found |= {"difference": float(apart.max()), "mean_difference": float(apart.mean())}
        records.append(common.say({"way": way, **found}))
    return records


def processor_seconds(
    ways: dict[str, Callable[[], np.ndarray]], repeats: int
) -> dict[str, list[float]]:
    """What a busy machine changes least; only for work in one thread."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            seconds[name].append(common.processor_timed(way)[1])
    return seconds


def measure_kept(options: argparse.Namespace) -> list[common.Record]:
    rng = np.random.default_rng(0)
    X, queries = rng.normal(size=(20_000, 20)), rng.normal(size=(200, 20))
    y = X[:, 0] + X[:, 1] > 0
    settings = {"n_clusters": 20, "context_size": 1_000, "device": "cpu", "contexts_per_query": 1}
    models = {size: CrumbClassifier(cache_size=size, **settings).fit(X, y) for size in (0, 500)}
    plan = models[0].plan(queries)
    ways = {
        f"cache_size={size}": lambda model=model: model.predict_proba(queries, plan=plan)
        for size, model in models.items()
    }
    answers, seconds = common.in_turn(ways, options.repeats + 1)
    without, kept = answers.values()
    facts = {"megabytes": round(models[500].backend_.contexts.used / 1e6, 1)}
    facts["largest_difference"] = float(np.abs(without - kept).max())
    return [
        common.say({"way": way, "first_s": taken[0], "again_s": median(taken[1:]), **facts})
        for way, taken in seconds.items()
    ]


def measure_size(options: argparse.Namespace) -> list[common.Record]:
    with tempfile.TemporaryDirectory() as folder:
        return [_one_pass(task, folder, options) for task in ("classification", "regression")]


def _one_pass(task: str, folder: str, options: argparse.Namespace) -> common.Record:
    regression = task == "regression"
    changes = {"max_classes": 0, "bias_free_ln": True} if regression else {}
    network = str(common.write_network(folder, **changes))
    models = {"embedded": options.weights[regression], "official size": network}
    _, seconds = common.in_turn(passes(task, models), options.repeats + 1)
    ours, theirs = (1_000 * median(taken[1:]) for taken in seconds.values())  # after a warm-up
    return common.say(
        {
            "task": task,
            "embedded_ms": round(ours, 2),
            "official_size_ms": round(theirs, 2),
            "ratio": round(theirs / ours, 2),
        }
    )


def passes(task: str, models: dict[str, str]) -> dict[str, Callable[[], np.ndarray]]:
    """1,000 rows of context, 100 queries, 20 columns; fitting and loading are not timed."""
    regression, rng = task == "regression", np.random.default_rng(0)
    X = rng.normal(size=(1_100, 20))
    signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=len(X))
    y = signal if regression else (signal > 0).astype(int)
    ways = {}
    for name, model in models.items():
        kind = CrumbRegressor if regression else CrumbClassifier
        made = kind(model=model, strategy="full", n_estimators=1, device="cpu", n_jobs=1)
        made.fit(X[:1_000], y[:1_000])
        predict = made.predict if regression else made.predict_proba
        ways[name] = lambda predict=predict: predict(X[1_000:])
    return ways


def measure_models(options: argparse.Namespace) -> list[common.Record]:
    with tempfile.TemporaryDirectory() as folder:
        models = {"embedded-0.1": "embedded-0.1", **common.official_sizes(folder)}
        seconds = processor_seconds(passes("classification", models), options.repeats)
    unit = min(seconds["embedded-0.1"])
    costs = {name: (min(taken), min(taken) / unit) for name, taken in seconds.items()}
    return [
        common.say({"model": name, "processor_ms": round(1_000 * one), "cost": round(cost, 1)})
        for name, (one, cost) in costs.items()
    ]


def measure_widths(options: argparse.Namespace) -> list[common.Record]:
    return [
        record
        for task in ("classification", "regression")
        for record in _width_costs(task, options.repeats)
    ]


def _width_costs(task: str, repeats: int) -> list[common.Record]:
    with tempfile.TemporaryDirectory() as folder:
        models, files = {"embedded-0.1": "embedded-0.1"}, {}
        for number, (name, widths) in enumerate(WIDTHS.items()):
            path = Path(folder, f"{number}.ckpt")
            config = configuration(task, "small", widths, OURS)
            untrained = state.Progress(task, "small", name, 0, config)
            state.export(path, untrained, build(config).state_dict())
            models[name], files[name] = str(path), path.stat().st_size
        seconds = processor_seconds(passes(task, models), repeats)
    unit = min(seconds["embedded-0.1"])
    return [
        common.say(
            {
                "task": task,
                "network": name,
                "processor_ms": round(1_000 * min(taken)),
                "cost": round(min(taken) / unit, 2),
                "file_mb": round(files[name] / 1e6, 1) if name in files else None,
            }
        )
        for name, taken in seconds.items()
    ]


MEASURES = {
    "fused": measure_fused,
    "mixed": measure_mixed,
    "powers": measure_powers,
    "side": measure_side,
    "kept": measure_kept,
    "size": measure_size,
    "models": measure_models,
    "widths": measure_widths,
}


def main() -> None:
    parser = common.parser(__doc__, repeats=5)
    parser.add_argument("what", choices=list(MEASURES))
    parser.add_argument("--small", action="store_true", help="fused, mixed, powers, side: on a CPU")
    parser.add_argument(
        "--weights",
        nargs=2,
        default=["embedded", "embedded"],
        metavar=("CLASSIFIER", "REGRESSOR"),
        help='mixed, side, size: checkpoint files in the place of the shipped ones ("embedded")',
    )
    options = parser.parse_args()
    records = MEASURES[options.what](options)
    on_gpu = options.what in ("fused", "mixed") or torch.cuda.is_initialized()
    on_gpu = on_gpu and not options.small
    common.write(options, records, "cuda" if on_gpu else "cpu")


if __name__ == "__main__":
    main()
