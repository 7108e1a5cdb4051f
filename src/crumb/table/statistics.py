"""What the encoder and the selection space learn from a table: moments and category counts.

Statistics of parts of a table can be merged, so a table in files is learned block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from crumb.table.encoder import LARGEST, Rows, TableEncoder, texts

MISSING = "\0missing"  # a missing category is a category like any other
MOST_WORDS = 100_000  # distinct texts that are counted; beyond that the rarest half is dropped


@dataclass
class Moments:
    """Count, mean and squared deviations of c columns over finite values, and what was infinite."""

    count: np.ndarray  # (c,)
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray  # least and largest finite value
    high: np.ndarray
    below: np.ndarray  # how many values are −∞ (or too large for float32)
    above: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[np.ndarray]) -> Moments:
        """c columns of equal length, NaN for missing."""
        found = np.array([_column_moments(column) for column in columns]).reshape(-1, 7).T
        return cls(found[0].astype(np.int64), *found[1:5], *found[5:].astype(np.int64))

    def merge(self, other: Moments) -> Moments:
        count = self.count + other.count
        step, part = other.mean - self.mean, other.count / np.maximum(count, 1)
        return Moments(
            count,
            self.mean + step * part,
            self.squares + other.squares + step**2 * self.count * part,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.below + other.below,
            self.above + other.above,
        )

    def bounds(self) -> np.ndarray:
        """(c, 2) most extreme finite values; 0 where there are none."""
        return np.where(self.count[:, None] > 0, np.stack([self.low, self.high], axis=1), 0.0)

    def bounded(self) -> Moments:
        """With infinite values where ``TableEncoder`` puts them: at the bounds."""
        low, high = self.bounds().T
        nothing, none = np.zeros_like(self.mean), np.zeros_like(self.count)
        whole = self
        for number, where in ((self.below, low), (self.above, high)):
            place = np.where(number > 0, where, 0.0)
            whole = whole.merge(Moments(number, place, nothing, low, high, none, none))
        return whole

    def scale(self) -> np.ndarray:
        """(c,) standard deviations, 1 for a constant column, as in StandardScaler."""
        variance = self.squares / np.maximum(self.count, 1)
        # The variance of a constant column is rounding; the bound is scikit-learn's.
        rounding = np.finfo(np.float64).eps * self.count
        constant = variance <= rounding * variance + (rounding * self.mean) ** 2
        return np.where(constant, 1.0, np.sqrt(variance))


@dataclass
class TableStatistics:
    """Of the number columns and the categorical columns of a table, or of a part of it."""

    rows: int
    moments: Moments
    counts: list[Counter[str]]  # of every categorical column, by text

    @classmethod
    def of(cls, rows: Rows, encoder: TableEncoder) -> TableStatistics:
        """Of encoded rows."""
        numbers, categories = encoder.numeric_indices, encoder.categorical_indices
        moments = Moments.of([number_column(rows, j) for j in numbers])
        return cls(len(rows), moments, [word_counts(column(rows, j)) for j in categories])

    def merge(self, other: TableStatistics) -> TableStatistics:
        counts = [merged(a, b) for a, b in zip(self.counts, other.counts, strict=True)]
        return TableStatistics(self.rows + other.rows, self.moments.merge(other.moments), counts)


def column(rows: Rows, j: int) -> pd.Series:
    return rows.iloc[:, j] if isinstance(rows, pd.DataFrame) else pd.Series(rows[:, j])


def number_column(rows: Rows, j: int) -> np.ndarray:
    values: Any = rows.iloc[:, j].to_numpy() if isinstance(rows, pd.DataFrame) else rows[:, j]
    return values.astype(np.float64)


def word_counts(values: pd.Series) -> Counter[str]:
    words, counts = np.unique(texts(values, MISSING).astype(str), return_counts=True)
    return Counter(dict(zip(words.tolist(), counts.tolist(), strict=True)))


def merged(mine: Counter[str], theirs: Counter[str]) -> Counter[str]:
    both = mine + theirs
    if len(both) > MOST_WORDS:
        # By count, then by name: what is dropped does not depend on the order of a dictionary.
        often = sorted(both, key=lambda word: (-both[word], word))[: MOST_WORDS // 2]
        both = Counter({word: both[word] for word in often})
    return both


def _column_moments(values: np.ndarray) -> tuple[float, ...]:
    """As the fields of ``Moments``."""
    values = np.asarray(values, dtype=np.float64)
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    below = above = 0
    if not (low >= -LARGEST and high <= LARGEST):  # NaN compares false
        below, above = int((values < -LARGEST).sum()), int((values > LARGEST).sum())
        values = values[np.abs(values) <= LARGEST]
        low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    mean = values.sum() / max(1, len(values))
    deviation = values - mean
    return len(values), mean, float(deviation @ deviation), low, high, below, above
