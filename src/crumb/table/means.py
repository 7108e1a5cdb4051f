"""Mean targets: what the pool's labels say of the words in a column of very many.

A network sees words as numbers in sorted order, and distances see the most frequent ones only. How
often each class comes with a word is a number that both can use. Where there are more than two
classes, it is one number for each.

A word with few rows must not tell the network their own labels. So rows of the pool get the mean of
other rows: the pool is cut into folds, and each gets what the others say. Queries get the mean of
all. Means of rare words are drawn towards the mean of all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import TargetEncoder
from sklearn.utils.fixes import parse_version

from crumb.machine import quiet
from crumb.table.cells import MISSING, word_of
from crumb.table.encoder import Rows, TableEncoder, column, texts

WIDE = 40  # a column with more words is given by their mean targets
LEAST_ROWS = 2  # of a word that counts by itself; the others share one mean
SMOOTH = 10.0  # rows that the mean of all counts as, beside those of a word
FOLDS = 5
MOST_CLASSES = 10  # with more, there would be too many numbers for a word
MOST_WIDTH = 40  # numbers of all columns together


@dataclass(frozen=True, eq=False)
class MeanTargets:
    """Of the words in some columns."""

    columns: list[int]  # that have very many words
    places: list[dict[str, int]]  # of their words
    means: list[np.ndarray]  # (words + 1, outputs) by column, the last for words without a place
    bounds: np.ndarray  # (2, width), centre and scale (width,): of the rows that taught them
    centre: np.ndarray
    scale: np.ndarray

    @property
    def outputs(self) -> int:
        return self.means[0].shape[1]

    @property
    def width(self) -> int:
        return len(self.columns) * self.outputs

    def of(self, rows: Rows) -> np.ndarray:
        """(n, width) for encoded rows that are not of the pool; within the pool's bounds."""
        return self._found([word_places(column(rows, j), known) for j, known in self._words()])

    def of_one(self, values: Sequence[Any]) -> np.ndarray:
        """(1, width) for the encoded cells of one row."""
        return self._found([[known.get(cell_word(values[j]), -1)] for j, known in self._words()])

    def _words(self) -> zip[tuple[int, dict[str, int]]]:
        return zip(self.columns, self.places, strict=True)

    def _found(self, codes: Sequence[Any]) -> np.ndarray:
        found = [mean[some] for mean, some in zip(self.means, codes, strict=True)]
        return np.clip(np.hstack(found), *self.bounds)

    def standard(self, found: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """As coordinates. ``weights``: one a column, however many outputs it has."""
        heights = np.repeat(weights, self.outputs) / self.outputs**0.5
        return (found - self.centre) / self.scale * heights


def learn_means(
    rows: Rows, encoder: TableEncoder, y: np.ndarray, n_classes: int | None, least: int = LEAST_ROWS
) -> tuple[MeanTargets, np.ndarray] | None:
    """From encoded rows and their class codes; and what these rows get, (n, columns, outputs).

    ``least``: rows of a word that counts by itself. None where no column has so many words, where
    there are too many classes, and for regression, where it was no gain (docs/defaults.md).
    """
    if n_classes is None or not 2 <= n_classes <= MOST_CLASSES:
        return None
    every = (_column(rows, j, y, n_classes, least) for j in encoder.categorical_indices)
    wide = [one for one in every if one is not None]
    if not wide:
        return None
    spread = [-of_rows.std(axis=0).sum() for _, _, _, of_rows in wide]
    most = MOST_WIDTH // wide[0][2].shape[1]
    wide = [wide[i] for i in np.sort(np.argsort(spread, kind="stable")[:most])]  # that tell most
    columns, places, means, known = (list(parts) for parts in zip(*wide, strict=True))
    taught = np.stack(known, axis=1)
    flat = taught.reshape(len(taught), -1)
    bounds, scale = np.stack([flat.min(axis=0), flat.max(axis=0)]), flat.std(axis=0)
    scale[scale == 0] = 1.0
    return MeanTargets(columns, places, means, bounds, flat.mean(axis=0), scale), taught


def _column(
    rows: Rows, j: int, y: np.ndarray, n_classes: int, least: int
) -> tuple[int, dict[str, int], np.ndarray, np.ndarray] | None:
    """Of a column with very many words: itself, their places, their means, and those of rows."""
    counts = word_counts(column(rows, j))
    if len(counts.keys() - {MISSING}) <= WIDE:
        return None
    often = sorted(word for word, count in counts.items() if count >= least)
    if not often:  # names of single rows say nothing
        return None
    words = {word: place for place, word in enumerate(often)}
    found = mean_targets(word_places(column(rows, j), words), len(words), y, n_classes, 0, SMOOTH)
    return None if found is None else (j, words, *found)


def mean_targets(
    codes: np.ndarray,
    words: int,
    y: np.ndarray,
    n_classes: int | None,
    seed: int,
    smooth: str | float = "auto",
) -> tuple[np.ndarray, np.ndarray] | None:
    """(words + 1, outputs) of all rows, and (n, outputs) of other rows for each.

    ``codes`` (n,): the places of words, of which there are ``words``; −1 or NaN: of none, which is
    the last mean. Outputs: one for each class, or one where there are two classes or numbers. None
    where no class has enough rows for the folds.
    """
    codes = np.where(codes >= 0, codes, np.nan)[:, None]
    several = n_classes and len(np.unique(y)) > 2
    kind = ("multiclass" if several else "binary") if n_classes else "continuous"
    encoder = TargetEncoder(target_type=kind, smooth=smooth, **_folds(n_classes, seed))
    most = np.bincount(y).max() if n_classes else len(y)
    if most < FOLDS:
        return None
    with quiet():  # about classes with fewer rows than folds
        of_others = encoder.fit_transform(codes, y)
    return encoder.transform(np.append(np.arange(words), np.nan)[:, None]), of_others


def _folds(n_classes: int | None, seed: int) -> dict[str, Any]:
    """Shuffled folds, as scikit-learn wants to be told: from 1.9 on by a splitter."""
    shuffled = {"shuffle": True, "random_state": seed % 2**32}
    if parse_version(sklearn.__version__) < parse_version("1.9"):
        return {"cv": FOLDS, **shuffled}
    return {"cv": (StratifiedKFold if n_classes else KFold)(FOLDS, **shuffled)}


def word_places(values: pd.Series, places: dict[str, int], unknown: int = -1) -> np.ndarray:
    """Where the words of a column stand; ``unknown`` for those without a place."""
    codes, distinct = pd.factorize(values)
    words = [*map(word_of, distinct), MISSING]  # holes have code −1, the last
    return np.array([places.get(word, unknown) for word in words])[codes]


def word_counts(values: pd.Series) -> Counter[str]:
    return Counter(pd.Series(texts(values, MISSING)).value_counts().to_dict())


def cell_word(value: Any) -> str:
    """The word of an encoded cell; a hole has one too."""
    return MISSING if value != value else word_of(value)
