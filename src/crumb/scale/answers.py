"""Answers for queries in files, chunk by chunk, each in a file of its own until all are there.

The folder ``<out>.parts`` holds what is done: ``job.json`` says for what, and ``plan.zip`` is the
plan that chunks share. An interrupted run continues where it stopped. The answers appear under
their name only when they are complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from crumb.errors import InvalidInput
from crumb.files import atomic_write
from crumb.machine import progress_bar
from crumb.options import PLANNED_ROWS
from crumb.plan import Plan
from crumb.rng import generator
from crumb.scale.engine import LocalEngine
from crumb.scale.reader import fetch_rows, to_frame
from crumb.scale.source import Source, count_rows, open_source

CHUNK_ROWS = 100_000


def open_queries(queries: Any, columns: Sequence[str], where: Any = None) -> Source:
    """The queries in files, with row numbers."""
    return count_rows(open_source(queries, where=where, columns=columns), LocalEngine(1))


def read_rows(source: Source, ids: np.ndarray) -> pd.DataFrame:
    view = source.view
    return to_frame(fetch_rows(LocalEngine(1), source, ids), view.features, view)


def sample_rows(source: Source, most: int, seed: int) -> pd.DataFrame:
    """Queries that stand for all of them."""
    rows = min(most, source.rows)
    drawn = generator(seed, "queries").choice(source.rows, rows, replace=False)
    return read_rows(source, np.sort(drawn))


def answer_files(
    model: Any,
    source: Source,
    out: str | Path,
    answer: Callable[[pd.DataFrame, Plan], pd.DataFrame],
    about: dict[str, Any],
    *,
    plan: Plan | None = None,
    replan: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    verbose: int = 0,
) -> Plan:
    """Write the answers to the Parquet file ``out``, a row group a chunk. Returns the last plan.

    Without a ``plan`` the model makes one for a sample of all queries, or with ``replan`` for each
    chunk. Columns that are no features are for ``answer``. ``about`` is all that decides the
    answers: parts made with another one are refused.
    """
    folder = Path(out).with_name(Path(out).name + ".parts")
    starts = enumerate(range(0, source.rows, chunk_rows))
    parts = {folder / f"{number:06d}.parquet": start for number, start in starts}
    _begin(folder, {**about, "chunk_rows": chunk_rows, "replan": replan}, source)

    def planned(rows: pd.DataFrame) -> Plan:
        return model.plan(rows[list(model.feature_names_in_)])

    def make_plan() -> Plan:
        return planned(sample_rows(source, PLANNED_ROWS, model.options_.seed))

    if plan is None and not replan:
        if not (folder / "plan.zip").exists():
            make_plan().save(folder / "plan.zip")
        plan = Plan.load(folder / "plan.zip")
    with progress_bar(len(parts), "chunks", verbose) as advance:
        for part, start in parts.items():
            if not part.exists():
                rows = read_rows(source, np.arange(start, min(start + chunk_rows, source.rows)))
                plan = planned(rows) if replan or plan is None else plan
                _write(part, answer(rows, plan))
            advance(1)
    _join(Path(out), list(parts))
    shutil.rmtree(folder)
    return plan if plan is not None else make_plan()


def _begin(folder: Path, about: dict[str, Any], source: Source) -> None:
    """Make the folder, or check that its parts belong to the same answers."""
    files = sorted({shard.path for shard in source.shards})
    job = {**about, "rows": source.rows, "files": files}
    text = json.dumps(job, indent=1, sort_keys=True, default=str)
    described = folder / "job.json"
    if not described.exists():
        with atomic_write(described) as file:
            file.write(text.encode())
    elif described.read_text() != text:
        raise InvalidInput(f"{folder} holds parts of other answers: remove it, or write elsewhere.")


def _write(path: Path, answers: pd.DataFrame) -> None:
    with atomic_write(path) as file:
        answers.to_parquet(file, index=False)


def _join(out: Path, parts: Sequence[Path]) -> None:
    """All parts in one file, each a row group."""
    schema = pq.read_schema(parts[0])
    with atomic_write(out) as file, pq.ParquetWriter(file, schema) as writer:
        for part in parts:
            table = pq.read_table(part)
            writer.write_table(table.cast(schema), row_group_size=max(1, len(table)))
