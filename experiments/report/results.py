"""Rows of results from JSON lines into one frame with every column of the schema."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.errors import InvalidInput
from experiments.environment import ENVIRONMENT
from experiments.protocol import IDENTITY
from experiments.run import OUTCOME
from experiments.store import parse_row

BY_CLUSTER = ("cluster_queries", "cluster_score", "cluster_mmd2")  # lists, in some protocols
TEXT = (
    "protocol", "dataset", "task", "model", "method", "kernel", "drawn", "status", "message",
    *ENVIRONMENT,
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    rows: pd.DataFrame
    files: list[str]
    unreadable: int  # lines that are no row: a crash may cut the last one
    repeated: int  # runs with more than one row, of which the last counts


def read_results(path: Path, models: Sequence[str] | None = None) -> Results:
    """One ``.jsonl`` or ``.jsonl.gz`` file, or all of a folder and its folders.

    ``models``: only their rows; all without it.
    """
    files = sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")]) if path.is_dir() else [path]
    records = [parse_row(line) for file in files for line in _lines(file)]
    good = [record for record in records if record is not None]
    if not good:
        raise InvalidInput(f"{path} holds no rows: `python -m experiments run` writes them.")
    rows = as_frame(good)
    if models is not None:
        rows = rows[rows["model"].isin(models)]
        if rows.empty:
            raise InvalidInput(f"{path} holds no rows of {', '.join(models)}.")
    kept = rows.drop_duplicates([*IDENTITY, "device"], keep="last", ignore_index=True)
    names = [file.name for file in files]
    return Results(kept, names, len(records) - len(good), len(rows) - len(kept))


def as_frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """All columns of the schema, numbers as floats, absent text empty."""
    columns = [*IDENTITY, *OUTCOME, *BY_CLUSTER, *ENVIRONMENT]
    rows = pd.DataFrame(records).reindex(columns=columns)
    for name in set(columns) - set(TEXT) - set(BY_CLUSTER):
        rows[name] = pd.to_numeric(rows[name], errors="coerce").astype(float)
    for name in TEXT:
        rows[name] = rows[name].astype(object).where(rows[name].notna(), "").astype(str)
    return rows


def _lines(file: Path) -> list[str]:
    content = file.read_bytes()
    text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode(errors="replace")
    return [line for line in text.split("\n") if line.strip()]
