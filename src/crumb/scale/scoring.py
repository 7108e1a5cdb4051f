"""One pass over the pool: every shard makes a shortlist of the rows that the rules want."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput
from crumb.scale.closeness import Closeness
from crumb.scale.frames import to_frame, to_labels
from crumb.scale.rules import Look, Rule
from crumb.scale.shortlist import Kept, Shortlist
from crumb.scale.source import Shard
from crumb.scale.streamed_space import StreamedSpace
from crumb.table import TableEncoder

LARGE = 1e30  # standard deviations: no finite value of float32 is so far out, unless the column is all but constant
LOOK_CELLS = 1 << 19  # distances (clusters × rows) that a look holds at once: about what a core's cache holds


@dataclass(frozen=True)
class Reader:
    """From the rows of a file to points of the selection space and class codes."""

    encoder: TableEncoder
    space: Any
    classes: np.ndarray | None
    seed: int
    token: bytes = field(default_factory=partial(os.urandom, 16))  # of the pool: contexts are kept under its name

    def points(self, block: pa.Table) -> np.ndarray:
        points = self._numbers(block)
        if points is not None:
            return points
        return self.space.transform(self.encoder.transform(to_frame(block, self.encoder.columns_)))

    def _numbers(self, block: pa.Table) -> np.ndarray | None:
        """The same without a data frame in between, for blocks of plain finite numbers; None for all others."""
        if not isinstance(self.space, StreamedSpace) or any(kind != "number" for kind in self.encoder.kinds_):
            return None
        columns = [block[name] for name in self.encoder.columns_]
        if any(column.null_count or not _is_plain(column.type) for column in columns):
            return None
        points = np.empty((len(columns), len(block)), dtype=self.space.dtype)
        for place, column, mean, scale in zip(points, columns, self.space.mean, self.space.scale, strict=True):
            place[:] = (column.to_numpy() - mean) / scale
        # Infinite values, and those too large for float32, have a place of their own.
        return points.T if np.abs(points).max(initial=0.0) < LARGE else None

    def codes(self, block: pa.Table, target: str) -> np.ndarray:
        assert self.classes is not None
        return pd.Index(self.classes).get_indexer(pd.Index(to_labels(block, target)))


@dataclass(frozen=True)
class Score:
    """The shortlist of one shard; a task is the shard and the limits that are known when it starts."""

    reader: Reader
    rules: Sequence[Rule]
    centroids: np.ndarray
    measure: Closeness | None
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
        step = max(256, LOOK_CELLS // len(self.centroids))
        for block in shard.blocks(view.with_target() if self.with_codes else view.features):
            points = self.reader.points(block)
            codes = self.reader.codes(block, str(view.target)) if self.with_codes else None
            for start in range(0, len(points), step):
                rows = slice(start, start + step)
                ids = np.arange(first + start, first + min(start + step, len(points)))
                yield self.look(points[rows], ids, codes if codes is None else codes[rows])
            first += len(points)
        if first != shard.first + shard.rows:
            raise InvalidInput(f"{shard.path} has changed since it was fitted: fit again.")

    def look(self, points: np.ndarray, ids: np.ndarray, codes: np.ndarray | None) -> Look:
        return Look(points, ids, random_numbers(ids, self.reader.seed), codes, self.centroids, self.measure)


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_integer(kind)


def random_numbers(ids: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each row, by its own number and the seed (the mixing of splitmix64)."""
    x = ids.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
