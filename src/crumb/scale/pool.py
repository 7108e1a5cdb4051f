"""A pool in files: one pass learns its space, one makes a plan, and contexts are read by number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.herding.greedy import bandwidth_rows
from crumb.machine import resolve_jobs
from crumb.options import Options
from crumb.pool import HeldRows, Labelled, Pool
from crumb.rng import generator
from crumb.scale.engine import Engine
from crumb.scale.finder import FileFinder
from crumb.scale.reader import (
    Reader,
    Statistics,
    fetch_rows,
    gather,
    open_encoder,
    to_frame,
    to_labels,
)
from crumb.scale.rules import Block
from crumb.scale.source import Source
from crumb.selection import Strategy
from crumb.selection.base import Finder, TableFinder, support_rows
from crumb.table import space
from crumb.table.encoder import TableEncoder

SKETCH_ROWS, SKETCH_CELLS = 100_000, 8_000_000  # rows, and cells, of the sketch
COVERED_CELLS = 50_000_000  # numbers of a pool whose points are held: 400 MB, twice that at first
HELD_CELLS = 10_000_000  # a table with fewer cells is read whole, as a table in memory


def fits_in_memory(source: Source) -> bool:
    return source.rows * len(source.view.columns) <= HELD_CELLS


def read_whole(source: Source) -> tuple[pd.DataFrame, np.ndarray | None]:
    """The table as a data frame, and its target."""
    view = source.view
    blocks = (block for shard in source.shards for block in shard.blocks(view.columns))
    blocks = pa.concat_tables(blocks)
    labels = None if view.target is None else to_labels(blocks, view.target)
    return to_frame(blocks, view.features, view), labels


class FilePool(Pool):
    """What is known of a pool after one pass; the rows themselves stay where they are.

    ``classify``: whether labels are classes; None where there are none.
    """

    on_disk: ClassVar[bool] = True

    def __init__(
        self,
        source: Source,
        engine: Engine,
        options: Options,
        *,
        classify: bool | None,
        features: Any = None,
        categorical_features: Any = None,
    ):
        _check(options.strategy, features)
        self.source, self.engine, view, seed = source, engine, source.view, options.seed
        opened = open_encoder(source, engine, categorical_features)
        # Rows whose numbers are known before the first pass, so that it can bring them along.
        bandwidth = bandwidth_rows(self.size, generator(seed, "bandwidth"))
        support, sketched = support_rows(self.size, seed), _sketch_rows(source, seed)
        plain = np.union1d(bandwidth, support)  # kept as rows
        auto = space.is_auto(features) and view.target is not None
        weighed = space.relevance_rows(self.size, len(view.features), seed)[: None if auto else 0]
        every = np.union1d(np.union1d(plain, sketched), weighed)
        found = gather(source, engine, opened, classify, every, options.verbose)
        whole = pa.concat_tables(found.sample)
        table, sketch = (whole.take(np.searchsorted(every, ids)) for ids in (plain, sketched))
        self.encoder = found.closed(opened)
        if space.is_auto(features):
            some = whole.take(np.searchsorted(every, weighed))
            features = _weights(some, self.encoder, view.target, bool(classify), options)
        if features is None or space.is_weights(features):
            self.space: space.Space = space.ColumnSpace(found.table, opened, features)
        else:
            self.space = _own_space(features, table, self.encoder, view.target)
        distinct = found.distinct_labels()
        classes = np.unique(distinct) if classify else None
        self.n_classes = None if classes is None else len(classes)
        self.reader = Reader(self.encoder, self.space, view.target, classes, seed)
        self.sample = _held(table, plain, self.reader)
        points = self.sample_points = self.space.transform(self.sample.rows)
        self.some_points = points[np.searchsorted(plain, bandwidth)]
        self.reference = points[np.searchsorted(plain, support)]
        # Random rows, from which the limits of a pass are estimated.
        self.sketch = Block(sketched, self.reader, sketch, bool(classify))
        self.fingerprint = _fingerprint(found, self.encoder, points)
        self.distinct_labels = distinct if classify else self.sample.y
        self.held: Labelled | None = None  # the rows of the contexts that were asked for last
        self.facts = {"pool": {"rows": self.size, "on_disk": True, "covered": self.covered}}

    @property
    def size(self) -> int:
        return self.source.rows

    @property
    def covered(self) -> bool:
        """Whether the points of all rows fit into memory."""
        return self.size * self.shape[1] <= COVERED_CELLS

    def finder(self, options: Options) -> Finder:
        if not self.covered:
            return FileFinder(self, options)
        with_codes = self.n_classes is not None and options.min_per_class > 0
        read, shards = partial(self.reader.read_shard, with_codes), self.source.shards
        found = zip(*self.engine.map(read, shards, len(shards)), strict=True)
        points, codes = map(np.concatenate, found)
        known = self.known_centroids
        return TableFinder(points, codes if with_codes else None, options.seed, known)

    @property
    def guide_rows(self) -> HeldRows:
        """The rows of the sketch, in the order of the pool."""
        order = np.argsort(self.sketch.ids)
        return _held(self.sketch.table.take(order), self.sketch.ids[order], self.reader)

    def hold(self, contexts: Sequence[np.ndarray]) -> Labelled:
        """Read from the files unless they are here already."""
        ids = np.unique(np.concatenate(list(contexts)))
        if self.held is None or not np.isin(ids, self.held.ids).all():
            table = fetch_rows(self.engine, self.source, ids)
            held = _held(table, ids, self.reader)
            self.held = held if self.guide is None else self.guide.held(held)
        return self.held

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows of contexts: they can be read again."""
        return {**vars(self), "held": None}


def _weights(
    table: pa.Table, encoder: TableEncoder, target: Any, classify: bool, options: Options
) -> np.ndarray | None:
    if not len(table):
        return None
    rows = encoder.transform(to_frame(table, encoder.columns_))
    about = encoder, to_labels(table, target), classify
    return space.column_weights(rows, *about, options.seed, resolve_jobs(options.n_jobs))


def _own_space(features: Any, table: pa.Table, encoder: TableEncoder, target: Any) -> space.Space:
    labels = None if target is None else to_labels(table, target)
    rows = encoder.transform(to_frame(table, encoder.columns_))
    return space.learn_space(features, rows, encoder, labels, None)[0]


def _sketch_rows(source: Source, seed: int) -> np.ndarray:
    """In random order, so that the first ones are a sample as well."""
    count = min(source.rows, SKETCH_ROWS, max(1, SKETCH_CELLS // len(source.view.features)))
    return generator(seed, "sketch").choice(source.rows, count, replace=False)


def _held(table: pa.Table, ids: np.ndarray, reader: Reader) -> HeldRows:
    rows = reader.encoder.transform(to_frame(table, reader.encoder.columns_))
    y, n_classes = np.zeros(len(rows)), None
    if reader.classes is not None:
        y, n_classes = reader.codes(table), len(reader.classes)
    elif reader.target is not None:
        y = to_labels(table, reader.target).astype(np.float64)
    return HeldRows(rows, y, ids, n_classes, reader.token)


def _check(strategy: Strategy, features: Any) -> None:
    """What needs the pool in memory is refused before the files are read."""
    if not strategy.drops_rows:
        raise InvalidInput(
            f"strategy={strategy.name!r} needs the whole pool in memory, and this one is too large "
            "for that: choose another strategy, or read the table yourself and pass it."
        )
    if isinstance(features, str) and features == space.EMBEDDING:
        raise InvalidInput("features='embedding' needs the pool in memory: leave it out here.")


def _fingerprint(statistics: Statistics, encoder: TableEncoder, points: np.ndarray) -> str:
    """A checksum of the statistics, and of rows at known places: the order matters too."""
    moments = statistics.table.moments
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((statistics.table.rows, encoder.columns_, encoder.kinds_)).encode())
    for array in (moments.count, moments.mean, moments.squares, moments.low, moments.high, points):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    for counts in statistics.table.counts:
        digest.update(repr(sorted(counts.items())).encode())
    return digest.hexdigest()
