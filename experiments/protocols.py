"""The paper's nine experiments. Its settings are the defaults; ``Overrides`` changes them.

Where the paper contradicts itself or is silent:

- *Splits.* The sizes of its large sets (57k of 71,518 rows, 120k of 150,000) are 80 % of the
  tables: a fifth is set aside and T = 200 queries are drawn from it. Tables with fewer than 1,000
  rows have fewer queries.
- *Drift.* It claims four sets with N ≥ 50,000 and names Anneal (898 rows), Airfoil (1,503) and
  Amazon (32,769): these are taken as they are. Its pool of about 25,000 rows below the median means
  tables of 50,000, so larger ones are cut to that.
- *Windows.* N_max = 4,096 for TabICL is no limit of these models (docs/method.md) and contradicts
  n = 0.1N at N = 100,000; contexts are capped by the windows that the library knows.
- *Ranks of* ``consistency`` are said to be per (data set, model, proportion, seed) although N
  varies too; every run is kept, and the report decides.
- *18 variants.* Crossing the kernels with the batches gives 16; Centroid-NN and Voronoi-Uniform
  make 18. N is not given there: at most 10,000, as in the other ablations.
- *The ablation of n* is announced and not shown: p ∈ {0.02, 0.05, 0.1, 0.2, 0.5} at K = 20, in
  ``clusters``.
- *Complexity* is a table of formulas. Here it is measured: N at T = 200, and T at N = 10,000, with
  n = 500 and K = 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from crumb.errors import InvalidInput
from crumb.pfn.registry import CARDS
from experiments.dataset import Source
from experiments.methods import CASES, method_settings
from experiments.protocol import Overrides, Protocol, Run, Setting, TableSize, share
from experiments.split import drift_sizes

PAPER_MODELS = ("tabpfn-v2", "tabicl-v1", "tabicl-v2")
CLUSTERS = 20
FIVE = ("full", "knn", "crumb", "micp", "uniform")
THREE = ("crumb", "micp", "uniform")
DRIFT_SETS = ("anneal", "Amazon_employee_access", "airfoil_self_noise", "higgs")
ABLATION_ROWS = 10_000
LARGE_ROWS = 100_000
BATCHES, FEATURES = (1, 10, 50, 100), (16, 64, 256)
VARIANTS = (
    *(f"exact B={batch}" for batch in BATCHES),
    *(f"rff D={features} B={batch}" for features in FEATURES for batch in BATCHES),
    "centroid",
    "voronoi",
)


def _sizes(size: TableSize, pool: int, n: int, K: int = CLUSTERS, **more: object) -> Setting:
    """The fields that every protocol sets; n never exceeds the pool."""
    return {"N": pool, "T": size.T, "n": min(n, pool), "K": K, **more}


def _tenth(size: TableSize, most: int | None = None) -> Iterator[Setting]:
    pool = size.pool(most)
    yield _sizes(size, pool, share(pool, 0.1))


def _consistency(size: TableSize) -> Iterator[Setting]:
    for pool in map(size.pool, (500, 1_000, 2_000)):
        for p in (0.05, 0.1, 0.2, 0.5, 0.8):
            yield _sizes(size, pool, share(pool, p), p=p)


def _drift(size: TableSize) -> Iterator[Setting]:
    pool, queries = drift_sizes(size)
    for tenth in range(11):
        n = min(share(pool, 0.1), 10_000)
        yield {**_sizes(size, pool, n, tau=tenth / 10), "T": queries}


def _clusters(size: TableSize) -> Iterator[Setting]:
    """K at n = 0.1N, then n at K = 20; the setting that both share comes once."""
    pool = size.pool()
    for K in (1, 5, 10, 20, 30):
        yield _sizes(size, pool, share(pool, 0.1), K, p=0.1)
    for p in (0.02, 0.05, 0.2, 0.5):
        yield _sizes(size, pool, share(pool, p), p=p)


def _retrieval(size: TableSize) -> Iterator[Setting]:
    """Centroid-NN and Voronoi-Uniform know no kernel; they run beside both kernels."""
    pool = size.pool(ABLATION_ROWS)
    yield _sizes(size, pool, 500, kernel="exact", B=1)
    yield _sizes(size, pool, 500, kernel="rff", D=64, B=50)


def _ablation(size: TableSize, *context_sizes: int) -> Iterator[Setting]:
    for n in context_sizes:
        yield _sizes(size, size.pool(ABLATION_ROWS), n)


def _complexity(size: TableSize) -> Iterator[Setting]:
    pools = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, LARGE_ROWS)
    sweep = [(most, 200) for most in pools] + [(10_000, queries) for queries in (20, 1_000, 5_000)]
    for most, queries in sweep:
        yield {**_sizes(size, size.pool(most), 500), "T": min(queries, size.T)}


def _classification(sources: list[Source]) -> list[Source]:
    return [source for source in sources if source.task == "classification"]


def _largest(sources: list[Source], count: int) -> list[Source]:
    """The largest sets; the paper's five are the largest of TabArena."""
    return sorted(_classification(sources), key=lambda source: -(source.rows or 0))[:count]


def _drift_sets(sources: list[Source]) -> list[Source]:
    """The paper's four by name (Higgs goes by several); all tables where none of them is there."""
    found = [
        source
        for source in sources
        if source.name in DRIFT_SETS or source.name.lower().startswith("higgs")
    ]
    return found or sources


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("main", "Table 1: five methods, n = 0.1N", ("tabicl-v2",), FIVE, 10, _tenth),
        Protocol(
            "consistency", "Table 2 and the medal heat map: models × proportions × sizes",
            PAPER_MODELS, THREE, 5, _consistency, choose=_classification,
        ),
        Protocol(
            "large", "the five largest sets, early stopping", PAPER_MODELS, THREE, 5,
            partial(_tenth, most=LARGE_ROWS), timeout=1_800.0, choose=partial(_largest, count=5),
        ),
        Protocol(
            "drift", "queries that leave the pool along PC1", PAPER_MODELS, FIVE, 10, _drift,
            choose=_drift_sets,
        ),
        Protocol(
            "clusters", "score against selection time over K and n", PAPER_MODELS, ("crumb",), 10,
            _clusters,
        ),
        Protocol(
            "retrieval", "herding against Centroid-NN and Voronoi-Uniform, exact and RFF",
            PAPER_MODELS, ("crumb", "centroid", "voronoi"), 10, _retrieval,
        ),
        Protocol(
            "factorial", "cases A to D: clustering × retrieval", PAPER_MODELS, tuple(CASES), 10,
            lambda size: _ablation(size, 500, 1_000, 2_000),
        ),
        Protocol(
            "rff", "18 variants of stage 2", PAPER_MODELS, VARIANTS, 10,
            lambda size: _ablation(size, 500),
        ),
        Protocol(
            "complexity", "seconds against N and T", ("tabicl-v2",), FIVE, 3, _complexity,
            queries=5_000, choose=partial(_largest, count=1),
        ),
    )
}  # fmt: skip


def protocol_named(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise InvalidInput(f"Unknown protocol {name!r}: choose {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def main_passes(source: Source) -> int | None:
    """Passes of ``main`` for one seed: full, kNN, CRUMB, MICP (K' = ⌈N/n⌉ = 10) and uniform."""
    if source.rows is None:
        return None
    T = TableSize(source.rows, PROTOCOLS["main"].queries).T
    return 1 + T + min(CLUSTERS, T) + min(10, T) + 1


def plan_runs(
    protocol: Protocol, sources: Iterable[Source], changes: Overrides | None = None
) -> list[Run]:
    """All runs, each once. Seeds change slowest: half a campaign is half of the seeds."""
    changes = changes or Overrides()
    methods, models = changes.methods or protocol.methods, changes.models or protocol.models
    for method in methods:
        method_settings(method)  # an unknown name shows before anything runs
    tables = [(source, list(_settings(protocol, source, changes))) for source in sources]
    first, count = changes.first_seed, changes.seeds or protocol.seeds
    runs = (
        _run(Run(protocol.name, source.name, source.task, model, method, seed, **setting))
        for seed in range(first, first + count)
        for source, settings in tables
        for model in models
        if _does(model, source.task)
        for setting in settings
        for method in methods
    )
    return list(dict.fromkeys(runs))


def _run(run: Run) -> Run:
    """In ``rff`` the kernel is part of the method's name; its numbers are also noted beside it."""
    if run.protocol != "rff" or "B=" not in run.method:
        return run
    kernel, *numbers = run.method.split("+")[0].split()
    given = {name: int(value) for name, value in (number.split("=") for number in numbers)}
    return replace(run, kernel=kernel, D=given.get("D"), B=given["B"])


def _settings(protocol: Protocol, source: Source, changes: Overrides) -> Iterator[Setting]:
    if source.rows is None:  # it cannot be read; one run of each method says so
        yield {}
        return
    size = TableSize(source.rows, changes.queries or protocol.queries, changes.max_rows)
    whole = protocol.settings(replace(size, max_rows=None))
    for setting, uncut in zip(protocol.settings(size), whole, strict=True):
        cut = setting["N"] != uncut["N"]
        yield {**setting, "drawn": f"max_rows={changes.max_rows}" if cut else None}


def _does(model: str, task: str) -> bool:
    """TabICLv1 knows no regression: such runs do not exist, rather than fail."""
    tasks = {card.task for card in CARDS if card.name == model}
    return not tasks or task in tasks
