"""The selection space: a mixed-type table → a float matrix in which distance means something.

Numeric columns are standardised with the pool's mean and population standard deviation; missing values take
the mean, that is 0. A categorical column becomes indicator columns of height 1, so that two rows in different
categories are √2 apart, as far as two independent draws of a standardised numeric column are on average
(in the square). Rare categories share one indicator when there are many.
With ``features="embedding"`` the network's own view of the rows stands beside that (``embedding.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from crumb.errors import InvalidInput
from crumb.quiet import quiet
from crumb.table.encoder import Rows, TableEncoder, texts

MAX_CATEGORIES = 32  # indicators a column
MAX_INDICATORS = (
    256  # indicators in all: the width of the space stays bounded however many columns there are
)
DOUBLE_CELLS = (
    100_000_000  # cells up to which the space is kept in float64 (800 MB), in float32 above
)
MISSING = "\0missing"
EMBEDDING = "embedding"
# How far rows lie apart by their embeddings, in terms of how far they do by their columns. Measured, with 1/2, 1 and 2
# beside it: docs/experiments/ideas.
EMBEDDING_WEIGHT = 4.0
Embed = Callable[[Rows], np.ndarray]


class SelectionSpace:
    """Fitted on the pool; ``features`` replaces the default by a transformer of the user's own, or adds the network's
    row embeddings to it."""

    def __init__(self, features: Any = None):
        check_features(features)
        self.features = features
        self.embedded = isinstance(features, str)
        self.own = features is not None and not self.embedded  # a transformer of the user's

    def fit_transform(
        self,
        rows: Rows,
        encoder: TableEncoder,
        y: np.ndarray | None = None,
        embed: Embed | None = None,
    ) -> np.ndarray:
        """``y`` is for transformers that learn from labels, ``embed`` gives the network's row embeddings."""
        self.transformer_ = clone(self.features) if self.own else default_transformer(encoder)
        self.embed_ = embed
        # An all-missing column has no mean; it becomes a column of zeros, which is what it tells.
        with quiet(category=RuntimeWarning):
            matrix = self.transformer_.fit_transform(rows, y)
        self.dtype_ = np.float64 if np.size(matrix) <= DOUBLE_CELLS else np.float32
        self.centre_ = 0.0
        matrix = self._checked(matrix, len(rows))
        # Only distances matter, and they are exact only near the origin: a space of the user's own may lie anywhere.
        self.centre_ = matrix.mean(axis=0) if self.own else 0.0
        if embed is None:
            return matrix - self.centre_ if self.own else matrix
        more = embed(rows)
        variances = [part.var(axis=0, dtype=np.float64).sum() for part in (matrix, more)]
        self.weight_ = (
            EMBEDDING_WEIGHT * math.sqrt(variances[0] / variances[1]) if all(variances) else 1.0
        )
        return self._joined(matrix, more)

    def transform(self, rows: Rows) -> np.ndarray:
        with quiet("Found unknown categories", UserWarning):
            matrix = self._checked(self.transformer_.transform(rows), len(rows))
        return matrix if self.embed_ is None else self._joined(matrix, self.embed_(rows))

    def _joined(self, matrix: np.ndarray, more: np.ndarray) -> np.ndarray:
        return np.hstack([matrix, (self.weight_ * more).astype(self.dtype_)])

    def _checked(self, matrix: Any, n_rows: int) -> np.ndarray:
        matrix = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        matrix = np.ascontiguousarray(matrix, dtype=self.dtype_)
        if matrix.ndim != 2 or len(matrix) != n_rows or not np.isfinite(matrix).all():
            raise InvalidInput(
                "The selection space must be a finite matrix with one row for each row of the table; "
                "check the transformer given as features=."
            )
        return matrix - self.centre_ if self.own else matrix


def check_features(features: Any) -> None:
    if isinstance(features, str) and features != EMBEDDING:
        raise InvalidInput(
            f"features must be None, {EMBEDDING!r} or a transformer, got {features!r}."
        )


def default_transformer(encoder: TableEncoder) -> ColumnTransformer:
    """Standardised numbers and indicators of categories, by position of the column."""
    categories = encoder.categorical_indices
    numbers = [index for index in range(len(encoder.columns_)) if index not in set(categories)]
    each = max(2, min(MAX_CATEGORIES, MAX_INDICATORS // max(1, len(categories))))
    number = make_pipeline(
        StandardScaler(),
        SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True),
    )
    category = make_pipeline(
        FunctionTransformer(as_text),
        OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=each, sparse_output=False
        ),
    )
    return ColumnTransformer([("number", number, numbers), ("category", category, categories)])


def as_text(columns: Rows) -> np.ndarray:
    """Categories by their text, so that mixed types sort and missing values are a category like any other."""
    frame = pd.DataFrame(columns)
    return np.column_stack([texts(frame.iloc[:, j], MISSING) for j in range(frame.shape[1])])
