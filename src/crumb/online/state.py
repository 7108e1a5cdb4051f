"""A stream as a file: pool and model, plan, window, counters, and the rows that the next refresh will learn. No pickle.

Queries that wait for an answer are not part of it: whoever asked them still waits at the stream that was saved.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import PlanMismatch
from crumb.files import read_archive, write_archive
from crumb.online.clock import Clock
from crumb.online.drift import Baseline
from crumb.online.learning import LabelledRows, PoolMemory, first_pool
from crumb.online.observer import Observer
from crumb.online.stats import COUNTERS, Stats
from crumb.online.stream import CrumbOnline
from crumb.online.version import PlanVersion
from crumb.online.window import latest
from crumb.persistence import load as load_estimator
from crumb.persistence import pack_frame, unpack_frame
from crumb.plan import Plan
from crumb.table.encoder import Rows
from crumb.table.pieces import stack

FORMAT = "crumb-online"
VERSION = 1


def save(stream: CrumbOnline, path: str | Path) -> None:
    """What ``CrumbOnline.save`` does. Queries are answered meanwhile; a refresh waits."""
    with stream._building:
        with stream._changed:
            version, pieces = stream._version, stream._window.pieces()
            held, fresh = len(stream._window), stream._window.fresh
        stats, new = stream.stats(), stream._memory.new()
        arrays = {
            "came": stream._memory.pool.came,
            "baseline_points": version.baseline.points,
            "baseline_centroids": version.baseline.centroids,
            "baseline_distances": version.baseline.distances,
        }
        files = {
            "estimator.crumb": _written(version.estimator.save),
            "plan.crumb": _written(version.plan.save),
        }
        _pack("window", latest(pieces, held), arrays, files)
        if new:
            _pack("new", stack([piece.rows for piece in new]), arrays, files)
            arrays["new_y"] = _storable(np.concatenate([piece.y for piece in new]))
            arrays["new_came"] = np.concatenate([piece.came for piece in new])
        about = {
            "settings": stream._settings,
            "number": version.number,
            "pool_number": version.pool_number,
            "made": version.made,
            "fresh": fresh,
            "counters": {name: value for name, value in asdict(stats).items() if name in COUNTERS},
        }
        write_archive(path, FORMAT, VERSION, about, arrays, files)


def load(
    kind: type[CrumbOnline],
    path: str | Path,
    clock: Clock,
    observer: Observer | None,
    changes: dict[str, Any],
) -> CrumbOnline:
    """What ``CrumbOnline.load`` does."""
    about, arrays, files = read_archive(path, FORMAT, VERSION)
    try:
        estimator = _read(files["estimator.crumb"], lambda file: load_estimator(file, **changes))
        plan = _read(files["plan.crumb"], Plan.load)
        plan.check_pool(estimator.pool_.fingerprint)
        baseline = Baseline(
            arrays["baseline_points"],
            arrays["baseline_centroids"],
            arrays["baseline_distances"],
            estimator.options_.bandwidth,
        )
        version = PlanVersion(
            about["number"], about["pool_number"], estimator, plan, baseline, about["made"]
        )
        settings = about["settings"]
        memory = PoolMemory(
            _pool(estimator, arrays["came"]), settings["max_rows"], settings["max_age"]
        )
        if "new_y" in arrays:
            rows = _unpack("new", estimator, arrays, files)
            memory.restore(LabelledRows(rows, arrays["new_y"], arrays["new_came"]))
        window = _unpack("window", estimator, arrays, files)
        stream = kind.__new__(kind)
        stream._settings = settings
        stream._start(version, memory, clock, observer, Stats(**about["counters"]))
        with stream._changed:
            stream._window.add(window, fresh=False)
            stream._window.fresh = about["fresh"]
    except KeyError as error:
        raise PlanMismatch(f"{path} is incomplete: it has no {error}.") from error
    return stream


def _pool(estimator: Any, came: np.ndarray) -> LabelledRows:
    pool = first_pool(estimator, 0.0)
    if len(came) != len(pool.y):
        raise PlanMismatch(
            "The pool and the dates of its rows do not fit together: the file is damaged."
        )
    return LabelledRows(pool.rows, pool.y, came)


def _pack(name: str, rows: Rows, arrays: dict[str, np.ndarray], files: dict[str, bytes]) -> None:
    if isinstance(rows, pd.DataFrame):
        files[f"{name}.parquet"] = pack_frame(rows)
    else:
        arrays[name] = rows


def _unpack(
    name: str, estimator: Any, arrays: dict[str, np.ndarray], files: dict[str, bytes]
) -> Rows:
    if f"{name}.parquet" not in files:
        return arrays[name]
    return unpack_frame(
        files[f"{name}.parquet"], estimator.pool_.encoder.columns_, estimator.pool_.encoder.kinds_
    )


def _storable(labels: np.ndarray) -> np.ndarray:
    """Text in object arrays would need pickle."""
    return labels.astype(str) if labels.dtype == object else labels


def _written(write: Any) -> bytes:
    """What a function writes to the file that it is given."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "part")
        return (Path(folder) / "part").read_bytes()


def _read(content: bytes, read: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "part"
        file.write_bytes(content)
        return read(file)
