"""Rows of results from JSON lines into one frame with every column of the schema."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.errors import InvalidInput

TEXT = ("protocol", "dataset", "task", "model", "method", "kernel", "drawn", "status", "message")
ENVIRONMENT = ("crumb", "python", "torch", "tabicl", "sklearn", "device", "machine", "when")
VARIED = ("seed", "N", "T", "n", "K", "p", "tau", "D", "B")
SCORES = ("accuracy", "auc", "log_loss", "rmse", "r2")
COSTS = ("plan_seconds", "pass_seconds", "seconds", "context_mean", "contexts", "mmd2")
BY_CLUSTER = ("cluster_queries", "cluster_score", "cluster_mmd2")  # lists, where a protocol has them
NEEDED = ("protocol", "dataset", "method", "status")
IDENTITY = ("protocol", "dataset", "task", "model", "method", "kernel", "drawn", *VARIED, "device")


@dataclass(frozen=True)
class Results:
    rows: pd.DataFrame
    files: list[str]
    unreadable: int  # lines that are no row: a crash may cut the last one
    repeated: int  # runs with more than one row, of which the last counts


def read_results(path: Path) -> Results:
    """One ``.jsonl`` or ``.jsonl.gz`` file, or all of a folder and its folders."""
    files = _files(Path(path))
    records: list[dict[str, Any]] = []
    unreadable = 0
    for file in files:
        for record in _records(file):
            if record is None:
                unreadable += 1
            else:
                records.append(record)
    if not records:
        raise InvalidInput(f"{path} holds no rows of crumb bench: run `crumb bench run … --out {path}` first.")
    rows = as_frame(records)
    kept = rows.drop_duplicates(list(IDENTITY), keep="last", ignore_index=True)
    return Results(kept, [file.name for file in files], unreadable, len(rows) - len(kept))


def as_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """All columns of the schema, numbers as floats, absent text empty."""
    rows = pd.DataFrame(records).reindex(columns=[*TEXT, *VARIED, *SCORES, *COSTS, *BY_CLUSTER, *ENVIRONMENT])
    for name in (*VARIED, *SCORES, *COSTS):
        rows[name] = pd.to_numeric(rows[name], errors="coerce").astype(float)
    for name in (*TEXT, *ENVIRONMENT):
        rows[name] = rows[name].astype(object).where(rows[name].notna(), "").astype(str)
    return rows


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(2, "No such file or folder", str(path))
    return sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")]) if path.is_dir() else [path]


def _records(file: Path) -> Iterator[dict[str, Any] | None]:
    unpacked = gzip.open if file.suffix == ".gz" else open
    with unpacked(file, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.strip():
                yield _record(line)


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and all(record.get(name) for name in NEEDED) else None
