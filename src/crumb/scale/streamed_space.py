"""The selection space of ``space.py``, made from statistics instead of from the rows.

The same map: standardised numbers, missing ones at 0, and an indicator for each category, the rare ones in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from crumb.scale.statistics import MISSING, Moments, Statistics, split_kinds
from crumb.table.encoder import TableEncoder, texts
from crumb.table.space import DOUBLE_CELLS, MAX_CATEGORIES, MAX_INDICATORS


class StreamedSpace:
    """Encoded rows → points, without ever having seen all rows."""

    def __init__(self, statistics: Statistics, kinds: Sequence[str]):
        self.numbers, self.categories = split_kinds(kinds)
        self.mean, self.scale = _standard(statistics.moments.bounded())
        each = max(2, min(MAX_CATEGORIES, MAX_INDICATORS // max(1, len(self.categories))))
        self.indicators = [_Indicators(counts, each) for counts in statistics.counts]
        self.columns = len(self.numbers) + sum(indicators.width for indicators in self.indicators)
        self.dtype = np.float64 if statistics.rows * self.columns <= DOUBLE_CELLS else np.float32

    def transform(self, rows: pd.DataFrame) -> np.ndarray:
        points = np.zeros((len(rows), self.columns))
        for j, column in enumerate(self.numbers):
            points[:, j] = rows.iloc[:, column].to_numpy(dtype=np.float64)
        numbers = points[:, : len(self.numbers)]
        numbers -= self.mean
        numbers /= self.scale
        np.copyto(numbers, 0.0, where=np.isnan(numbers))
        first = len(self.numbers)
        for column, indicators in zip(self.categories, self.indicators, strict=True):
            places = indicators.places(rows.iloc[:, column])
            known = np.flatnonzero(places >= 0)
            points[known, first + places[known]] = 1.0
            first += indicators.width
        return points.astype(self.dtype, copy=False)


class SampledSpace:
    """A transformer of the user's own, fitted on a sample of the rows."""

    def __init__(self, space: Any, points: np.ndarray):
        self.space, self.columns, self.dtype = space, points.shape[1], points.dtype

    def transform(self, rows: pd.DataFrame) -> np.ndarray:
        return self.space.transform(rows)


class _Indicators:
    """One indicator a category; where there are too many, the rarest share the last one, and unknown ones join them."""

    def __init__(self, counts: Counter[str], most: int):
        words = sorted(counts)
        rare: set[str] = set()
        if (
            len(words) >= most
        ):  # as scikit-learn: with just as many, the rarest one takes the shared indicator
            order = np.argsort([counts[word] for word in words], kind="stable")
            rare = {words[i] for i in order[: len(words) - (most - 1)]}
        self.words = pd.Index([word for word in words if word not in rare], dtype=object)
        self.width = len(self.words) + bool(rare)
        self.unknown = len(self.words) if rare else -1

    def places(self, column: pd.Series) -> np.ndarray:
        places = self.words.get_indexer(texts(column, MISSING))
        return np.where(places < 0, self.unknown, places)


def _standard(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation as scikit-learn's StandardScaler has them: a constant column is left unscaled."""
    variance = moments.squares / np.maximum(moments.count, 1)
    # What is left of the variance of a constant column is rounding; the bound is scikit-learn's.
    rounding = np.finfo(np.float64).eps * moments.count
    constant = variance <= rounding * variance + (rounding * moments.mean) ** 2
    return moments.mean, np.where(constant, 1.0, np.sqrt(variance))


def encoder_from(
    kinds: Sequence[str], columns: Sequence[str], statistics: Statistics, declared: Any
) -> TableEncoder:
    """What ``TableEncoder.fit_transform`` would have remembered."""
    encoder = TableEncoder(declared)
    encoder.columns_ = list(columns)
    encoder.kinds_ = [
        "empty" if not present and kind != "category" else kind
        for kind, present in zip(kinds, statistics.present.tolist(), strict=True)
    ]
    encoder.bounds_ = np.full((len(columns), 2), np.nan)
    numbers, _ = split_kinds(kinds)
    encoder.bounds_[numbers] = statistics.moments.bounds()
    return encoder
