"""A stream as a file: options, pool and model, plan, recent queries, counters, rows to learn.

No pickle. Queries that wait for an answer are not in it: their clients wait at the stream that was
saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crumb.errors import InvalidInput, PlanMismatch
from crumb.files import packed, read_archive, reading, unpacked, write_archive
from crumb.online.drift import Baseline
from crumb.online.memory import LabelledRows, first_pool, join, latest
from crumb.online.version import PlanVersion, check_estimator, plan_for
from crumb.options import positive
from crumb.persistence import load as load_estimator
from crumb.persistence import pack_rows, unpack_rows
from crumb.plan import Plan
from crumb.table.row import Piece

FORMAT = "crumb-online"
VERSION = 1
BASELINE = ("points", "centroids", "distances")
RECENT = "window"  # what files call the recent queries, since version 0.1
REFRESHES = ("never", "periodic", "drift")
MOST_DOUBLINGS = 6  # of the queries before the next try


@dataclass(frozen=True)
class StreamOptions:
    """What ``CrumbOnline`` was made with; its docstring says what each option does."""

    output: str | None = None
    quantiles: Sequence[float] | None = None
    b_min: int = 32
    timeout: float = 0.1
    max_pending: int = 10_000
    refresh: str = "never"
    refresh_every: int | None = None
    recent: int = 512
    significance: float = 0.01
    plan_ahead: bool = True
    max_rows: int | None = None
    max_age: float | None = None

    @classmethod
    def of(cls, given: dict[str, Any]) -> StreamOptions:
        """``window`` is the name of ``recent`` in version 0.1, and in files."""
        named = {"recent" if name == "window" else name: value for name, value in given.items()}
        if named.get("quantiles") is not None:
            named["quantiles"] = [float(level) for level in named["quantiles"]]
        return cls(**named)

    def __post_init__(self) -> None:
        for name in ("b_min", "max_pending", "recent"):
            positive(name, getattr(self, name))
        if self.max_rows is not None and positive("max_rows", self.max_rows) < 2:
            raise InvalidInput("max_rows must be at least 2.")
        if not self.timeout >= 0:
            raise InvalidInput(f"timeout must be a number of seconds, got {self.timeout!r}.")
        if self.max_age is not None and not self.max_age > 0:
            raise InvalidInput(f"max_age must be a positive number, got {self.max_age!r}.")
        if not 0 < self.significance < 1:
            raise InvalidInput(f"significance must lie between 0 and 1, got {self.significance!r}.")
        if self.refresh not in REFRESHES:
            known = ", ".join(map(repr, REFRESHES))
            raise InvalidInput(f"refresh must be one of {known}, got {self.refresh!r}.")
        if self.refresh_every is not None:
            positive("refresh_every", self.refresh_every)

    def refresh_due(self, queries: int, failures: int = 0) -> bool:
        """After each failure in a row the next try takes twice as many queries."""
        every = self.refresh_every
        if every is None:  # as often as all the recent queries have changed
            every = self.recent if self.refresh != "drift" else max(1, self.recent // 4)
        return self.refresh != "never" and queries >= every << min(failures, MOST_DOUBLINGS)


@dataclass(frozen=True, eq=False)
class StreamState:
    """What a stream needs to go on: ``CrumbOnline(state)`` continues it."""

    options: StreamOptions
    version: PlanVersion
    pool: LabelledRows
    recent: list[Piece]
    new: list[LabelledRows] = field(default_factory=list)  # for the next refresh
    fresh: int = 0  # queries since the plan was made
    counters: dict[str, int] = field(default_factory=dict)


def first_state(
    estimator: Any, X: Any, plan: Plan | None, options: StreamOptions, date: float
) -> StreamState:
    """A stream before its first query."""
    estimator = check_estimator(estimator)
    if X is None:
        rows, points = estimator.pool_.drawn(options.recent, estimator.options_.seed)
    else:
        rows, points = estimator.encode(X)
    ahead = options.plan_ahead and X is not None
    version = PlanVersion(1, 1, estimator, *plan_for(estimator, points, plan, ahead), date)
    return StreamState(options, version, first_pool(estimator, date), [rows])


def write_state(state: StreamState, path: str | Path) -> None:
    version, options = state.version, asdict(state.options)
    arrays = {f"baseline_{name}": getattr(version.baseline, name) for name in BASELINE}
    arrays["came"] = state.pool.came
    tables = {RECENT: latest(state.recent, state.options.recent)}
    if state.new:
        new = join(state.new)
        tables["new"], arrays["new_came"] = new.rows, new.came
        # Text in object arrays would need pickle.
        arrays["new_y"] = new.y.astype(str) if new.y.dtype == object else new.y
    files = {
        "estimator.crumb": packed(version.estimator.save),
        "plan.crumb": packed(version.plan.save),
    }
    for name, rows in tables.items():
        pack_rows(name, rows, arrays, files)
    about = {
        "settings": {RECENT: options.pop("recent"), **options},
        **{name: getattr(version, name) for name in ("number", "pool_number", "made")},
        "fresh": state.fresh,
        "counters": state.counters,
    }
    write_archive(path, FORMAT, VERSION, about, arrays, files)


def read_state(path: str | Path, changes: dict[str, Any]) -> StreamState:
    """``changes`` replace parameters of the estimator."""
    about, arrays, files = read_archive(path, FORMAT, VERSION)
    with reading(path, FORMAT):
        options = StreamOptions.of(about["settings"])
        estimator = unpacked(files["estimator.crumb"], lambda file: load_estimator(file, **changes))
        plan = unpacked(files["plan.crumb"], Plan.load)
        plan.check_pool(estimator.pool_.fingerprint)
        pool, came = first_pool(estimator, 0.0), arrays["came"]
        if len(came) != len(pool.y):
            said = "The pool and the dates of its rows do not fit together: the file is damaged."
            raise PlanMismatch(said)
        columns = estimator.pool_.encoder.columns_, estimator.pool_.encoder.kinds_
        parts = {name: arrays[f"baseline_{name}"] for name in BASELINE}
        baseline = Baseline(**parts, bandwidth=estimator.options_.bandwidth)
        numbers, made = (about["number"], about["pool_number"]), about["made"]
        new = []
        if "new_y" in arrays:
            rows = unpack_rows("new", arrays, files, *columns)
            new = [LabelledRows([rows], arrays["new_y"], arrays["new_came"])]
        return StreamState(
            options,
            PlanVersion(*numbers, estimator, plan, baseline, made),
            replace(pool, came=came),
            [unpack_rows(RECENT, arrays, files, *columns)],
            new,
            about["fresh"],
            about["counters"],
        )
