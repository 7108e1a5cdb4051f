"""What is read from shards: data frames, points, class codes, rows by number, and statistics.

In memory the kind of a column follows from its values. In files its type decides; text is looked at
first, for it may be dates. Every shard makes its own ``Statistics``. They are joined in the order
of the shards, so the result does not depend on which worker had which shard. Workers import this
module and ``shortlist``: neither loads torch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.machine import blas_in_one_thread, progress_bar
from crumb.scale.engine import Engine
from crumb.scale.source import Shard, Source, View, among
from crumb.table.cells import LARGEST, MISSING, Words, from_arrow, kind_of
from crumb.table.encoder import TableEncoder
from crumb.table.space import ColumnSpace, Moments, Space, TableStatistics

MOST_CLASSES = 100_000
Some: TypeAlias = "np.ndarray | None"  # places in a block, rising; None: all


def to_frame(block: pa.Table, columns: Sequence[str], view: View | None = None) -> pd.DataFrame:
    """Some columns of a block; with a ``view``, dictionaries of some file are categories again."""
    frame = pd.DataFrame({name: from_arrow(block[name]) for name in columns})
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
    return pd.Series(from_arrow(column) if is_decimal else column.to_pandas()).to_numpy()


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


@dataclass
class Statistics:
    table: TableStatistics  # of the columns
    present: np.ndarray  # values of every column that are not missing
    labels: Counter[Any] = field(default_factory=Counter)  # classification: the classes
    sample: list[pa.Table] = field(default_factory=list)  # rows that were asked for

    def distinct_labels(self) -> np.ndarray:
        """One label of each class, as a data frame would hold them."""
        return pd.Series(list(self.labels), dtype=object).infer_objects().to_numpy()

    def closed(self, encoder: TableEncoder) -> TableEncoder:
        """What ``TableEncoder.fit_transform`` would have learned from the whole table."""
        moments, present = self.table.moments, self.present.copy()
        present[encoder.numeric_indices] = moments.count + moments.below + moments.above
        kinds = np.where(present > 0, encoder.kinds_, "empty").tolist()
        bounds, words = np.full((len(kinds), 2), np.nan), list(encoder.words_)
        bounds[encoder.numeric_indices] = moments.bounds()
        for j, counts in zip(encoder.categorical_indices, self.table.counts, strict=True):
            one = words[j]
            assert one is not None
            words[j] = one.learned(word for word in counts if word != MISSING)
        whole = TableEncoder()
        whole.columns_, whole.kinds_ = encoder.columns_, kinds
        whole.bounds_, whole.words_ = bounds, words
        return whole

    def merge(self, other: Statistics) -> Statistics:
        names = [one.name for one in fields(self) if one.name != "table"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Statistics(self.table.merge(other.table), **sums)


@dataclass(frozen=True)
class Gather:
    """The statistics of one shard, and the rows of it that are wanted."""

    encoder: TableEncoder  # knows kinds; bounds are still open
    classes: bool  # whether labels are counted or looked at as numbers

    def __call__(self, task: tuple[Shard, np.ndarray]) -> Statistics:
        shard, wanted = task
        parts = []
        with blas_in_one_thread():  # workers take shards, and do not split products
            for first, block in shard.numbered_blocks():
                here = among(wanted, first, len(block)) - first
                parts.append(self._block(block, shard, here))
        return reduce(Statistics.merge, parts)

    def _block(self, block: pa.Table, shard: Shard, wanted: np.ndarray) -> Statistics:
        names, target = self.encoder.columns_, shard.view.target
        plain = None if self.encoder.categorical_indices else plain_columns(block, names)
        if plain is not None:
            table = TableStatistics(len(block), Moments.of(plain), [])
        else:
            table = TableStatistics.of(self.encoder.transform(to_frame(block, names)), self.encoder)
        present = np.array([len(block) - block[name].null_count for name in names])
        found = Statistics(table, present)
        if len(wanted):
            found.sample = [block.take(wanted)]
        if target is not None:
            labels = to_labels(block, target)
            _check(labels, self.classes, shard.path)
            found.labels = Counter(pd.unique(labels).tolist() if self.classes else ())
        return found


def _check(labels: np.ndarray, classes: bool, path: str) -> None:
    if not classes and labels.dtype.kind not in "fiub":
        raise InvalidInput("Regression needs numbers as labels; for classes use CrumbClassifier.")
    problem = "NaN: labels are missing" if pd.isna(labels).any() else None
    if not problem and not classes and not np.isfinite(labels.astype(np.float64)).all():
        problem = "infinity or a value too large for dtype('float64')"
    if problem:
        raise InvalidInput(
            f"Input y contains {problem} in {path}; leave these rows out with where=, "
            "such as where=~pyarrow.compute.field(name).is_null()."
        )


def open_encoder(source: Source, engine: Engine, categorical_features: Any) -> TableEncoder:
    """An encoder that knows only the kinds: infinite values are counted, not moved."""
    view = source.view
    encoder = TableEncoder(categorical_features)
    encoder.columns_ = list(view.features)
    encoder.kinds_ = [_kind(view.schema.field(name)) for name in view.features]
    marked = view.dictionaries.union(encoder.declared())
    for j, name in enumerate(view.features):
        if name in marked and encoder.kinds_[j] != "empty":
            encoder.kinds_[j] = "category"
    texts = [j for j, kind in enumerate(encoder.kinds_) if kind == "text"]
    for name in _dated([view.features[j] for j in texts], source, engine):
        encoder.kinds_[view.features.index(name)] = "number"
    encoder.bounds_ = np.tile([-np.inf, np.inf], (len(view.features), 1))
    types = [view.schema.field(name).type for name in view.features]
    measured = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    encoder.words_ = [
        Words(numbers=kind == "category" and any(is_of(one) for is_of in measured))
        if kind in ("text", "category")
        else None
        for kind, one in zip(encoder.kinds_, types, strict=True)
    ]
    return encoder


def _dated(texts: list[str], source: Source, engine: Engine) -> set[str]:
    """The columns of text that hold nothing but dates."""
    first, *others = source.shards
    texts = _dates_of(texts, first)
    found = engine.map(partial(_dates_of, texts), others, len(others)) if texts else ()
    return set(texts).intersection(*found)


def _dates_of(texts: list[str], shard: Shard) -> list[str]:
    for block in shard.blocks(texts) if texts else ():
        texts = [name for name in texts if kind_of(from_arrow(block[name])) != "text"]
        if not texts:  # after the first rows of most files
            break
    return texts


def gather(
    source: Source,
    engine: Engine,
    encoder: TableEncoder,
    classify: bool | None,
    wanted: np.ndarray,
    verbose: int = 0,
) -> Statistics:
    """One pass. ``wanted``: numbers of rows that come along, rising."""
    gather_shard, shards, found = Gather(encoder, bool(classify)), source.shards, None
    tasks = ((shard, among(wanted, shard.first, shard.rows)) for shard in shards)
    with progress_bar(len(shards), "reading", verbose) as advance:
        for part in engine.map(gather_shard, tasks, len(shards)):
            found = part if found is None else found.merge(part)
            if len(found.labels) > MOST_CLASSES:
                said = f"The target has over {MOST_CLASSES:,} classes"
                raise InvalidInput(f"{said}: use CrumbRegressor for numbers.")
            advance(1)
    assert found is not None
    return found


def _kind(field: pa.Field) -> str:
    """ "number", "text" or "empty"."""
    kind, types = field.type, pa.types
    if types.is_null(kind):
        return "empty"
    texts = types.is_string, types.is_large_string, types.is_string_view, types.is_time
    raw = types.is_binary, types.is_large_binary, types.is_fixed_size_binary
    if any(is_of(kind) for is_of in texts + raw):
        return "text"
    if types.is_primitive(kind) or types.is_decimal(kind):  # dates and durations too
        return "number"
    raise InvalidInput(
        f"The column {field.name!r} is of type {kind}, which is no feature: "
        "leave it out with columns=."
    )
