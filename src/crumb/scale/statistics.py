"""What one pass over a table learns for the selection space: moments, category counts, labels, some rows.

Every shard makes its own ``Statistics``; ``merge`` joins two of them. Joined in the order of the shards, the result
does not depend on who worked on which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from threadpoolctl import threadpool_limits

from crumb.errors import InvalidInput
from crumb.scale.frames import plain_columns, to_frame, to_labels
from crumb.scale.source import Shard
from crumb.table.encoder import LARGEST, TableEncoder, texts

MOST_VALUES = 100_000  # distinct texts that are counted; beyond, the rarest half is forgotten
MOST_CLASSES = 100_000
MISSING = "\0missing"


@dataclass
class Moments:
    """Count, mean and sum of squared deviations of c columns, over their finite values, and what was infinite."""

    count: np.ndarray  # (c,)
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray  # least and largest finite value
    high: np.ndarray
    below: np.ndarray  # how many values are −∞ (or too large for float32)
    above: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[np.ndarray]) -> Moments:
        """c columns of as many rows, NaN for missing."""
        found = np.array([_column_moments(column) for column in columns]).reshape(-1, 7).T
        return cls(found[0].astype(np.int64), *found[1:5], *found[5:].astype(np.int64))

    def merge(self, other: Moments) -> Moments:
        count = self.count + other.count
        step, share = other.mean - self.mean, other.count / np.maximum(count, 1)
        return Moments(
            count,
            self.mean + step * share,
            self.squares + other.squares + step**2 * self.count * share,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.below + other.below,
            self.above + other.above,
        )

    def bounds(self) -> np.ndarray:
        """(c, 2) most extreme finite values; 0 where there are none."""
        return np.where(self.count[:, None] > 0, np.stack([self.low, self.high], axis=1), 0.0)

    def bounded(self) -> Moments:
        """With infinite values in the place that ``TableEncoder`` gives them: at the bounds."""
        low, high = self.bounds().T
        nothing = np.zeros_like(self.mean)
        none = np.zeros_like(self.count)
        whole = self
        for number, where in ((self.below, low), (self.above, high)):
            whole = whole.merge(
                Moments(number, np.where(number > 0, where, 0.0), nothing, low, high, none, none)
            )
        return whole


@dataclass
class Statistics:
    rows: int
    moments: Moments  # of the number columns
    present: np.ndarray  # values of every column that are not missing
    counts: list[Counter[str]]  # of the categorical columns, by text
    labels: Counter[Any] = field(default_factory=Counter)  # classification: rows of each class
    unlabelled: int = 0
    infinite: int = 0  # labels that are no finite number
    sample: list[tuple[str, pa.Table]] = field(default_factory=list)  # rows that were asked for

    def check_labels(self) -> None:
        if self.unlabelled:
            raise InvalidInput(
                f"Input y contains NaN: {self.unlabelled} of {self.rows} labels are missing; leave these rows out with "
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
            self.rows + other.rows,
            self.moments.merge(other.moments),
            self.present + other.present,
            [_joined(mine, theirs) for mine, theirs in zip(self.counts, other.counts, strict=True)],
            self.labels + other.labels,
            self.unlabelled + other.unlabelled,
            self.infinite + other.infinite,
            self.sample + other.sample,
        )


@dataclass(frozen=True)
class Gather:
    """The statistics of one shard, and the rows of it that are wanted."""

    encoder: TableEncoder  # knows kinds, and no bounds yet
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
        columns, counts = self._columns(block)
        present = np.array([len(block) - block[name].null_count for name in shard.view.features])
        found = Statistics(len(block), Moments.of(columns), present, counts)
        if len(wanted):
            found.sample = [(shard.path, block.take(pa.array(wanted)))]
        if shard.view.target is not None:
            self._label(found, to_labels(block, shard.view.target))
        return found

    def _columns(self, block: pa.Table) -> tuple[list[np.ndarray], list[Counter[str]]]:
        """The number columns of a block, and the counts of its categories."""
        numbers, categories = split_kinds(self.encoder.kinds_)
        plain = None if categories else plain_columns(block, self.encoder.columns_)
        if plain is not None:
            return plain, []
        frame: Any = self.encoder.transform(to_frame(block, self.encoder.columns_))
        columns = [frame.iloc[:, column].to_numpy(dtype=np.float64) for column in numbers]
        return columns, [Counter(_text_counts(frame.iloc[:, column])) for column in categories]

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


def _column_moments(column: np.ndarray) -> tuple[float, ...]:
    """As the fields of ``Moments``."""
    values = np.asarray(column, dtype=np.float64)
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    below = above = 0
    if not (low >= -LARGEST and high <= LARGEST):  # NaN compares false
        below, above = int((values < -LARGEST).sum()), int((values > LARGEST).sum())
        values = values[np.abs(values) <= LARGEST]
        low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    mean = values.sum() / max(1, len(values))
    deviation = values - mean
    return len(values), mean, float(deviation @ deviation), low, high, below, above


def joined(parts: Iterable[Statistics]) -> Statistics:
    """All of them, in order."""
    whole = None
    for part in parts:
        whole = part if whole is None else whole.merge(part)
    if whole is None:
        raise InvalidInput("The files have no rows, or where= leaves none.")
    return whole


def split_kinds(kinds: Sequence[str]) -> tuple[list[int], list[int]]:
    """Positions of the number columns (empty ones among them) and of the categorical ones."""
    categories = [index for index, kind in enumerate(kinds) if kind in ("text", "category")]
    return [index for index in range(len(kinds)) if index not in set(categories)], categories


def _text_counts(column: pd.Series) -> dict[str, int]:
    words, counts = np.unique(texts(column, MISSING).astype(str), return_counts=True)
    return dict(zip(words.tolist(), counts.tolist(), strict=True))


def _joined(mine: Counter[str], theirs: Counter[str]) -> Counter[str]:
    both = mine + theirs
    if len(both) > MOST_VALUES:
        # By count and then by name, so that what is forgotten does not depend on the order of a dictionary.
        often = sorted(both, key=lambda word: (-both[word], word))[: MOST_VALUES // 2]
        both = Counter({word: both[word] for word in often})
    return both
