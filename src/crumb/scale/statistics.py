"""What one pass over a table learns: moments, category counts, labels, and some rows.

Every shard makes its own ``Statistics``; ``merge`` joins two of them. They are joined in the order
of the shards, so the result does not depend on which worker had which shard.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput
from crumb.progress import progress_bar
from crumb.scale.engine import Engine
from crumb.scale.reader import plain_columns, to_frame, to_labels
from crumb.scale.source import Shard, Source, View, among
from crumb.table.encoder import TableEncoder
from crumb.table.statistics import Moments, TableStatistics

MOST_CLASSES = 100_000


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
        kinds = [
            "empty" if not present and kind != "category" else kind
            for kind, present in zip(encoder.kinds_, self.present.tolist(), strict=True)
        ]
        bounds = np.full((len(kinds), 2), np.nan)
        bounds[encoder.numeric_indices] = self.table.moments.bounds()
        return TableEncoder.learned(encoder.columns_, kinds, bounds)

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
        with threadpool_limits(1, "blas"):  # workers take shards, and do not split products
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


def open_encoder(view: View, categorical_features: Any) -> TableEncoder:
    """An encoder that knows only the kinds: infinite values are counted, not moved."""
    encoder = TableEncoder(categorical_features)
    encoder.columns_ = list(view.features)
    encoder.kinds_ = [_kind(view.schema.field(name)) for name in view.features]
    marked = view.dictionaries.union(encoder.declared())
    for j, name in enumerate(view.features):
        if name in marked and encoder.kinds_[j] != "empty":
            encoder.kinds_[j] = "category"
    encoder.bounds_ = np.tile([-np.inf, np.inf], (len(view.features), 1))
    return encoder


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
                raise InvalidInput(
                    f"The target has over {MOST_CLASSES:,} classes: use CrumbRegressor for numbers."
                )
            advance(1)
    assert found is not None
    return found


def _kind(field: pa.Field) -> str:
    """ "number", "text" or "empty"."""
    kind, types = field.type, pa.types
    if types.is_null(kind):
        return "empty"
    texts = types.is_string, types.is_large_string, types.is_string_view, types.is_time
    if any(is_of(kind) for is_of in texts):
        return "text"
    if types.is_primitive(kind) or types.is_decimal(kind):  # dates and durations too
        return "number"
    raise InvalidInput(
        f"The column {field.name!r} is of type {kind}, which is no feature: "
        "leave it out with columns=."
    )
