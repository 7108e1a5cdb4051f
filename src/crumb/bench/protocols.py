"""The paper's nine experiments, each a name. Its settings are the defaults; ``Wishes`` changes them.

Where the paper contradicts itself or is silent:

- *Splits.* The sizes of its large sets (57k of 71,518 rows, 120k of 150,000) are 80 % of the tables: a fifth is set
  aside and T = 200 queries are drawn from it. Tables with fewer than 1,000 rows have fewer queries.
- *Drift.* It claims four sets with N ≥ 50,000 and names Anneal (898 rows), Airfoil (1,503) and Amazon (32,769): these
  are taken as they are. Its pool of about 25,000 rows below the median means tables of 50,000, so larger ones are cut
  to that.
- *Windows.* N_max = 4,096 for TabICL is no limit of these models (docs/method.md) and contradicts n = 0.1N at
  N = 100,000; contexts are capped by the windows that the library knows.
- *Ranks of* ``consistency`` are said to be per (data set, model, proportion, seed) although N varies too; every run is
  kept, and the report decides.
- *18 variants.* Crossing the kernels with the batches gives 16; Centroid-NN and Voronoi-Uniform make 18. N is not
  given there: at most 10,000, as in the other ablations.
- *The ablation of n* is announced and not shown: p ∈ {0.02, 0.05, 0.1, 0.2, 0.5} at K = 20, in ``clusters``.
- *Complexity* is a table of formulas. Here it is measured: N at T = 200, and T at N = 10,000, with n = 500 and K = 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from crumb.bench.dataset import Source
from crumb.bench.methods import CASES, check_method
from crumb.bench.protocol import Point, Protocol, Room, Run, Wishes, share
from crumb.bench.split import drift_sizes
from crumb.errors import InvalidInput

PAPER_MODELS = ("tabpfn-v2", "tabicl-v1", "tabicl-v2")
CLUSTERS = 20
FIVE = ("full", "knn", "crumb", "micp", "uniform")
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


def _tenth(room: Room, most: int | None = None) -> Iterator[Point]:
    """n = 0.1N and K = 20."""
    pool = room.pool(most)
    yield {"N": pool, "T": room.T, "n": share(pool, 0.1), "K": CLUSTERS}


def _consistency(room: Room) -> Iterator[Point]:
    for most in (500, 1_000, 2_000):
        for p in (0.05, 0.1, 0.2, 0.5, 0.8):
            pool = room.pool(most)
            yield {"N": pool, "T": room.T, "n": share(pool, p), "K": CLUSTERS, "p": p}


def _drift(room: Room) -> Iterator[Point]:
    pool, queries = drift_sizes(room)
    for tenth in range(11):
        n = min(share(pool, 0.1), 10_000)
        yield {"N": pool, "T": queries, "n": n, "K": CLUSTERS, "tau": tenth / 10}


def _clusters(room: Room) -> Iterator[Point]:
    """K at n = 0.1N, then n at K = 20; the point that both share comes once."""
    pool = room.pool()
    for K, p in (*((K, 0.1) for K in (1, 5, 10, 20, 30)), *((CLUSTERS, p) for p in (0.02, 0.05, 0.2, 0.5))):
        yield {"N": pool, "T": room.T, "n": share(pool, p), "K": K, "p": p}


def _retrieval(room: Room) -> Iterator[Point]:
    """Centroid-NN and Voronoi-Uniform know no kernel, but run beside both: a group of ranks has the same fields."""
    base = {"T": room.T, "N": room.pool(ABLATION_ROWS), "n": min(500, room.pool(ABLATION_ROWS)), "K": CLUSTERS}
    yield {**base, "kernel": "exact", "B": 1}
    yield {**base, "kernel": "rff", "D": 64, "B": 50}


def _factorial(room: Room) -> Iterator[Point]:
    pool = room.pool(ABLATION_ROWS)
    for n in (500, 1_000, 2_000):
        yield {"N": pool, "T": room.T, "n": min(n, pool), "K": CLUSTERS}


def _rff(room: Room) -> Iterator[Point]:
    pool = room.pool(ABLATION_ROWS)
    yield {"N": pool, "T": room.T, "n": min(500, pool), "K": CLUSTERS}


def _complexity(room: Room) -> Iterator[Point]:
    sizes = [(most, 200) for most in (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, LARGE_ROWS)]
    for most, queries in (*sizes, *((10_000, queries) for queries in (20, 1_000, 5_000))):
        pool = room.pool(most)
        asked = min(queries, room.held_out, room.queries)
        yield {"N": pool, "T": asked, "n": min(500, pool), "K": CLUSTERS}


def _classification(sources: list[Source]) -> list[Source]:
    return [source for source in sources if source.task == "classification"]


def _largest(sources: list[Source], count: int) -> list[Source]:
    """The largest sets; the paper's five are the largest of TabArena."""
    return sorted(_classification(sources), key=lambda source: -(source.rows or 0))[:count]


def _drift_sets(sources: list[Source]) -> list[Source]:
    """The paper's four by name (Higgs goes by several); all tables where none of them is there."""
    there = [source for source in sources if source.name in DRIFT_SETS or source.name.lower().startswith("higgs")]
    return there or sources


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("main", "Table 1: five methods, n = 0.1N", ("tabicl-v2",), FIVE, 10, _tenth),
        Protocol(
            "consistency", "Table 2 and the medal heat map: models × proportions × sizes", PAPER_MODELS,
            ("crumb", "micp", "uniform"), 5, _consistency, choose=_classification,
        ),
        Protocol(
            "large", "the five largest sets, early stopping", PAPER_MODELS, ("crumb", "micp", "uniform"), 5,
            partial(_tenth, most=LARGE_ROWS), timeout=1_800.0, choose=partial(_largest, count=5),
        ),
        Protocol("drift", "queries that leave the pool along PC1", PAPER_MODELS, FIVE, 10, _drift, choose=_drift_sets),
        Protocol("clusters", "score against selection time over K and n", PAPER_MODELS, ("crumb",), 10, _clusters),
        Protocol(
            "retrieval", "herding against Centroid-NN and Voronoi-Uniform, exact and RFF", PAPER_MODELS,
            ("crumb", "centroid", "voronoi"), 10, _retrieval,
        ),
        Protocol("factorial", "cases A to D: clustering × retrieval", PAPER_MODELS, tuple(CASES), 10, _factorial),
        Protocol("rff", "18 variants of stage 2", PAPER_MODELS, VARIANTS, 10, _rff),
        Protocol(
            "complexity", "seconds against N and T", ("tabicl-v2",), FIVE, 3, _complexity, queries=5_000,
            choose=partial(_largest, count=1),
        ),
    )
}  # fmt: skip


def protocol_named(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise InvalidInput(f"Unknown protocol {name!r}: choose {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]


def plan_runs(protocol: Protocol, sources: Iterable[Source], wishes: Wishes | None = None) -> list[Run]:
    """All runs of a protocol, each once. Seeds change slowest: what was stopped half-way is then balanced."""
    wishes = wishes or Wishes()
    methods = wishes.methods or protocol.methods
    for method in methods:
        check_method(method)
    tables = [(source, list(_points(protocol, source, wishes))) for source in sources]
    runs: dict[Run, None] = {}
    for seed in range(wishes.first_seed, wishes.first_seed + (wishes.seeds or protocol.seeds)):
        for source, points in tables:
            for model in wishes.models or protocol.models:
                if not _does(model, source.task):
                    continue
                for point in points:
                    base = Run(protocol.name, source.name, source.task, model, "", seed, **point)
                    runs.update(dict.fromkeys(_named(base, method) for method in methods))
    return list(runs)


def _named(base: Run, method: str) -> Run:
    """In ``rff`` the kernel is part of the method, and noted beside its name for those who sort by it."""
    if base.protocol != "rff" or "B=" not in method:
        return replace(base, method=method)
    kernel, *numbers = method.split("+")[0].split()
    given = {name: int(value) for name, value in (number.split("=") for number in numbers)}
    return replace(base, method=method, kernel=kernel, D=given.get("D"), B=given["B"])


def _points(protocol: Protocol, source: Source, wishes: Wishes) -> Iterator[Point]:
    if source.rows is None:  # it cannot be read; one run a method says so
        yield {}
        return
    room = Room(source.rows, wishes.queries or protocol.queries, wishes.max_rows)
    whole = list(protocol.points(replace(room, max_rows=None)))
    for point, uncut in zip(protocol.points(room), whole, strict=True):
        yield {**point, "drawn": f"max_rows={wishes.max_rows}" if point["N"] != uncut["N"] else None}


def _does(model: str, task: str) -> bool:
    """TabICLv1 knows no regression: such runs do not exist, rather than fail."""
    from crumb.pfn.models import CARDS

    tasks = {card.task for card in CARDS if card.name == model}
    return not tasks or task in tasks
