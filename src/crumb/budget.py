"""Seconds or gigabytes instead of K and n: the most and largest contexts that fit.

What a pass takes is measured on this machine, each time: small passes of two sizes are timed, and
the model's own count of operations gives the rest. What planning takes comes from
``herding/search.py`` and from how fast kernel values are at the moment. While the passes run, a
``Clock`` cuts the contexts to come where time runs short: their first rows are the most wanted.

The rungs of a ladder keep n = 50 K, as the defaults do (20 clusters, 1,000 rows); the highest one
that fits is taken. Times vary, so the choice may differ from run to run; the plan says what was
chosen.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from crumb.errors import InvalidInput
from crumb.herding.greedy import Rbf
from crumb.herding.search import USUAL_COLUMNS, Load, affordable_values
from crumb.infer import infer
from crumb.machine import block_threads, resolve_jobs
from crumb.pfn import Backend, Output
from crumb.pool import Labelled
from crumb.rng import generator
from crumb.selection import MMD
from crumb.selection.base import Demand, clustering_values
from crumb.table.encoder import take

if TYPE_CHECKING:
    from crumb.options import Options

HUNDREDS = (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200)
LADDER = tuple(int(100 * step) for step in HUNDREDS)  # rows of a context
ROWS_PER_CLUSTER = 50  # n = 50 K
MOST_CLUSTERS = 400
DISTANCE = 0.65e-9  # seconds of one core, for a column of the distance of two rows
HERDING_SHARE = 0.3  # of the seconds, that stage 2 may take
# Rows of the contexts that are timed: the smaller one shows what a pass costs whatever its size.
TRIALS = (50, 400)
AGAIN = 200  # rows of the context that tells later how fast the machine is then
TIMING_SHARE = 0.1  # of the seconds, after which no pass is timed once more
MOST_TIMED = 3  # passes of one size
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

    def one(self, rows: int, queries: int) -> float:
        return self.each + self.per_work * self.backend.work(rows, queries, self.columns)

    def seconds(self, passes: int, rows: int, queries: int) -> float:
        return passes * self.one(rows, -(-queries // passes))

    def bytes(self, passes: int, rows: int, queries: int) -> float:
        return self.backend.bytes(rows, -(-queries // passes), self.columns)


class Clock:
    """Looks at the time while the passes run: where they are late, the next contexts are cut."""

    def __init__(self, until: float, cost: PassCost, now: Callable[[], float] = time.perf_counter):
        self.until, self.cost, self.now = until, cost, now
        self.left = self.done = self.started = 0.0  # seconds: expected, expected so far, the start

    def start(self, passes: Iterable[tuple[int, int]]) -> None:
        """Rows and queries of the passes to come."""
        self.left = sum(self.cost.one(*one) for one in passes)
        self.done, self.started = 0.0, self.now()

    def rows(self, rows: int, queries: int) -> int:
        """How many of its rows the next context may have."""
        now, whole = self.now(), self.cost.one(rows, queries)
        slow = max(1.0, (now - self.started) / self.done) if self.done else 1.0
        share = (self.until - now) / (slow * self.left) if self.left else 1.0
        if share < 1:
            fit = (n for n in reversed(LADDER) if self.cost.one(n, queries) <= share * whole)
            rows = min(rows, next(fit, LADDER[0]))
        self.left -= whole
        self.done += self.cost.one(rows, queries)
        return rows


@dataclass(frozen=True)
class Rung:
    """A choice of K and n, and what it is expected to take."""

    clusters: int
    rows: int
    seconds: float
    gigabytes: float
    passes: int  # one a context: some strategies have more of them than K
    least: float  # seconds where the clock cuts every context to the fewest rows

    def excess(self, budget: Budget) -> float:
        """What it takes as a multiple of the budget."""
        seconds, gigabytes = budget.seconds or math.inf, budget.gigabytes or math.inf
        return max(self.seconds / seconds, self.gigabytes / gigabytes)

    def fits(self, budget: Budget) -> bool:
        return self.excess(budget) <= 1

    def expected(self, budget: Budget) -> dict[str, float]:
        """What a plan says of it."""
        return {f"expected_{kind}": round(getattr(self, kind), 3) for kind in asdict(budget)}


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
    price: Callable[[int, int], tuple[float, float, int, float]],
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
    """The highest rung that fits, or else the cheapest one that does when it is cut.

    Where not even such a one fits: the one that exceeds the budget least when it is cut.
    """
    every = list(ladder)
    if fitting := [rung for rung in every if rung.fits(budget)]:
        return fitting[-1]
    over = [replace(rung, seconds=rung.least).excess(budget) for rung in every]
    least = max(1.0, min(over))
    cheapest, best = (
        min(some, key=lambda rung: rung.excess(budget))
        for some in (every, [one for one, cut in zip(every, over, strict=True) if cut <= least])
    )
    said = f"the cheapest, {cheapest.passes:,} of {cheapest.rows:,} rows, should take"
    said += f" {cheapest.seconds:.1f} s and {cheapest.gigabytes:.2f} GB."
    if best.seconds > (budget.seconds or math.inf):
        said += f" {best.passes:,} of {best.rows:,} rows are cut as time runs out, to"
        said += f" {best.least:.1f} s at best."
    asked = "Give more, or ask fewer queries at a time."
    warnings.warn(f"No contexts fit into the budget: {said} {asked}", stacklevel=4)
    return best


def choose(
    options: Options,
    passes: PassCost,
    queries: int,
    shape: tuple[int, int],
    window: int | None,
    spent: float = 0.0,
    slow: float = 1.0,
    known: Collection[int] = (),
) -> Options:
    """The options with K and n that fit, unless the user fixed them, and what they should take.

    ``shape``: of the pool in the selection space. ``spent``: seconds that are gone already.
    ``slow``: how many times longer than usual planning takes on this machine at the moment.
    ``known``: numbers of clusters for which the pool has been clustered.
    """
    budget = options.budget
    assert budget is not None
    seconds = None if budget.seconds is None else HERDING_SHARE * budget.seconds / slow
    affordable = affordable_values(options.device, options.n_jobs, seconds)
    options = replace(options, affordable=affordable)

    def price(clusters: int, rows: int) -> tuple[float, float, int, float]:
        load = Load(shape[0], queries, clusters, rows, shape[1])
        asked = options.strategy.demand(shape[0], queries, clusters, rows)
        planning, held = _planning(options, load, asked, known)
        questions = queries * min(options.contexts_per_query, asked.passes)
        if questions > queries:  # how near the rows of these contexts come
            planning += DISTANCE * questions * rows * shape[1] / resolve_jobs(options.n_jobs)
        largest = max(held, passes.bytes(asked.passes, rows, questions))
        whole, least = (
            spent + slow * planning + passes.seconds(asked.passes, size, questions)
            for size in (rows, min(rows, LADDER[0]))
        )
        return whole, largest / 1e9, asked.passes, least

    fixed = options.n_clusters if options.fixed_clusters else None
    clusters = fixed if options.strategy.shares else queries
    rows = options.context_size if options.fixed_size else None
    rung = highest(rungs(queries, shape[0], window, clusters, rows, price), budget)
    about = {"budget": {**asdict(budget), **rung.expected(budget)}}
    facts = {**options.facts, **about}
    return replace(options, n_clusters=rung.clusters, context_size=rung.rows, facts=facts)


def _planning(
    options: Options, load: Load, asked: Demand, known: Collection[int]
) -> tuple[float, int]:
    """Seconds and bytes of stages 1 and 2."""
    seconds, held = 0.0, 0
    if not (asked.of_pool and asked.clusters in known):
        values = clustering_values(asked.points, asked.clusters)
        seconds = load.weight * values / affordable_values("cpu", 1, 1.0)  # in one thread
    if isinstance(options.strategy, MMD):
        assert options.affordable is not None
        search, about = options.search(load), (options.device, options.n_jobs)
        seconds += load.seconds(options.affordable, *about, search)
        held = load.bytes(*about, search)
    return seconds, held


def measure(
    backend: Backend,
    pool: Labelled,
    queries: int,
    seed: int,
    budget: Budget,
    before: PassCost | None = None,
) -> PassCost:
    """Time two sizes of passes, with rows of the pool as queries.

    Where that was done ``before``, one size tells how fast the machine is now.
    """
    until = time.perf_counter() + TIMING_SHARE * (budget.seconds or math.inf)
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

    if before is not None:
        usual = together * before.one(min(AGAIN, size), asked)
        slow = _usual_seconds(run, (AGAIN,), until)[0] / usual
        return replace(before, each=slow * before.each, per_work=slow * before.per_work)
    each, per_work = timed(run, work, until)
    return PassCost(backend, columns, each / together, per_work)


def slowness(device: str, n_jobs: int | None) -> float:
    """How many times longer than usual planning takes at the moment: other work may go on here."""
    if device != "cpu":
        return 1.0
    kernel, rows = Rbf(1.0), torch.ones(1_000, USUAL_COLUMNS, dtype=torch.float64)
    blocks = 4 * resolve_jobs(n_jobs)
    with block_threads(n_jobs) as map_blocks:
        started = time.perf_counter()
        list(map_blocks(lambda block: kernel(rows, rows), range(blocks)))
        seconds = time.perf_counter() - started
    usual = blocks * len(rows) ** 2 / affordable_values(device, n_jobs, 1.0)
    return max(1.0, seconds / usual)


def timed(
    run: Callable[[int], object], work: Callable[[int], float], until: float = math.inf
) -> tuple[float, float]:
    """Seconds of a pass, and of a unit of work, from passes of two sizes; the first warms up."""
    run(TRIALS[0])
    short, long = _usual_seconds(run, TRIALS, until)
    small, large = (work(rows) for rows in TRIALS)
    more = (long - short) / (large - small) if large > small else 0.0
    per_work = more if more > 0 else long / large
    return max(0.0, short - per_work * small), per_work


def _usual_seconds(run: Callable[[int], object], sizes: Sequence[int], until: float) -> list[float]:
    """The median of a few passes of each size, in turn: other work comes and goes.

    Each size has one pass at least, and no more follow after ``until``.
    """
    seen: list[list[float]] = [[] for _ in sizes]
    for _ in range(MOST_TIMED):
        for rows, seconds in zip(sizes, seen, strict=True):
            started = time.perf_counter()
            run(rows)
            now = time.perf_counter()
            seconds.append(now - started)
        if now >= until:
            break
    return [sorted(seconds)[(len(seconds) - 1) // 2] for seconds in seen]
