"""The training table: encoded once, sliced often.

One interface, whether the table is in memory (``TablePool``) or in files (``scale/pool.py``).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from crumb.selection.base import Finder, TableFinder
from crumb.table.encoder import Rows, TableEncoder, fingerprint
from crumb.table.pieces import Piece, take, take_column
from crumb.table.row import RowReader
from crumb.table.space import ColumnSpace, Embed, Space, learn_space

if TYPE_CHECKING:
    from crumb.options import Options
    from crumb.plan import Plan


class Labelled(Protocol):
    """Labelled rows, by the numbers that they have in the pool."""

    @property
    def n_classes(self) -> int | None:
        """None: regression."""

    @property
    def token(self) -> bytes:
        """Tells contexts of this pool from those of other pools."""

    @property
    def rows(self) -> Rows:
        """As the PFN sees them."""

    @property
    def ids(self) -> np.ndarray:
        """The numbers of the rows, rising."""

    def take(self, ids: np.ndarray) -> Rows: ...

    def labels(self, ids: np.ndarray) -> np.ndarray:
        """Class codes 0 … C−1, or numbers."""

    def column(self, ids: np.ndarray, j: int) -> pd.Series: ...


@dataclass(frozen=True)
class HeldRows:
    """Some rows of a pool that is stored elsewhere."""

    rows: Rows
    y: np.ndarray
    ids: np.ndarray
    n_classes: int | None
    token: bytes

    def take(self, ids: np.ndarray) -> Rows:
        return take(self.rows, np.searchsorted(self.ids, ids))

    def labels(self, ids: np.ndarray) -> np.ndarray:
        return self.y[np.searchsorted(self.ids, ids)]

    def column(self, ids: np.ndarray, j: int) -> pd.Series:
        return take_column(self.rows, np.searchsorted(self.ids, ids), j)


class Pool(ABC):
    """What estimators, plans, streams and the service know of the training table."""

    on_disk: ClassVar[bool]
    encoder: TableEncoder
    space: Space
    n_classes: int | None
    fingerprint: str
    facts: dict[str, Any]  # what a plan should say of the pool

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows N."""

    @property
    @abstractmethod
    def some_points(self) -> np.ndarray:
        """Points that stand for the pool; all of them where it is in memory."""

    @property
    @abstractmethod
    def sample(self) -> Labelled:
        """Labelled rows that stand for the pool; all of them where it is in memory."""

    @abstractmethod
    def hold(self, contexts: Sequence[np.ndarray]) -> Labelled:
        """The rows of some contexts, ready to be taken."""

    @abstractmethod
    def finder(self, options: Options) -> Finder:
        """Answers the questions of strategies."""

    def plan(self, queries: np.ndarray, options: Options, evidence: bool = True) -> Plan:
        """Stages 1 and 2 for queries that are points of the selection space."""
        from crumb.planning import make_plan

        return make_plan(self, queries, options, evidence)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns of the selection space."""
        return self.size, self.space.width

    @property
    def columns(self) -> list[Any] | None:
        """The names of the table's columns; None where they have none."""
        rows = self.sample.rows
        return list(rows.columns) if isinstance(rows, pd.DataFrame) else None

    def encode(self, rows: Rows) -> tuple[Rows, np.ndarray]:
        """Rows with the pool's columns, as the PFN sees them and as points."""
        rows = self.encoder.transform(rows)
        return rows, self.space.transform(rows)

    def encode_row(self, row: Any) -> tuple[Piece, np.ndarray] | None:
        """The same for one plain row in microseconds; None where ``encode`` has to do it."""
        return self._reader(row) if self._reader is not None else None

    @cached_property
    def _reader(self) -> RowReader | None:
        if not isinstance(self.space, ColumnSpace):
            return None
        return RowReader(self.encoder, self.space, self.columns is not None)


@dataclass(eq=False)
class TablePool(Pool):
    """A table in memory."""

    on_disk: ClassVar[bool] = False
    rows: Rows
    y: np.ndarray
    n_classes: int | None
    encoder: TableEncoder
    space: Space
    points: np.ndarray  # (N, width)
    fingerprint: str
    facts: dict[str, Any] = field(default_factory=dict)
    token: bytes = field(default_factory=partial(os.urandom, 16))

    @classmethod
    def learn(
        cls,
        rows: Rows,
        encoder: TableEncoder,
        y: np.ndarray,
        n_classes: int | None,
        features: Any = None,
        embed: Embed | None = None,
        about: tuple[Any, ...] = (),
    ) -> TablePool:
        """From encoded rows. ``about``: what else the selection space depends on."""
        space, points = learn_space(features, rows, encoder, y, embed)
        mark = fingerprint(rows, encoder.kinds_, features, *about)
        return cls(rows, y, n_classes, encoder, space, points, mark)

    @property
    def size(self) -> int:
        return len(self.points)

    @property
    def ids(self) -> np.ndarray:
        return np.arange(self.size)

    @property
    def some_points(self) -> np.ndarray:
        return self.points

    @property
    def sample(self) -> TablePool:
        return self

    def hold(self, contexts: Sequence[np.ndarray]) -> TablePool:
        return self

    def take(self, ids: np.ndarray) -> Rows:
        return take(self.rows, ids)

    def labels(self, ids: np.ndarray) -> np.ndarray:
        return self.y[ids]

    def column(self, ids: np.ndarray, j: int) -> pd.Series:
        return take_column(self.rows, ids, j)

    def finder(self, options: Options) -> Finder:
        codes = self.y if self.n_classes is not None else None
        return TableFinder(self.points, codes, options.seed)
