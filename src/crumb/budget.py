"""Seconds or gigabytes instead of K and n: the most and largest contexts that fit.

What a pass takes is measured on this machine: two small passes are timed, and the model's own count
of operations gives the rest. What stage 2 takes comes from ``herding/search.py``. The rungs of a
ladder keep n = 50 K, as the defaults do (20 clusters, 1,000 rows); the highest one that fits is
taken. Times vary, so the choice may differ from run to run; the plan says what was chosen.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from crumb.errors import InvalidInput
from crumb.herding.search import Load, affordable_values
from crumb.infer import infer
from crumb.pfn import Backend, Output
from crumb.pool import Labelled
from crumb.rng import generator
from crumb.selection import KNN, MMD
from crumb.table.encoder import take

if TYPE_CHECKING:
    from crumb.options import Options

HUNDREDS = (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200)
LADDER = tuple(int(100 * step) for step in HUNDREDS)  # rows of a context
ROWS_PER_CLUSTER = 50  # n = 50 K
MOST_CLUSTERS = 400
HERDING_SHARE = 0.3  # of the seconds, that stage 2 may take
TRIALS = (200, 600)  # rows of the contexts that are timed
MOST_ASKED = 200  # queries of a timed context
_PART = r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(s|min|mb|gb)"
_KINDS = {"s": "seconds", "min": "seconds", "mb": "gigabytes", "gb": "gigabytes"}
_UNITS = {"s": 1.0, "min": 60.0, "mb": 1e-3, "gb": 1.0}


@dataclass(frozen=True)
class Budget:
    """What a prediction may take; None: as much as it likes."""

    seconds: float | None = None
    gigabytes: float | None = None


@dataclass(frozen=True)
class PassCost:
    """Seconds of the passes of stage 3: some for each, and some for the work in it."""

    backend: Backend
    columns: int
    each: float
    per_work: float

    def seconds(self, passes: int, rows: int, queries: int) -> float:
        work = self.backend.work(rows, -(-queries // passes), self.columns)
        return passes * (self.each + self.per_work * work)

    def bytes(self, passes: int, rows: int, queries: int) -> float:
        return self.backend.bytes(rows, -(-queries // passes), self.columns)


@dataclass(frozen=True)
class Rung:
    """A choice of K and n, and what it is expected to take."""

    clusters: int
    rows: int
    seconds: float
    gigabytes: float

    def fits(self, budget: Budget) -> bool:
        seconds, gigabytes = budget.seconds or math.inf, budget.gigabytes or math.inf
        return self.seconds <= seconds and self.gigabytes <= gigabytes


def parse_budget(budget: Any) -> Budget:
    """``"30s"``, ``"2min"``, ``"4GB"``, ``"30s 4GB"``, or a number of seconds."""
    if isinstance(budget, Budget):
        return budget
    number = isinstance(budget, Real) and not isinstance(budget, bool)
    text = f"{float(budget)}s" if number else budget
    parts = text.lower().replace(",", " ").split() if isinstance(text, str) else []
    read = [re.fullmatch(_PART, part) for part in parts]
    found = {_KINDS[part[2]]: float(part[1]) * _UNITS[part[2]] for part in read if part}
    if not found or not all(read) or not all(0 < value < math.inf for value in found.values()):
        raise InvalidInput(f"budget must be like '30s', '2min' or '30s 4GB', got {budget!r}.")
    return Budget(**found)


def rungs(
    queries: int,
    pool_rows: int,
    window: int | None,
    clusters: int | None,
    rows: int | None,
    price: Callable[[int, int], tuple[float, float]],
) -> Iterator[Rung]:
    """From low to high; ``clusters`` or ``rows`` that the user has fixed stay as they are."""
    seen = set()
    for step in LADDER:
        n = min(rows or step, pool_rows, window or pool_rows)
        k = min(clusters or min(step // ROWS_PER_CLUSTER, MOST_CLUSTERS), queries)
        if (k, n) not in seen:
            seen.add((k, n))
            yield Rung(k, n, *price(k, n))
        if n == pool_rows:  # all contexts are the same
            break


def highest(ladder: Iterator[Rung], budget: Budget) -> Rung:
    """The highest rung that fits, or the lowest one, with a warning."""
    lowest = best = next(ladder)
    for rung in ladder:
        if rung.fits(budget):
            best = rung
    if not best.fits(budget):
        warnings.warn(
            f"The smallest contexts ({lowest.clusters} of {lowest.rows} rows) are expected to take "
            f"{lowest.seconds:.1f} s and {lowest.gigabytes:.2f} GB, more than the budget; "
            f"they are used.",
            stacklevel=4,
        )
    return best


def choose(
    options: Options,
    passes: PassCost,
    queries: int,
    shape: tuple[int, int],
    window: int | None,
    spent: float = 0.0,
) -> Options:
    """The options with K and n that fit, unless the user fixed them, and what they should take.

    ``shape``: of the pool in the selection space. ``spent``: seconds that measuring has taken.
    """
    budget = options.budget
    assert budget is not None
    seconds = None if budget.seconds is None else HERDING_SHARE * budget.seconds
    affordable = affordable_values(options.device, options.n_jobs, seconds)
    herds = isinstance(options.strategy, MMD)

    def price(clusters: int, rows: int) -> tuple[float, float]:
        load = Load(shape[0], queries, clusters, rows, shape[1])
        herding = load.seconds(affordable, options.device, options.n_jobs) if herds else 0.0
        largest = passes.bytes(clusters, rows, queries)
        largest = max(largest, load.bytes(options.device)) if herds else largest
        return spent + herding + passes.seconds(clusters, rows, queries), largest / 1e9

    clusters = options.n_clusters if options.fixed_clusters else None
    clusters = queries if isinstance(options.strategy, KNN) else clusters
    rows = options.context_size if options.fixed_size else None
    rung = highest(rungs(queries, shape[0], window, clusters, rows, price), budget)
    expected = {f"expected_{kind}": round(getattr(rung, kind), 3) for kind in asdict(budget)}
    facts = {**options.facts, "budget": {**asdict(budget), **expected}}
    k, n = rung.clusters, rung.rows
    return replace(options, n_clusters=k, context_size=n, affordable=affordable, facts=facts)


def measure(backend: Backend, pool: Labelled, queries: int, seed: int) -> PassCost:
    """Time two sizes of passes, with rows of the pool as queries."""
    columns, size = pool.rows.shape[1], len(pool.ids)
    together = backend.together
    asked = max(1, min(MOST_ASKED, queries // 20))
    rng, output = generator(seed, "budget"), Output(backend.outputs[0])

    def run(rows: int) -> None:
        n = min(rows, size)
        contexts = [pool.ids[rng.choice(size, n, replace=False)] for _ in range(together)]
        questions = take(pool.rows, rng.choice(size, asked * together))
        labels = np.arange(asked * together) % together
        infer(backend, pool, contexts, labels, questions, output)

    def work(rows: int) -> float:
        return together * backend.work(min(rows, size), asked, columns)

    each, per_work = timed(run, work)
    return PassCost(backend, columns, each / together, per_work)


def timed(run: Callable[[int], object], work: Callable[[int], float]) -> tuple[float, float]:
    """Seconds of a pass, and of a unit of work, from passes of two sizes; the first warms up."""
    run(TRIALS[0])
    seconds = []
    for rows in TRIALS:
        started = time.perf_counter()
        run(rows)
        seconds.append(time.perf_counter() - started)
    small, large = (work(rows) for rows in TRIALS)
    more = (seconds[1] - seconds[0]) / (large - small) if large > small else 0.0
    per_work = more if more > 0 else seconds[1] / large
    return max(0.0, seconds[0] - per_work * small), per_work
