"""The selection space: a mixed-type table → a float matrix in which distance means something.

Numbers are standardised with the pool's mean and population standard deviation; missing values take
the mean, that is 0. A categorical column becomes indicators of height 1, so two rows in different
categories are √2 apart: as far as two independent draws of a standardised number are in the mean
square. Where a column has many categories, the rare ones share an indicator.

A query may lie anywhere. Beyond ``FAR`` times the pool's own range all values are the same to the
space: distances stay exact, and such queries can be told apart from the others (``Reach``).

A space is learned from statistics (moments and counts). These can be merged: a table in files is
learned block by block. It is applied to a table, to a block of a file or to a single row.

Columns may have weights: a number is then multiplied by its weight, and an indicator is as high as
it. Rows help the network when they are like the query in what matters. Where all columns count
alike, a table of many weak columns hides the few that matter. So a forest of shallow trees says how
much each column tells about the target; distance² counts a column by that share (docs/defaults.md
has the measurements). Where there are classes, a column of very many words also counts by their
mean targets (``means.py``), with a weight of their own. ``features=`` replaces the space by a
transformer of the user's own, or adds the network's view of the rows (``embedding.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone

from crumb.errors import InvalidInput
from crumb.rng import generator
from crumb.table.cells import LARGEST
from crumb.table.encoder import Rows, TableEncoder, column, number_column, texts
from crumb.table.means import MeanTargets, cell_word, word_counts, word_places

if TYPE_CHECKING:
    from crumb.table.embedding import RowEmbedding

MOST_WORDS = 100_000  # distinct texts that are counted; beyond that the rarest half is dropped
MAX_CATEGORIES = 32  # indicators a column
MAX_INDICATORS = 256  # indicators in all: the width stays bounded, however many columns there are
DOUBLE_CELLS = 10_000_000  # cells up to which points are float64 (80 MB); float32 above
BLOCK_ROWS = 1 << 15
FAR = 10.0  # times the pool's range on either side: farther out values are not told apart
AUTO = "auto"
LEAST_POOL = 2_000  # rows; a smaller pool is a context by itself, and nothing is selected
MOST_ROWS = 20_000  # that the forest learns from
MOST_CELLS = 2_000_000
MOST_CLASSES = 256  # that the forest tells apart
LEAST_SHARE = 0.05  # of an average column's: what a forest overlooks may matter to the network
FOREST = {"n_estimators": 30, "max_leaf_nodes": 500, "max_features": 0.5}
EMBEDDING = "embedding"
# How far rows lie apart by their embeddings, relative to how far they do by their columns.
# Measured beside 1/2, 1 and 2: docs/experiments/ideas.
EMBEDDING_WEIGHT = 4.0


class Space(Protocol):
    """Encoded rows (n, columns of the table) → points (n, width)."""

    width: int
    dtype: Any  # of the points
    reach: Reach  # of the first columns; the others are bounded by themselves

    def transform(self, rows: Rows) -> np.ndarray: ...


class Reach:
    """How far out points lie at most. Rows of the pool are always within."""

    def __init__(self, low: np.ndarray, high: np.ndarray):
        room = FAR * np.maximum(high - low, 1.0)  # a constant column has no range
        self.low, self.high = low - room, high + room

    def clip(self, points: np.ndarray) -> np.ndarray:
        """In place."""
        return np.clip(points, self.low, self.high, out=points)

    def beyond(self, points: np.ndarray) -> np.ndarray:
        """Which rows lie at the limit in some column."""
        points = points[:, : len(self.low)]
        low, high = self.low.astype(points.dtype), self.high.astype(points.dtype)
        return ((points <= low) | (points >= high)).any(axis=1)


def check_features(features: Any) -> None:
    if isinstance(features, str) and features not in (AUTO, EMBEDDING):
        known = f"{AUTO!r}, {EMBEDDING!r}, None, an array of weights or a transformer"
        raise InvalidInput(f"features must be {known}, got {features!r}.")


def is_auto(features: Any) -> bool:
    """Whether the columns are to be weighed."""
    return isinstance(features, str) and features == AUTO


def is_weights(features: Any) -> bool:
    """Whether these are weights of the columns."""
    return isinstance(features, (list, tuple, np.ndarray))


@dataclass(frozen=True)
class Learned:
    """As ``features``: the weights that "auto" found before, those of mean targets among them."""

    weights: np.ndarray


def learn_space(
    features: Any,
    rows: Rows,
    encoder: TableEncoder,
    y: Any,
    embed: RowEmbedding | None,
    means: MeanTargets | None = None,
    known: np.ndarray | None = None,
) -> tuple[Space, np.ndarray]:
    """The space that ``features`` asks for, learned from encoded rows, and their points.

    ``y`` is for transformers that learn from labels; ``embed`` gives the network's row embeddings;
    ``means``: mean targets; ``known``: those of these rows.
    """
    if not (features is None or isinstance(features, str) or is_weights(features)):
        own = OwnSpace(features)
        return own, own.fit_transform(rows, y)
    weights = features if is_weights(features) else None
    space = ColumnSpace(TableStatistics.of(rows, encoder), encoder, weights, means)
    points = space.transform(rows, known)
    return (space, points) if embed is None else _with_embedding(space, points, rows, embed)


class ColumnSpace:
    """The default: standardised numbers, then indicators of the categories, by their weights.

    Mean targets, where there are any, come last.
    """

    def __init__(
        self,
        statistics: TableStatistics,
        encoder: TableEncoder,
        weights: Any = None,  # one a column, and one for its mean targets; None: all are 1
        means: MeanTargets | None = None,
    ):
        self.numbers, self.categories = encoder.numeric_indices, encoder.categorical_indices
        wide = 0 if means is None else len(means.columns)
        self.weights, self.means = weights, means
        weights = np.ones(len(encoder.kinds_) + wide) if weights is None else np.asarray(weights)
        self.heights = weights[self.categories]  # of the indicators
        self.heights_of_means = weights[len(encoder.kinds_) :]
        moments = statistics.moments.bounded()
        self.mean, self.scale = moments.mean, moments.scale() / weights[self.numbers]
        self.reach = Reach(*((moments.bounds().T - self.mean) / self.scale))
        most = max(2, min(MAX_CATEGORIES, MAX_INDICATORS // max(1, len(self.categories))))
        self.indicators = [Indicators(counts, most) for counts in statistics.counts]
        self.width = len(self.numbers) + sum(one.width for one in self.indicators)
        self.width += 0 if means is None else means.width
        self.dtype: Any = np.float64 if statistics.rows * self.width <= DOUBLE_CELLS else np.float32

    def transform(self, rows: Rows, known: np.ndarray | None = None) -> np.ndarray:
        """``known``: mean targets of rows that they were learned from."""
        points = np.zeros((len(rows), self.width), dtype=self.dtype)
        for start in range(0, len(rows), BLOCK_ROWS):  # small blocks stay in the cache
            part = slice(start, start + BLOCK_ROWS)
            block = rows.iloc[part] if isinstance(rows, pd.DataFrame) else rows[part]
            self._fill(points[part], block)
            if self.means is not None:
                found = self.means.of(block) if known is None else known[part]
                found = self.means.standard(found, self.heights_of_means)
                points[part, -self.means.width :] = found
        return points

    def _fill(self, points: np.ndarray, rows: Rows) -> None:
        for place, j in enumerate(self.numbers):
            values = number_column(rows, j)
            points[:, place] = self._standard(values, place)
        first = len(self.numbers)
        for j, indicators, height in self._worded():
            places = indicators.places(column(rows, j))
            known = np.flatnonzero(places >= 0)
            points[known, first + places[known]] = height
            first += indicators.width

    def of_columns(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Points of finite number columns as they lie in memory, for tables without categories."""
        points = np.empty((len(columns), len(columns[0])), dtype=self.dtype)
        for place, values, mean, scale in zip(points, columns, self.mean, self.scale, strict=True):
            np.divide(values - mean, scale, out=place, casting="same_kind")
        return points.T

    def point(self, values: Sequence[Any], numbers: np.ndarray) -> np.ndarray:
        """(1, width) of one encoded row: ``values`` of all columns, ``numbers`` in float64."""
        point = np.zeros((1, self.width), dtype=self.dtype)
        point[0, : len(self.numbers)] = self._standard(numbers[self.numbers], slice(None))
        first = len(self.numbers)
        for j, indicators, height in self._worded():
            place = indicators.place(values[j])
            if place >= 0:
                point[0, first + place] = height
            first += indicators.width
        if self.means is not None:
            found = self.means.standard(self.means.of_one(values), self.heights_of_means)
            point[0, first:] = found
        return point

    def _worded(self) -> Iterator[tuple[int, Indicators, float]]:
        """The columns of categories, their indicators, and how high these are."""
        return zip(self.categories, self.indicators, self.heights, strict=True)

    def _standard(self, values: np.ndarray, place: int | slice) -> np.ndarray:
        with np.errstate(over="ignore"):  # what is infinite then is clipped
            values = (values - self.mean[place]) / self.scale[place]
        values[np.isnan(values)] = 0.0
        return np.clip(values, self.reach.low[place], self.reach.high[place], out=values)


def checked_weights(weights: Any, columns: int, wide: int = 0) -> np.ndarray:
    """``wide``: columns with mean targets, which have weights of their own after those of all."""
    try:
        found = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (columns + wide,) or not np.isfinite(found).all() or (found <= 0).any():
        raise InvalidInput(
            f"Weights given as features= are positive numbers, one for each of the {columns} "
            f"columns; got {weights!r}."
        )
    return found


def relevance_rows(rows: int, columns: int, seed: int) -> np.ndarray:
    """Which rows the forest learns from, rising; none where nothing has to be selected."""
    if rows <= LEAST_POOL:
        return np.empty(0, dtype=np.int64)
    count = min(rows, MOST_ROWS, max(LEAST_POOL, MOST_CELLS // max(1, columns)))
    return np.sort(generator(seed, "relevance").choice(rows, count, replace=False))


def column_weights(
    rows: Rows,
    encoder: TableEncoder,
    y: np.ndarray,
    classify: bool,
    seed: int,
    jobs: int,
    means: np.ndarray | None = None,
) -> np.ndarray:
    """(columns,) the root of each column's share of what a forest learns, relative to the average.

    ``y``: labels of the rows, of any kind that can be sorted. ``means`` (n, wide columns, outputs):
    mean targets of the rows; (wide columns,) are then further weights.
    """
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    places = np.unique(y, return_inverse=True)[1]
    # Ranks: a few extreme targets would decide everything.
    target = places if classify else (places - places.mean()) / max(1.0, places.std())
    if classify and places.max() >= MOST_CLASSES:  # each takes time at every split: the rest is one
        order = np.argsort(np.argsort(-np.bincount(places), kind="stable"))
        target = np.minimum(order, MOST_CLASSES - 1)[places]
    kind = RandomForestClassifier if classify else RandomForestRegressor
    forest = kind(**FOREST, random_state=seed % 2**32, n_jobs=jobs)
    table, columns = _codes(rows, encoder), rows.shape[1]
    if means is not None:
        table = np.hstack([table, means.reshape(len(means), -1).astype(np.float32)])
    shares = forest.fit(table, target).feature_importances_
    if means is not None:
        of_means = shares[columns:].reshape(means.shape[1:]).sum(axis=1)
        shares = np.concatenate([shares[:columns], of_means])
    if not shares.sum():  # one class, or nothing that tells
        return np.ones(len(shares))
    return np.sqrt(np.maximum(shares / shares.mean(), LEAST_SHARE))


def _codes(rows: Rows, encoder: TableEncoder) -> np.ndarray:
    """Numbers near 0, where float32 tells them apart; a category is the place of its word."""
    table = np.empty(rows.shape, dtype=np.float32)
    for j in encoder.numeric_indices:
        values = number_column(rows, j)
        table[:, j] = values - np.nanmean(values) if not np.isnan(values).all() else 0.0
    for j in encoder.categorical_indices:
        table[:, j] = np.unique(texts(column(rows, j), ""), return_inverse=True)[1]
    return table


class Indicators:
    """One indicator a category. Where there are too many, the rarest share the last one.

    A category that the pool never had joins the rare ones, or has no indicator if none are rare.
    """

    def __init__(self, counts: Counter[str], most: int):
        words = sorted(counts)
        rare: set[str] = set()
        if len(words) >= most:  # as scikit-learn: with just as many, the rarest one is shared
            order = np.argsort([counts[word] for word in words], kind="stable")
            rare = {words[i] for i in order[: len(words) - (most - 1)]}
        often = [word for word in words if word not in rare]
        self.known = {word: place for place, word in enumerate(often)}
        self.width = len(often) + bool(rare)
        self.unknown = len(often) if rare else -1

    def place(self, value: Any) -> int:
        """Which indicator a value has; −1 for none."""
        return self.known.get(cell_word(value), self.unknown)

    def places(self, values: pd.Series) -> np.ndarray:
        return word_places(values, self.known, self.unknown)


class OwnSpace:
    """A transformer of the user's own."""

    def __init__(self, transformer: Any):
        self.transformer = clone(transformer)

    def fit_transform(self, rows: Rows, y: np.ndarray | None) -> np.ndarray:
        points = self.transformer.fit_transform(rows, y)
        self.dtype: Any = np.float64 if np.size(points) <= DOUBLE_CELLS else np.float32
        points = self._checked(points, len(rows))
        self.width = points.shape[1]
        # Only distances matter, and they are exact only near the origin.
        self.centre = points.mean(axis=0)
        points = points - self.centre
        self.reach = Reach(points.min(axis=0), points.max(axis=0))
        return points

    def transform(self, rows: Rows) -> np.ndarray:
        points = self._checked(self.transformer.transform(rows), len(rows)) - self.centre
        return self.reach.clip(points)

    def _checked(self, points: Any, n_rows: int) -> np.ndarray:
        points = points.toarray() if hasattr(points, "toarray") else points
        points = np.ascontiguousarray(points, dtype=self.dtype)
        if points.ndim != 2 or len(points) != n_rows or not np.isfinite(points).all():
            raise InvalidInput(
                "The selection space must be a finite matrix with one row for each row of the "
                "table; check the transformer given as features=."
            )
        return points


class EmbeddedSpace:
    """The columns, and beside them the network's row embeddings."""

    def __init__(self, columns: ColumnSpace, embed: RowEmbedding, weight: float, width: int):
        self.columns, self.embed, self.weight = columns, embed, weight
        self.width, self.dtype, self.reach = columns.width + width, columns.dtype, columns.reach

    def transform(self, rows: Rows) -> np.ndarray:
        return self.joined(self.columns.transform(rows), self.embed(rows))

    def joined(self, points: np.ndarray, more: np.ndarray) -> np.ndarray:
        return np.hstack([points, (self.weight * more).astype(self.dtype)])


def _with_embedding(
    columns: ColumnSpace, points: np.ndarray, rows: Rows, embed: RowEmbedding
) -> tuple[Space, np.ndarray]:
    more = embed(rows)
    variances = [part.var(axis=0, dtype=np.float64).sum() for part in (points, more)]
    weight = EMBEDDING_WEIGHT * math.sqrt(variances[0] / variances[1]) if all(variances) else 1.0
    space = EmbeddedSpace(columns, embed, weight, more.shape[1])
    return space, space.joined(points, more)


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
    def of(cls, columns: Iterable[np.ndarray]) -> Moments:
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
        moments = Moments.of(number_column(rows, j) for j in numbers)
        return cls(len(rows), moments, [word_counts(column(rows, j)) for j in categories])

    def merge(self, other: TableStatistics) -> TableStatistics:
        counts = [merged(a, b) for a, b in zip(self.counts, other.counts, strict=True)]
        return TableStatistics(self.rows + other.rows, self.moments.merge(other.moments), counts)


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
