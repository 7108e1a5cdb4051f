"""Every number that can be chosen, with its default. Checked once, then resolved once for a pool.

``Options.of`` checks what the user asked for before any table is read. ``resolve`` turns what
depends on the pool (K, n, σ) into numbers. Nothing is resolved anywhere else.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state

from crumb.budget import Budget, parse_budget
from crumb.errors import InvalidInput
from crumb.herding.greedy import EarlyStopping, median_bandwidth
from crumb.herding.search import WAYS, Load, Search, resolve_search
from crumb.machine import resolve_device, resolve_jobs
from crumb.rng import generator
from crumb.selection import Strategy, resolve_strategy

if TYPE_CHECKING:
    from crumb.pool import Pool

DEFAULT_CONTEXT = 1_000  # n of strategies that have no clusters of queries
PLANNED_ROWS = 10_000  # that a plan is made for where it will answer more rows than these
QUERIES_A_CLUSTER = 2
FEWEST_CLUSTERS = 20  # that large contexts, which the user asked for, are never fewer than
LEAST_ROWS = 500  # of a context, where queries are very many
USUAL_COLUMNS = 30  # of a table; a pass through wider ones takes longer in proportion
LEAST_BANDWIDTH = 1e-12  # standard deviations: points differ by less only through rounding
DEFAULTS: dict[str, Any] = {
    "strategy": "mmd",
    "n_clusters": "auto",
    "context_size": "auto",
    "contexts_per_query": "auto",
    "budget": None,
    "kernel": "auto",
    "rff_dim": 256,
    "herd_batch": "auto",
    "bandwidth": "median",
    "early_stopping": False,
    "min_per_class": 1,
    "device": "auto",
    "random_state": 0,
    "n_jobs": None,
    "verbose": 0,
}


@dataclass(frozen=True)
class Room:
    """What a device does in the time that people wait for."""

    clusters: int  # K, at most; a fiftieth of the queries, where these are very many
    rows: int  # of all contexts together
    usual: int  # rows of a context, where the number of contexts is not limited
    context: int  # rows of a context, at most
    pool: int  # rows of a pool that is one context


CPU = Room(clusters=100, rows=100_000, usual=1_000, context=1_000, pool=2_000)
GPU = Room(clusters=500, rows=1_000_000, usual=2_000, context=3_000, pool=5_000)


def paper_configuration() -> dict[str, Any]:
    """The paper's setting, as keyword arguments of the estimators.

    Returns
    -------
    options : dict

    Examples
    --------
    >>> from crumb import CrumbClassifier, paper_configuration
    >>> CrumbClassifier(**paper_configuration()).kernel
    'rff'
    """
    return {
        "strategy": "mmd",
        "n_clusters": 20,
        "context_size": 0.1,
        "contexts_per_query": 1,
        "kernel": "rff",
        "rff_dim": 64,
        "herd_batch": 50,
        "bandwidth": "median",
        "early_stopping": False,
        "features": None,
        "min_per_class": 0,
    }


@dataclass(frozen=True)
class Options:
    """What was asked for and, once ``resolve`` has seen the pool, K, n and σ."""

    asked: Mapping[str, Any]  # as the user gave it
    strategy: Strategy
    early_stopping: EarlyStopping | None
    min_per_class: int
    budget: Budget | None
    device: str
    seed: int
    n_jobs: int | None
    verbose: int
    n_clusters: int = 0  # K
    context_size: int = 0  # n
    bandwidth: float = 0.0  # σ
    window: int | None = None  # rows that the model was made for
    affordable: int | None = None  # kernel values; None: as many as usual
    facts: dict[str, Any] = field(default_factory=dict)  # what else the plan should say

    @classmethod
    def of(cls, **asked: Any) -> Options:
        """Check everything that can be checked without a table."""
        unknown = sorted(set(asked) - set(DEFAULTS))
        if unknown:
            known = ", ".join(DEFAULTS)
            raise InvalidInput(f"Unknown option {unknown[0]!r}: the options are {known}.")
        asked = {**DEFAULTS, **asked}
        check_search(asked["kernel"], asked["rff_dim"], asked["herd_batch"])
        check_bandwidth(asked["bandwidth"])
        check_context_size(asked["context_size"])
        if asked["n_clusters"] not in (None, "auto"):
            positive("n_clusters", asked["n_clusters"])
        if asked["contexts_per_query"] != "auto":
            positive("contexts_per_query", asked["contexts_per_query"])
        resolve_jobs(asked["n_jobs"])
        options = cls(
            asked,
            resolve_strategy(asked["strategy"]),
            resolve_early_stopping(asked["early_stopping"]),
            positive("min_per_class", asked["min_per_class"], 0),
            None if asked["budget"] is None else parse_budget(asked["budget"]),
            resolve_device(asked["device"]),
            resolve_seed(asked["random_state"]),
            asked["n_jobs"],
            asked["verbose"],
        )
        if options.budget and options.fixed_clusters and options.fixed_size:
            raise InvalidInput(
                "A budget chooses n_clusters and context_size: leave at least one of them 'auto'."
            )
        return options

    @property
    def fixed_clusters(self) -> bool:
        """Whether K is the user's choice, or the strategy's."""
        return self.asked["n_clusters"] != "auto" or self.strategy.default_clusters == 1

    @property
    def fixed_size(self) -> bool:
        """Whether n is the user's choice, or the strategy's."""
        return self.asked["context_size"] != "auto" or not self.strategy.drops_rows

    @property
    def contexts_per_query(self) -> int:
        """How many contexts answer a query: one, where it has a context of its own."""
        asked = self.asked["contexts_per_query"]
        if not self.strategy.shares:
            return 1
        return self.strategy.contexts_per_query if asked == "auto" else int(asked)

    def resolve(self, pool: Pool, window: int | None = None) -> Options:
        """K, n and σ for a pool and for a model that was made for ``window`` rows."""
        clusters, size = self.asked["n_clusters"], pool.size
        if clusters == "auto":
            clusters = self.strategy.default_clusters
        if self.strategy.drops_rows:
            size = resolve_context_size(self.asked["context_size"], pool.size, window)
        sigma = self.asked["bandwidth"]
        if isinstance(sigma, str):
            median = median_bandwidth(pool.some_points, generator(self.seed, "bandwidth"))
            sigma = median_factor(sigma) * median
        return replace(
            self,
            n_clusters=int(clusters or 1),
            context_size=size,
            window=window,
            bandwidth=max(float(sigma), LEAST_BANDWIDTH),
            facts={**self.facts, **pool.facts},
        )

    def for_queries(self, shape: tuple[int, int], queries: int) -> Options:
        """K and n by the policy, where neither the user, the strategy nor a budget has chosen.

        ``shape``: rows and columns of the pool.
        """
        if self.budget or not self.strategy.follows_policy:
            return self
        clusters = self.n_clusters if self.fixed_clusters else None
        size = self.context_size if self.fixed_size else None
        k, n = choose_sizes(self.device, shape, queries, clusters, size, self.window)
        return replace(self, n_clusters=k, context_size=n)

    def search(self, load: Load) -> Search:
        """How stage 2 searches in a problem of this size."""
        asked = self.asked["kernel"], self.asked["rff_dim"], self.asked["herd_batch"]
        return resolve_search(*asked, load, self.device, self.affordable)


def check_search(kernel: str, rff_dim: int, herd_batch: str | int) -> None:
    if kernel not in WAYS:
        raise InvalidInput(f"Unknown kernel {kernel!r}: choose {', '.join(map(repr, WAYS))}.")
    positive("rff_dim", rff_dim)
    if herd_batch != "auto":
        positive("herd_batch", herd_batch)


def positive(name: str, value: Any, least: int = 1) -> int:
    """A whole number that a user gave, checked."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}.")


def megabytes(name: str, value: Any) -> int:
    """A number of megabytes in bytes."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
    if 0 <= number < float("inf"):
        return int(number * 1e6)
    raise InvalidInput(f"{name} must be a number of megabytes, 0 or more, got {value!r}.")


def resolve_context_size(context_size: str | float, n_pool: int, window: int | None = None) -> int:
    """n: a count, a share of N, or ``"auto"``; never more than N or the model's window."""
    check_context_size(context_size)
    if context_size == "auto":
        n = min(DEFAULT_CONTEXT, n_pool)
    elif isinstance(context_size, Integral):
        n = int(context_size)
    else:
        n = max(1, round(float(context_size) * n_pool))
    if n > n_pool:
        said = f"context_size={n} is larger than the pool: all {n_pool} rows are used."
        warnings.warn(said, stacklevel=5)
        n = n_pool
    if window is not None and n > window:
        said = f"context_size gives {n} rows, more than the {window} that the model was made for"
        warnings.warn(f"{said}: {window} are used.", stacklevel=5)
        n = window
    return n


def check_context_size(context_size: Any) -> None:
    count = isinstance(context_size, Integral) and int(context_size) >= 1
    share = isinstance(context_size, Real) and 0 < float(context_size) <= 1
    if context_size == "auto" or ((count or share) and not isinstance(context_size, bool)):
        return
    raise InvalidInput(
        "context_size must be a row count of at least 1, a share of the pool in (0, 1], or 'auto'; "
        f"got {context_size!r}."
    )


def resolve_early_stopping(early_stopping: Any) -> EarlyStopping | None:
    if isinstance(early_stopping, EarlyStopping):
        return early_stopping
    if isinstance(early_stopping, (bool, np.bool_)):
        return EarlyStopping() if early_stopping else None
    raise InvalidInput(f"early_stopping must be a bool or EarlyStopping, got {early_stopping!r}.")


def check_bandwidth(bandwidth: Any) -> None:
    """``"median"``, a multiple such as ``"0.5 median"``, or σ itself in the standardised space."""
    number = isinstance(bandwidth, Real) and not isinstance(bandwidth, bool)
    value = median_factor(bandwidth) if isinstance(bandwidth, str) else bandwidth if number else 0
    if 0 < value < float("inf"):
        return
    raise InvalidInput(
        "bandwidth must be 'median', a multiple like '0.5 median', or a positive number (σ), "
        f"got {bandwidth!r}."
    )


def median_factor(bandwidth: str) -> float:
    """What the median is multiplied by; 0 where the text says nothing of the kind."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+|)\s*\*?\s*median", bandwidth.strip())
    return 0.0 if found is None else float(found[1] or 1.0)


def resolve_seed(random_state: Any) -> int:
    """An int is the seed itself; None and generators give a fresh one."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InvalidInput(f"random_state must not be negative, got {random_state}.")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def choose_sizes(
    device: str,
    shape: tuple[int, int],
    queries: int,
    clusters: int | None = None,
    size: int | None = None,
    window: int | None = None,
) -> tuple[int, int]:
    """The policy: K and n for a pool of this shape; what the user has chosen stays.

    A device sets how many rows all contexts may have together: fewer, where rows are wide. How they
    are shared out matters little, from 200 contexts of 500 rows to 20 of 5,000. A cluster of two
    queries makes a context local, and contexts of 1,000 rows are safe where one rule holds for the
    whole table. A pool that fits into one context is one context.
    docs/defaults.md has the measurements.

    >>> choose_sizes("cpu", (100_000, 20), queries=1_000)
    (100, 1000)
    >>> choose_sizes("cuda", (100_000, 20), queries=1_000)
    (500, 2000)
    >>> choose_sizes("cpu", (1_500, 20), queries=1_000)
    (1, 1500)
    """
    room, (pool_rows, columns) = CPU if device == "cpu" else GPU, shape
    rows = int(room.rows * min(1.0, USUAL_COLUMNS / max(1, columns)))
    most = min(pool_rows, window or pool_rows)
    if clusters is None and size is None and most == pool_rows <= room.pool:
        return 1, pool_rows
    if clusters is None:
        room_for = max(FEWEST_CLUSTERS, rows // (size or room.usual))
        limit = max(min(room.clusters, room_for), queries // 50 if size is None else 0)
        clusters = max(1, min(-(-queries // QUERIES_A_CLUSTER), limit))
    if size is None:
        size = min(max(rows // clusters, LEAST_ROWS), room.context, most)
    return clusters, size
