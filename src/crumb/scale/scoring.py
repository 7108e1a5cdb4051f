"""One pass over the pool: every shard makes a shortlist of the rows that the rules want."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput
from crumb.rng import row_numbers
from crumb.scale.frames import plain_columns, to_frame, to_labels
from crumb.scale.look import Look, RowNumbers, Rows
from crumb.scale.rules import Rule
from crumb.scale.shortlist import Kept, Shortlist
from crumb.scale.source import Shard
from crumb.table.encoder import LARGEST, TableEncoder
from crumb.table.space import ColumnSpace, Space

LOOK_CELLS = 1 << 22  # distances (clusters × rows) that a look holds at once: 32 MB


@dataclass(frozen=True)
class Reader:
    """From the rows of a file to points of the selection space and class codes."""

    encoder: TableEncoder
    space: Space
    classes: np.ndarray | None
    seed: int
    token: bytes = field(default_factory=partial(os.urandom, 16))  # of the pool

    def points(self, block: pa.Table, rows: RowNumbers = None) -> np.ndarray:
        if rows is not None and not len(rows):  # transformers refuse what has no rows
            return np.empty((0, self.space.width), dtype=self.space.dtype)
        points = self._numbers(block, rows)
        if points is not None:
            return points
        frame = to_frame(_taken(block, rows), self.encoder.columns_)
        return self.space.transform(self.encoder.transform(frame))

    def _numbers(self, block: pa.Table, rows: RowNumbers) -> np.ndarray | None:
        """The same without a data frame, for blocks of plain finite numbers; None for others."""
        if not isinstance(self.space, ColumnSpace):
            return None
        if any(kind != "number" for kind in self.encoder.kinds_):
            return None
        columns = plain_columns(block, self.encoder.columns_)
        if not columns:
            return None
        values = columns if rows is None else [column[rows] for column in columns]
        # Infinite values, and those too large for float32, have a place of their own.
        # NaN compares false.
        if not all(v.min(initial=0) >= -LARGEST and v.max(initial=0) <= LARGEST for v in values):
            return None
        return self.space.of_columns(values)

    def codes(self, block: pa.Table, target: str, rows: RowNumbers = None) -> np.ndarray:
        assert self.classes is not None
        return pd.Index(self.classes).get_indexer(
            pd.Index(to_labels(_taken(block.select([target]), rows), target))
        )


@dataclass(frozen=True)
class BlockRows:
    """A block of a file, as rules want to see it."""

    reader: Reader
    block: pa.Table
    target: str | None

    def points(self, rows: RowNumbers) -> np.ndarray:
        return self.reader.points(self.block, rows)

    def codes(self, rows: RowNumbers) -> np.ndarray | None:
        return None if self.target is None else self.reader.codes(self.block, self.target, rows)


@dataclass(frozen=True)
class Score:
    """The shortlist of one shard; a task is the shard and the limits that are known when it starts."""

    reader: Reader
    rules: Sequence[Rule]
    centroids: np.ndarray
    with_codes: bool

    def __call__(self, task: tuple[Shard, np.ndarray]) -> Kept:
        shard, limits = task
        found = Shortlist(self.rules, limits)
        with threadpool_limits(1, "blas"):  # workers share the shards, not the products
            for look in self.looks(shard):
                found.look(look)
        return found.done()

    def looks(self, shard: Shard) -> Iterator[Look]:
        view, first = shard.view, shard.first
        target = view.target if self.with_codes else None
        step = max(256, LOOK_CELLS // len(self.centroids))
        for block in shard.blocks(view.with_target() if self.with_codes else view.features):
            for start in range(0, len(block), step):
                some = block.slice(start, step)
                yield self.look(
                    BlockRows(self.reader, some, target), np.arange(first, first + len(some))
                )
                first += len(some)
        if first != shard.first + shard.rows:
            raise InvalidInput(f"{shard.path} has changed since it was fitted: fit again.")

    def look(self, rows: Rows, ids: np.ndarray) -> Look:
        return Look(rows, ids, row_numbers(ids, self.reader.seed, "rows"), self.centroids)


def _taken(block: pa.Table, rows: RowNumbers) -> pa.Table:
    return block if rows is None else block.take(pa.array(rows))
