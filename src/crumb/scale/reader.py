"""What is read from a shard: data frames for ``TableEncoder``, points, class codes, rows by number.

In memory the kind of a column follows from its values. In files the types alone decide. Workers
import this module, ``statistics`` and ``shortlist``: none of them loads torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.scale.engine import Engine
from crumb.scale.source import Shard, Source, View, among
from crumb.table.encoder import LARGEST, TableEncoder
from crumb.table.space import ColumnSpace, Space

Some: TypeAlias = "np.ndarray | None"  # places in a block, rising; None: all


def to_frame(block: pa.Table, columns: Sequence[str], view: View | None = None) -> pd.DataFrame:
    """Some columns of a block; types that pandas would hold as objects become numbers first.

    With a ``view`` what some file holds as a dictionary is a category again.
    """
    frame = pa.table({name: _number(block[name]) for name in columns}).to_pandas()
    categories = view.dictionaries.intersection(columns) if view else ()
    return frame.astype(dict.fromkeys(categories, "category"))


def plain_columns(block: pa.Table, columns: Sequence[str]) -> list[np.ndarray] | None:
    """The columns as they lie in memory; None unless all are plain numbers without holes."""
    plain = pa.types.is_float32, pa.types.is_float64, pa.types.is_integer
    found = [block[name] for name in columns]
    if any(one.null_count or not any(is_of(one.type) for is_of in plain) for one in found):
        return None
    return [column.to_numpy() for column in found]


def to_labels(block: pa.Table, target: str) -> np.ndarray:
    """The target of a block as it would come from a data frame."""
    column = block[target]
    is_decimal = pa.types.is_decimal(column.type)
    return pd.Series((_number(column) if is_decimal else column).to_pandas()).to_numpy()


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind, types = column.type, pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if types.is_boolean(kind) or types.is_decimal(kind) or types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    if types.is_date(kind):
        return column.cast(pa.timestamp("us" if types.is_date32(kind) else "ms"))
    return column.cast(pa.string()) if types.is_time(kind) else column


@dataclass(frozen=True)
class Reader:
    """From the rows of a file to points and class codes."""

    encoder: TableEncoder
    space: Space
    target: str | None
    classes: np.ndarray | None
    seed: int
    token: bytes = field(default_factory=partial(os.urandom, 16))  # of the pool

    def points(self, block: pa.Table, rows: Some = None) -> np.ndarray:
        if not (len(block) if rows is None else len(rows)):  # transformers refuse empty tables
            return np.empty((0, self.space.width), dtype=self.space.dtype)
        if (points := self._of_numbers(block, rows)) is not None:
            return points
        frame = to_frame(_taken(block, rows), self.encoder.columns_)
        return self.space.transform(self.encoder.transform(frame))

    def _of_numbers(self, block: pa.Table, rows: Some) -> np.ndarray | None:
        """The same without a data frame, for blocks of plain finite numbers; None for others."""
        numeric = all(kind == "number" for kind in self.encoder.kinds_)
        if not numeric or not isinstance(self.space, ColumnSpace):
            return None
        columns = plain_columns(block, self.encoder.columns_)
        if not columns:
            return None
        values = columns if rows is None else [column[rows] for column in columns]
        # Infinite values, and those too large for float32, go to the bounds. NaN compares false.
        if not all(v.min(initial=0) >= -LARGEST and v.max(initial=0) <= LARGEST for v in values):
            return None
        return self.space.of_columns(values)

    def codes(self, block: pa.Table, rows: Some = None) -> np.ndarray:
        assert self.target is not None
        labels = to_labels(_taken(block.select([self.target]), rows), self.target)
        return pd.Index(self.classes).get_indexer(pd.Index(labels))

    def read_shard(self, with_codes: bool, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """All points, and perhaps the classes."""
        points, codes = [self.points(pa.table({}))], [np.empty(0, dtype=np.int64)]
        for _, block in shard.numbered_blocks(with_codes):
            points.append(self.points(block))
            if with_codes:
                codes.append(self.codes(block))
        return np.concatenate(points), np.concatenate(codes)


def fetch_rows(engine: Engine, source: Source, ids: np.ndarray) -> pa.Table:
    """The rows with these numbers (each once, rising), as one table."""
    groups = [group for shard in source.shards for group in shard.groups()]
    tasks = [(group, among(ids, group.first, group.rows)) for group in groups]
    tasks = [(group, wanted) for group, wanted in tasks if len(wanted)]
    return pa.concat_tables(engine.map(_fetch, tasks, len(tasks)))


def _fetch(task: tuple[Shard, np.ndarray]) -> pa.Table:
    shard, wanted = task
    blocks = shard.numbered_blocks()
    return pa.concat_tables(
        block.take(among(wanted, first, len(block)) - first) for first, block in blocks
    )


def _taken(block: pa.Table, rows: Some) -> pa.Table:
    return block if rows is None else block.take(rows)
