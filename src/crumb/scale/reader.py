"""What is read from a shard: points of the selection space, class codes, and rows by number.

Workers import this module, ``statistics`` and ``shortlist``: none of them loads torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.rng import row_numbers
from crumb.scale.block import Some
from crumb.scale.engine import Engine
from crumb.scale.frames import plain_columns, to_frame, to_labels
from crumb.scale.source import Shard, Source
from crumb.table.encoder import LARGEST, TableEncoder
from crumb.table.space import ColumnSpace, Space


@dataclass(frozen=True)
class Reader:
    """From the rows of a file to points and class codes."""

    encoder: TableEncoder
    space: Space
    classes: np.ndarray | None
    seed: int
    token: bytes = field(default_factory=partial(os.urandom, 16))  # of the pool

    def points(self, block: pa.Table, rows: Some = None) -> np.ndarray:
        if not (len(block) if rows is None else len(rows)):  # transformers refuse empty tables
            return np.empty((0, self.space.width), dtype=self.space.dtype)
        points = self._of_numbers(block, rows)
        if points is not None:
            return points
        frame = to_frame(_taken(block, rows), self.encoder.columns_)
        return self.space.transform(self.encoder.transform(frame))

    def _of_numbers(self, block: pa.Table, rows: Some) -> np.ndarray | None:
        """The same without a data frame, for blocks of plain finite numbers; None for others."""
        if not isinstance(self.space, ColumnSpace):
            return None
        if any(kind != "number" for kind in self.encoder.kinds_):
            return None
        columns = plain_columns(block, self.encoder.columns_)
        if not columns:
            return None
        values = columns if rows is None else [column[rows] for column in columns]
        # Infinite values, and those too large for float32, go to the bounds. NaN compares false.
        if not all(v.min(initial=0) >= -LARGEST and v.max(initial=0) <= LARGEST for v in values):
            return None
        return self.space.of_columns(values)

    def codes(self, block: pa.Table, target: str, rows: Some = None) -> np.ndarray:
        labels = to_labels(_taken(block.select([target]), rows), target)
        return pd.Index(self.classes).get_indexer(pd.Index(labels))


@dataclass(frozen=True)
class ReadPoints:
    """The points, and perhaps the classes, of a random fraction of the rows of a shard."""

    reader: Reader
    fraction: float
    with_codes: bool

    def __call__(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        points, codes = [self.reader.points(pa.table({}))], [np.empty(0, dtype=np.int64)]
        for first, block in shard.numbered_blocks(self.with_codes):
            ids = np.arange(first, first + len(block))
            rows = None
            if self.fraction < 1.0:
                numbers = row_numbers(ids, self.reader.seed, "sample of points")
                rows = np.flatnonzero(numbers < self.fraction)
            points.append(self.reader.points(block, rows))
            if self.with_codes:
                codes.append(self.reader.codes(block, str(shard.view.target), rows))
        return np.concatenate(points), np.concatenate(codes)


@dataclass(frozen=True)
class FetchRows:
    """Some rows of a shard, in order. Without a filter only their row groups are read."""

    columns: tuple[str, ...]

    def __call__(self, task: tuple[Shard, np.ndarray]) -> pa.Table:
        shard, wanted = task
        found, first, only = [], shard.first, None
        if shard.view.where is None and shard.sizes:
            rows = np.array([rows for _, rows in shard.sizes])
            group = np.searchsorted(shard.first + np.cumsum(rows), wanted, side="right")
            hit = np.isin(np.arange(len(rows)), group)
            only = [number for (number, _), is_hit in zip(shard.sizes, hit, strict=True) if is_hit]
            # The rows of a group that is left out are not seen: numbers count within the others.
            skipped = np.cumsum(np.where(hit, 0, rows))
            wanted = wanted - skipped[group]
        for block in shard.blocks(self.columns, only):
            here = wanted[(wanted >= first) & (wanted < first + len(block))] - first
            if len(here):
                found.append(block.take(pa.array(here)))
            first += len(block)
        if sum(map(len, found)) != len(wanted):
            raise InvalidInput(f"{shard.path} has changed since it was opened: fit again.")
        return pa.concat_tables(found)


def fetch_rows(engine: Engine, source: Source, ids: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """The rows with these numbers (each once, rising), as one table."""
    tasks = [(shard, shard.among(ids)) for shard in source.shards]
    tasks = [(shard, wanted) for shard, wanted in tasks if len(wanted)]
    return pa.concat_tables(engine.map(FetchRows(tuple(columns)), tasks, len(tasks)))


def _taken(block: pa.Table, rows: Some) -> pa.Table:
    return block if rows is None else block.take(pa.array(rows))
