"""The training table: encoded once, sliced often.

One interface, whether the table is in memory (``TablePool``) or in files (``scale/pool.py``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput
from crumb.pfn.contexts import Numbers, Slice
from crumb.rng import generator
from crumb.selection.base import Finder, TableFinder
from crumb.table import space as spaces
from crumb.table.encoder import Rows, TableEncoder, beside, fingerprint, split_target, take, to_rows
from crumb.table.means import MeanTargets, learn_means
from crumb.table.row import Piece, RowReader

if TYPE_CHECKING:
    from crumb.guide import Guide
    from crumb.options import Options
    from crumb.plan import Plan
    from crumb.table.embedding import RowEmbedding


class Labelled:
    """Labelled rows, by the numbers that they have in the pool."""

    rows: Rows  # as the PFN sees them
    y: np.ndarray  # class codes 0 … C−1, or numbers
    n_classes: int | None  # None: regression
    token: bytes  # tells contexts of this pool from those of other pools
    ids: np.ndarray  # the numbers of the rows, rising

    def places(self, ids: np.ndarray) -> np.ndarray:
        """Where rows of the pool are in ``rows``."""
        return np.searchsorted(self.ids, ids)

    @cached_property
    def numbers(self) -> Numbers:
        """The rows as numbers, which contexts are slices of."""
        return Numbers(self.rows)

    def slice(self, ids: np.ndarray) -> Slice:
        return Slice(self.numbers, self.places(ids))

    def labels(self, ids: np.ndarray) -> np.ndarray:
        return self.y[self.places(ids)]


@dataclass(frozen=True)
class HeldRows(Labelled):
    """Some rows of a pool that is stored elsewhere."""

    rows: Rows
    y: np.ndarray
    ids: np.ndarray
    n_classes: int | None
    token: bytes


@dataclass(frozen=True, eq=False)
class MoreColumns:
    """Columns for the network that are no part of a pool's own rows.

    A row that taught them gets what other rows say of it.
    """

    of: Callable[[Rows], np.ndarray]  # (n, columns) for rows that have taught nothing
    known: np.ndarray  # (m, columns) for those that have
    ids: np.ndarray  # (m,) the row numbers that they belong to, rising
    name: str = "mean"

    def held(self, held: Labelled) -> Labelled:
        """Rows of the pool with these columns."""
        rows = beside(held.rows, self.of_pool(held.rows, held.ids), self.name)
        return HeldRows(rows, held.y, held.ids, held.n_classes, held.token)

    def of_pool(self, rows: Rows, ids: np.ndarray) -> np.ndarray:
        """(n, columns) for rows of the pool, of which some may have taught."""
        known = np.isin(ids, self.ids)
        found = np.empty((len(ids), self.width))
        found[known] = self.known[np.searchsorted(self.ids, ids[known])]
        if not known.all():
            found[~known] = self.of(take(rows, np.flatnonzero(~known)))
        return found

    @property
    def width(self) -> int:
        return self.known.shape[1]

    def queries(self, rows: Rows) -> Rows:
        """Rows that are asked, with these columns."""
        return beside(rows, self.of(rows), self.name)


class Pool(ABC):
    """What estimators, plans, streams and the service know of the training table."""

    on_disk: ClassVar[bool]
    encoder: TableEncoder
    space: spaces.Space
    n_classes: int | None
    fingerprint: str
    facts: dict[str, Any]  # what a plan should say of the pool
    sample: Labelled  # rows that stand for the pool; all of them where it is in memory
    sample_points: np.ndarray  # of these
    some_points: np.ndarray  # those behind the bandwidth; all of them where it is in memory
    guide: Guide | None = None
    means: MoreColumns | None = None  # mean targets of columns of very many words

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows N."""

    @property
    @abstractmethod
    def guide_rows(self) -> Labelled:
        """The rows that a guide learns from; all of them where the pool is in memory."""

    @abstractmethod
    def hold(self, contexts: Sequence[np.ndarray]) -> Labelled:
        """The rows of some contexts as the network sees them, ready to be taken.

        With the columns of the guide, and then with mean targets.
        """

    @abstractmethod
    def points_of(self, context: np.ndarray) -> np.ndarray:
        """Rows of contexts that are held, as points."""

    @abstractmethod
    def finder(self, options: Options) -> Finder:
        """Answers the questions of strategies."""

    def plan(self, queries: np.ndarray, options: Options, evidence: bool = True) -> Plan:
        """Stages 1 and 2 for queries that are points of the selection space."""
        from crumb.plan import make_plan

        return make_plan(self, queries, options, evidence)

    def drawn(self, most: int, seed: int) -> tuple[Rows, np.ndarray]:
        """Random rows in the place of queries that have not come yet, and their points."""
        rows, points = self.sample.rows, self.sample_points
        if len(points) <= most:
            return rows, points
        chosen = generator(seed, "pool sample").choice(len(points), most, replace=False)
        return take(rows, np.sort(chosen)), points[np.sort(chosen)]

    @cached_property
    def known_centroids(self) -> dict[tuple[int, int], np.ndarray]:
        """Where finders remember how they have clustered the pool."""
        return {}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of the selection space."""
        return self.size, self.space.width

    def shown(self, held: Labelled) -> Labelled:
        """Some of its rows as the network sees them."""
        held = held if self.guide is None else self.guide.held(held)
        return held if self.means is None else self.means.held(held)

    @property
    def columns(self) -> list[Any] | None:
        """The names of the table's columns; None where they have none."""
        rows = self.sample.rows
        return list(rows.columns) if isinstance(rows, pd.DataFrame) else None

    def encode(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Rows with the pool's columns, as the PFN sees them and as points."""
        rows = self.encoder.transform(rows)
        return rows, self.space.transform(rows)

    def encode_row(self, row: Any, joining: bool = False) -> tuple[Piece, np.ndarray] | None:
        """The same for one plain row in microseconds; None where ``encode`` has to do it.

        ``joining``: as ``TableEncoder.transform`` has it.
        """
        return self._reader(row, joining) if self._reader is not None else None

    @cached_property
    def _reader(self) -> RowReader | None:
        if not isinstance(self.space, spaces.ColumnSpace):
            return None
        return RowReader(self.encoder, self.space, self.columns is not None)


@dataclass(eq=False)
class TablePool(Labelled, Pool):
    """A table in memory."""

    on_disk: ClassVar[bool] = False
    rows: Rows
    y: np.ndarray
    n_classes: int | None
    encoder: TableEncoder
    space: spaces.Space
    points: np.ndarray  # (N, width)
    fingerprint: str
    facts: dict[str, Any] = field(default_factory=dict)
    token: bytes = field(default_factory=partial(os.urandom, 16))

    def __post_init__(self) -> None:
        self.sample_points = self.some_points = self.points

    @classmethod
    def learn(
        cls,
        rows: Rows,
        encoder: TableEncoder,
        y: np.ndarray,
        n_classes: int | None,
        features: Any = None,
        embed: RowEmbedding | None = None,
        seed: int = 0,
        jobs: int = 1,
        with_means: bool = True,
    ) -> TablePool:
        """From encoded rows. ``embed``: the network's row embeddings, if ``features`` asks so.

        ``seed`` and ``jobs`` are for the forest that weighs the columns. ``with_means``: mean
        targets may count as well.
        """
        means = None
        if spaces.is_auto(features) or isinstance(features, spaces.Learned):
            labels = y, n_classes, with_means
            features, means = _weights(features, rows, encoder, *labels, seed, jobs)
        about = () if embed is None else embed.identity()
        if spaces.is_weights(features):
            wide = 0 if means is None else len(means[0].columns)
            features = spaces.checked_weights(features, rows.shape[1], wide).tolist()
        mark = fingerprint(rows, encoder.kinds_, features, *about)
        targets, known = means or (None, None)
        known = None if known is None else known.reshape(len(rows), -1)
        space, points = spaces.learn_space(features, rows, encoder, y, embed, targets, known)
        pool = cls(rows, y, n_classes, encoder, space, points, mark)
        if targets is not None and known is not None:
            pool.means = MoreColumns(targets.of, known, pool.ids)
        return pool

    @property
    def size(self) -> int:
        return len(self.points)

    @property
    def ids(self) -> np.ndarray:  # type: ignore[override]
        return np.arange(self.size)

    def places(self, ids: np.ndarray) -> np.ndarray:
        return ids

    @property
    def sample(self) -> TablePool:  # type: ignore[override]
        return self

    @property
    def guide_rows(self) -> TablePool:
        return self

    def hold(self, contexts: Sequence[np.ndarray]) -> Labelled:
        return self if self.guide is None and self.means is None else self._shown

    def points_of(self, context: np.ndarray) -> np.ndarray:
        return self.points[context]

    @cached_property
    def _shown(self) -> Labelled:
        return self.shown(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without its rows as the network sees them, which can be made again."""
        return {name: value for name, value in vars(self).items() if name != "_shown"}

    def finder(self, options: Options) -> Finder:
        codes = self.y if self.n_classes is not None else None
        return TableFinder(self.points, codes, options.seed, self.known_centroids)


def _weights(
    features: Any,
    rows: Rows,
    encoder: TableEncoder,
    y: np.ndarray,
    n_classes: int | None,
    with_means: bool,
    seed: int,
    jobs: int,
) -> tuple[Any, tuple[MeanTargets, np.ndarray] | None]:
    """What ``features="auto"`` learns of the columns: their weights, and mean targets.

    Of a small pool nothing is learned: there is nothing to select.
    """
    some = spaces.relevance_rows(len(rows), rows.shape[1], seed)
    if not len(some):
        return None, None
    if isinstance(features, spaces.Learned):  # as when they were learned
        with_means = len(features.weights) > rows.shape[1]
    means = learn_means(rows, encoder, y, n_classes) if with_means else None
    if isinstance(features, spaces.Learned):
        return features.weights, means
    known = None if means is None else means[1][some]
    labelled = take(rows, some), encoder, y[some], n_classes is not None
    return spaces.column_weights(*labelled, seed, jobs, known), means


def table_pool(X: Any, y: Any, features: Any, categorical_features: Any) -> TablePool:
    """A table as a pool, without a model; ``y``: the class of each row, their column, or None."""
    X, y = split_target(X, y) if isinstance(y, str) else (X, y)
    encoder = TableEncoder(categorical_features)
    rows = encoder.fit_transform(to_rows(X, learning=True))
    if y is None:
        features = None if spaces.is_auto(features) else features
        return TablePool.learn(rows, encoder, np.zeros(len(rows)), None, features)
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(codes) != len(rows):
        raise InvalidInput(f"y_pool has {len(codes)} values for {len(rows)} pool rows.")
    return TablePool.learn(rows, encoder, codes, len(classes), features)
