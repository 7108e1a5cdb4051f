"""A large labelled table in Parquet: deterministic, written in parts, the same rows whatever the number of parts.

Rows come from Gaussian groups of different widths, so that clusters of queries have rows of their kind and others.

    python benchmarks/scale/generate.py --rows 1000000 --out big/
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = 20
GROUPS = 200
PART_ROWS = 1_000_000
GROUP_ROWS = 250_000  # a Parquet row group
TARGET = "target"


def groups() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres (G, d), widths (G,) and weights (G,) of the groups."""
    rng = np.random.default_rng(7)
    weights = rng.dirichlet(np.full(GROUPS, 2.0))
    return rng.normal(scale=2.0, size=(GROUPS, COLUMNS)), rng.uniform(0.5, 1.5, GROUPS), weights


def rows(part: int, count: int) -> dict[str, np.ndarray]:
    """One part of the table, by its number alone."""
    centres, widths, weights = groups()
    rng = np.random.default_rng([11, part])
    group = rng.choice(GROUPS, count, p=weights)
    points = rng.standard_normal((count, COLUMNS))
    points *= widths[group, None]
    points += centres[group]
    label = (group % 3 + (points[:, 0] > 0)) % 3
    return {**{f"x{j:02d}": points[:, j] for j in range(COLUMNS)}, TARGET: label.astype(np.int8)}


def queries(count: int) -> dict[str, np.ndarray]:
    """Rows of the same kind that are in no part; no target."""
    found = rows(1 << 30, count)
    found.pop(TARGET)
    return found


def write(folder: Path, total: int) -> Path:
    """The table under ``folder``; nothing is done where it lies there already."""
    target = folder / f"rows-{total}"
    if target.exists():
        return target
    building = folder / f"building-{total}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for part, start in enumerate(range(0, total, PART_ROWS)):
        write_part(building, part, min(PART_ROWS, total - start))
    building.rename(target)
    return target


def write_part(folder: Path, part: int, count: int) -> None:
    pq.write_table(
        pa.table(rows(part, count)), folder / f"part-{part:05d}.parquet", row_group_size=GROUP_ROWS
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    print(write(arguments.out, arguments.rows))
