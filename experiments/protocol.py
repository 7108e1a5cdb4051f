"""What a run is, and what a protocol is: the nouns that everything else here shares."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from experiments.dataset import Source

# Set aside before the pool is formed: the sizes in the paper are 80 % of its tables.
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Run:
    """The identity of a run: equal runs give equal rows. What a protocol does not vary is None."""

    protocol: str
    dataset: str
    task: str
    model: str
    method: str
    seed: int
    N: int | None = None  # rows of the pool
    T: int | None = None  # queries
    n: int | None = None  # context size
    K: int | None = None  # clusters asked for
    p: float | None = None  # n / N
    tau: float | None = None  # where the interval of the queries lies (drift)
    D: int | None = None  # random features
    B: int | None = None  # rows chosen a round
    kernel: str | None = None
    drawn: str | None = None  # how rows were cut, against the protocol

    @property
    def identity(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def key(self) -> str:
        return key_of(self.identity)


IDENTITY = tuple(field.name for field in fields(Run))


def key_of(row: Mapping[str, Any]) -> str:
    """What tells the row of one run from that of another."""
    return json.dumps([row.get(name) for name in IDENTITY])


@dataclass(frozen=True)
class TableSize:
    """The rows of a table, and how many of them may be queries and pool."""

    rows: int
    queries: int  # T, as asked
    max_rows: int | None = None  # of the pool, as the user says

    @property
    def held_out(self) -> int:
        return math.ceil(TEST_SHARE * self.rows)

    @property
    def T(self) -> int:
        return min(self.queries, self.held_out)

    def pool(self, most: int | None = None) -> int:
        """N: 80 % of the table, at most what the protocol (``most``) and the user allow."""
        limits = (self.rows - self.held_out, most, self.max_rows)
        return min(size for size in limits if size is not None)


Setting = dict[str, Any]  # the fields of a run that a protocol varies


@dataclass(frozen=True)
class Protocol:
    """One of the paper's experiments, with its settings as defaults."""

    name: str
    about: str  # which table or figure, in a line
    models: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    settings: Callable[[TableSize], Iterator[Setting]]
    queries: int = 200
    timeout: float = 300.0  # seconds a run
    choose: Callable[[list[Source]], list[Source]] = list  # which tables, unless the user says


@dataclass(frozen=True)
class Overrides:
    """What the user changes; None leaves it as in the paper."""

    models: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: int | None = None
    queries: int | None = None
    max_rows: int | None = None
    first_seed: int = 0


def share(rows: int, p: float) -> int:
    """n = pN, as the library rounds it."""
    return max(1, round(p * rows))
