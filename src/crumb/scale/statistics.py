"""What one pass over a table learns for the selection space: moments, category counts, labels, some rows.

Every shard makes its own ``Statistics``; ``merge`` joins two of them. Joined in the order of the shards, the result
does not depend on who worked on which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput
from crumb.scale.frames import plain_columns, to_frame, to_labels
from crumb.scale.source import Shard
from crumb.table.encoder import TableEncoder
from crumb.table.statistics import Moments, TableStatistics

MOST_CLASSES = 100_000


@dataclass
class Statistics:
    table: TableStatistics  # of the columns
    present: np.ndarray  # values of every column that are not missing
    labels: Counter[Any] = field(default_factory=Counter)  # classification: rows of each class
    unlabelled: int = 0
    infinite: int = 0  # labels that are no finite number
    sample: list[tuple[str, pa.Table]] = field(default_factory=list)  # rows that were asked for

    def check_labels(self) -> None:
        if self.unlabelled:
            raise InvalidInput(
                f"Input y contains NaN: {self.unlabelled} of {self.table.rows} labels are missing; leave these rows out with "
                f"where=~pyarrow.compute.field(name).is_null()."
            )
        if self.infinite:
            raise InvalidInput(
                f"Input y contains infinity or a value too large for dtype('float64') in {self.infinite} rows: leave "
                f"them out with where=."
            )

    def distinct_labels(self) -> np.ndarray:
        """One label of each class, as a data frame would hold them."""
        return pd.Series(list(self.labels), dtype=object).infer_objects().to_numpy()

    def merge(self, other: Statistics) -> Statistics:
        return Statistics(
            self.table.merge(other.table),
            self.present + other.present,
            self.labels + other.labels,
            self.unlabelled + other.unlabelled,
            self.infinite + other.infinite,
            self.sample + other.sample,
        )


@dataclass(frozen=True)
class Gather:
    """The statistics of one shard, and the rows of it that are wanted."""

    encoder: TableEncoder  # knows kinds; bounds are still open
    classes: bool  # whether labels are counted or looked at as numbers

    def __call__(self, task: tuple[Shard, np.ndarray]) -> Statistics:
        shard, wanted = task
        parts, first = [], shard.first
        with threadpool_limits(1, "blas"):  # workers share the shards, not the products
            for block in shard.blocks(shard.view.with_target()):
                here = wanted[(wanted >= first) & (wanted < first + len(block))] - first
                parts.append(self._block(block, shard, here))
                first += len(block)
        if first != shard.first + shard.rows:
            raise InvalidInput(f"{shard.path} has changed while it was read: fit again.")
        return joined(parts)

    def _block(self, block: pa.Table, shard: Shard, wanted: np.ndarray) -> Statistics:
        present = np.array([len(block) - block[name].null_count for name in shard.view.features])
        found = Statistics(self._columns(block), present)
        if len(wanted):
            found.sample = [(shard.path, block.take(pa.array(wanted)))]
        if shard.view.target is not None:
            self._label(found, to_labels(block, shard.view.target))
        return found

    def _columns(self, block: pa.Table) -> TableStatistics:
        names = self.encoder.columns_
        plain = None if self.encoder.categorical_indices else plain_columns(block, names)
        if plain is not None:
            return TableStatistics(len(block), Moments.of(plain), [])
        return TableStatistics.of(self.encoder.transform(to_frame(block, names)), self.encoder)

    def _label(self, found: Statistics, labels: np.ndarray) -> None:
        missing = pd.isna(labels)
        found.unlabelled = int(missing.sum())
        if self.classes:
            values = pd.Series(labels[~missing]).value_counts()
            found.labels = Counter(dict(zip(values.index.tolist(), values.tolist(), strict=True)))
            if len(found.labels) > MOST_CLASSES:
                raise InvalidInput(
                    f"The target has more than {MOST_CLASSES:,} classes: use CrumbRegressor for numbers."
                )
        elif labels.dtype.kind not in "fiub":
            raise InvalidInput(
                "Regression needs numbers as labels; for classes use CrumbClassifier."
            )
        else:
            found.infinite = int((~np.isfinite(labels[~missing].astype(np.float64))).sum())


def joined(parts: Iterable[Statistics]) -> Statistics:
    """All of them, in order."""
    whole = None
    for part in parts:
        whole = part if whole is None else whole.merge(part)
    if whole is None:
        raise InvalidInput("The files have no rows, or where= leaves none.")
    return whole
