"""Mean targets: what the pool's labels say of the words in a column of very many.

A network sees words as numbers in sorted order, and distances see the most frequent ones only. How
often each class comes with a word is a number that both can use. Where there are more than two
classes, it is one number for each.

A word with few rows must not tell the network their own labels. So rows of the pool get the mean of
other rows: the pool is cut into folds, and each gets what the others say. Queries get the mean of
all. Means of rare words are drawn towards the mean of all rows (scikit-learn's ``TargetEncoder``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.preprocessing import TargetEncoder

from crumb.machine import quiet
from crumb.table.cells import MISSING, word_of
from crumb.table.encoder import Rows, TableEncoder, column, texts

WIDE = 40  # a column with more words is given by their mean targets
MOST_CLASSES = 10  # with more, there would be too many numbers for a word


@dataclass(frozen=True, eq=False)
class MeanTargets:
    """Of the words in some columns."""

    columns: list[int]  # that have very many words
    places: list[dict[str, int]]  # of their words
    means: np.ndarray  # (columns, words + 1, outputs), the last for words that the pool lacks
    centre: np.ndarray  # (width,) over the rows that they were learned from
    scale: np.ndarray

    @property
    def width(self) -> int:
        return len(self.columns) * self.means.shape[2]

    def of(self, rows: Rows) -> np.ndarray:
        """(n, width) for encoded rows that are not of the pool."""
        pairs = zip(self.columns, self.places, strict=True)
        codes = np.stack([word_places(column(rows, j), known) for j, known in pairs], axis=1)
        return means_of(self.means, codes).reshape(len(rows), self.width)

    def of_one(self, values: Sequence[Any]) -> np.ndarray:
        """(1, width) for the encoded cells of one row."""
        words = (MISSING if values[j] != values[j] else word_of(values[j]) for j in self.columns)
        codes = [known.get(word, -1) for known, word in zip(self.places, words, strict=True)]
        return means_of(self.means, np.array([codes])).reshape(1, self.width)

    def standard(self, found: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """As coordinates. ``weights``: one a column, however many outputs it has."""
        outputs = self.means.shape[2]
        return (found - self.centre) / self.scale * np.repeat(weights, outputs) / outputs**0.5


@dataclass(frozen=True, eq=False)
class KnownMeans:
    """Mean targets, and what the rows that they were learned from get: means of other rows."""

    means: MeanTargets
    known: np.ndarray  # (n, width)

    def take(self, some: np.ndarray) -> KnownMeans:
        return KnownMeans(self.means, self.known[some])


def learn_means(
    rows: Rows,
    encoder: TableEncoder,
    y: np.ndarray,
    n_classes: int | None,
    seed: int,
    least: int = 1,
) -> KnownMeans | None:
    """From encoded rows and their class codes. Words with fewer than ``least`` rows have no mean.

    None where no column has so many words, where there are too many classes, and for regression,
    where it was no gain (docs/defaults.md).
    """
    if n_classes is None or not 2 <= n_classes <= MOST_CLASSES:
        return None
    columns, places, codes = [], [], []
    for j in encoder.categorical_indices:
        counts = word_counts(column(rows, j))
        if len(counts) > WIDE:
            often = sorted(word for word, count in counts.items() if count >= least)
            columns.append(j)
            places.append({word: place for place, word in enumerate(often)})
            codes.append(word_places(column(rows, j), places[-1]))
    if not columns:
        return None
    found = mean_targets(np.stack(codes, axis=1), max(map(len, places)), y, n_classes, seed)
    if found is None:
        return None
    means, known = found[0], found[1].reshape(len(rows), -1)
    scale = known.std(axis=0)
    scale[scale == 0] = 1.0
    return KnownMeans(MeanTargets(columns, places, means, known.mean(axis=0), scale), known)


def mean_targets(
    codes: np.ndarray, words: int, y: np.ndarray, n_classes: int | None, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """(columns, words + 1, outputs) of all rows, and (n, columns, outputs) of other rows for each.

    ``codes`` (n, columns): the places of words, of which there are at most ``words``; −1 or NaN: of
    none. Outputs: one for each class, or one where there are two classes or numbers. None where no
    class has enough rows for the folds.
    """
    codes = np.where(codes >= 0, codes, np.nan)
    several = n_classes and len(np.unique(y)) > 2
    kind = ("multiclass" if several else "binary") if n_classes else "continuous"
    encoder = TargetEncoder(target_type=kind, random_state=seed % 2**32)
    most = np.bincount(y).max() if n_classes else len(y)
    if most < encoder.cv:
        return None
    with quiet():  # about classes with fewer rows than folds
        of_others = encoder.fit_transform(codes, y)
    every = np.append(np.arange(words, dtype=float), np.nan)
    means = encoder.transform(np.tile(every[:, None], codes.shape[1]))
    means = means.reshape(len(every), codes.shape[1], -1).transpose(1, 0, 2)
    return means, of_others.reshape(*codes.shape, -1)


def means_of(means: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(n, columns, outputs) for codes (n, columns); −1: of no word."""
    return means[np.arange(codes.shape[1]), codes]


def word_places(values: pd.Series, places: dict[str, int], unknown: int = -1) -> np.ndarray:
    """Where the words of a column stand; ``unknown`` for those without a place."""
    codes, distinct = pd.factorize(values)
    words = [*map(word_of, distinct), MISSING]  # holes have code −1, the last
    return np.array([places.get(word, unknown) for word in words])[codes]


def word_counts(values: pd.Series) -> Counter[str]:
    return Counter(pd.Series(texts(values, MISSING)).value_counts().to_dict())
