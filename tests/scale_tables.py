"""Tables in files for the tests of crumb.scale: small, with awkward columns, in several files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def mixed(rows: int, seed: int = 0) -> pd.DataFrame:
    """Numbers with holes and infinities, text, categories, bools, dates, and a target."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    x[rng.random(rows) < 0.1] = np.nan
    x[rng.random(rows) < 0.01] = np.inf
    colour = rng.choice(["red", "green", "blue", None], rows)
    return pd.DataFrame(
        {
            "x": x,
            "whole": rng.integers(-5, 500, rows),
            "colour": pd.Series(colour, dtype=object),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], rows)),
            "many": [f"n{code}" for code in (rng.pareto(1.0, rows) * 20).astype(int)],
            "flag": rng.random(rows) < 0.3,
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, rows), unit="D"),
            "target": np.where(np.nan_to_num(x, posinf=1.0) + (colour == "red") > 0.3, "yes", "no"),
        }
    )


def numbers(rows: int, columns: int = 5, seed: int = 0) -> pd.DataFrame:
    """Points of a few groups, so that clusters of queries have rows of their kind."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(scale=3.0, size=(8, columns))
    group = rng.integers(0, 8, rows)
    frame = pd.DataFrame(
        centres[group] + rng.normal(size=(rows, columns)), columns=[f"x{j}" for j in range(columns)]
    )
    return frame.assign(target=group % 3)


def write(folder: Path, frame: pd.DataFrame, files: int = 3, groups: int = 2) -> Path:
    """The frame in several files, several row groups each, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
        table = pa.Table.from_pandas(frame.iloc[rows], preserve_index=False)
        pq.write_table(
            table,
            folder / f"part-{number:03d}.parquet",
            row_group_size=max(1, -(-len(rows) // groups)),
        )
    return folder


@pytest.fixture
def on_disk(monkeypatch):
    """No table is small enough to be read whole, and shards and blocks are small."""
    stay_on_disk(monkeypatch)


def stay_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crumb.scale.pool.HELD_CELLS", 0)
    monkeypatch.setattr("crumb.scale.source.SHARD_ROWS", 300)
    monkeypatch.setattr("crumb.scale.source.BLOCK_ROWS", 128)


def truncate(monkeypatch: pytest.MonkeyPatch, cells: int | None = None) -> None:
    """The points are not all held; candidates have room for ``cells`` numbers."""
    monkeypatch.setattr("crumb.scale.pool.COVERED_CELLS", 0)
    if cells is not None:
        monkeypatch.setattr("crumb.scale.pool.SHORTLIST_CELLS", cells)
