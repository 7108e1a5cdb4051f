"""A stream as a file: pool and model, plan, recent queries, counters, rows to learn. No pickle.

Queries that wait for an answer are not in it: their clients wait at the stream that was saved.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from crumb.errors import PlanMismatch
from crumb.files import packed, read_archive, reading, unpacked, write_archive
from crumb.online.drift import Baseline
from crumb.online.memory import LabelledRows, first_pool, join, latest
from crumb.online.options import StreamOptions
from crumb.online.version import PlanVersion, check_estimator, plan_for
from crumb.persistence import load as load_estimator
from crumb.persistence import pack_rows, unpack_rows
from crumb.plan import Plan
from crumb.table.row import Piece

FORMAT = "crumb-online"
VERSION = 1
BASELINE = ("points", "centroids", "distances")
RECENT = "window"  # what files call the recent queries, since version 0.1


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
