"""What tabicl does to a table before its network sees it, for many contexts at once.

The package fits its transformers on one context at a time, on the CPU: longer than a GPU needs for the pass. Here the
rows are brought to numbers as the package brings them (``encode``), the shuffles of its ensemble come from its own
generator (``members``), and its standardising and clipping is done for a whole stack of contexts on the device
(``standardised``). The other normalisations (``"power"``, ``"quantile"`` …) are the package's own (``normalised``).
``tests/test_pfn_preprocess.py`` holds each against the package.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from tabicl._sklearn.preprocessing import (
    EnsembleGenerator,
    PreprocessingPipeline,
    TransformToNumerical,
)
from torch import Tensor

from crumb.table.encoder import Rows

LARGEST_SCORE = 100.0  # z-scores are clipped here
SMALLEST = 1e-6  # added to, or the least of, a standard deviation


class Rowset(NamedTuple):
    """The numbers of a context and of its queries, in the same columns."""

    context: np.ndarray
    queries: np.ndarray


class Member(NamedTuple):
    """One member of the ensemble: how it normalises numbers, the order of its columns, the names of its classes."""

    norm: str
    columns: np.ndarray
    classes: np.ndarray | None  # None: regression


@dataclass(frozen=True)
class Recipe:
    """The arguments of the package's estimators that shape an ensemble."""

    classification: bool
    n_estimators: int
    norm_methods: tuple[str, ...]
    feat_shuffle_method: str
    class_shuffle_method: str
    outlier_threshold: float
    random_state: int
    embedded_once: int = 0  # members that share one embedding of the columns; 0: each has its own


@lru_cache(maxsize=256)
def members(recipe: Recipe, n_features: int, n_classes: int) -> tuple[Member, ...]:
    """The package's ensemble for a table of this many columns and classes. It does not look at the rows."""
    generator = EnsembleGenerator(
        classification=recipe.classification,
        n_estimators=recipe.n_estimators,
        feat_shuffle_method=recipe.feat_shuffle_method,
        class_shuffle_method=recipe.class_shuffle_method,
        random_state=recipe.random_state,
    )
    generator.norm_methods_, generator.rng_ = (
        list(recipe.norm_methods),
        random.Random(recipe.random_state),
    )
    generator.n_features_in_, generator.n_classes_ = n_features, n_classes
    configurations, _, _ = generator._generate_ensemble()
    return tuple(
        Member(norm, order, None if classes is None else np.array(classes))
        for norm, shuffles in configurations.items()
        for order, (_, classes) in zip(
            _orders([columns for columns, _ in shuffles], recipe), shuffles, strict=True
        )
    )


def _orders(shuffles: list[list[int]], recipe: Recipe) -> list[np.ndarray]:
    """The orders of columns in which the network sees the members of one norm method.

    Where columns do not see each other (v1), the package embeds those of the first member of a batch, and gives the
    others theirs by moving the embeddings: to where the shuffle has them from, not to where it brings them.
    """
    orders = [np.array(shuffle) for shuffle in shuffles]
    if not recipe.embedded_once:
        return orders
    batches = np.array_split(np.stack(orders), math.ceil(len(orders) / recipe.embedded_once))
    return [batch[0][np.argsort(order)[batch[0]]] for batch in batches for order in batch]


def encode(context: Rows, queries: Rows) -> Rowset | None:
    """Numbers without holes, in the columns that vary in the context; None where the package would refuse them."""
    rows = (
        _from_frame(context, queries)
        if isinstance(context, pd.DataFrame)
        else _from_array(context, queries)
    )
    if rows.context.shape[1] == 0 or not (
        np.isfinite(rows.context).all() and np.isfinite(rows.queries).all()
    ):
        return None
    varies = (rows.context != rows.context[0]).any(axis=0)
    if varies.all() or len(rows.context) == 1:  # one row says nothing about what varies
        return rows
    varies[0] |= not varies.any()  # a network needs a column
    return Rowset(rows.context[:, varies], rows.queries[:, varies])


def _from_frame(context: pd.DataFrame, queries: Rows) -> Rowset:
    encoder = TransformToNumerical().fit(context)
    return Rowset(
        *(np.asarray(encoder.transform(rows), dtype=np.float64) for rows in (context, queries))
    )


def _from_array(context: np.ndarray, queries: np.ndarray) -> Rowset:
    """Holes filled with the mean of the column in the context, or 0 where there is none.

    In the precision and the order of scikit-learn's imputer: whether a filled column is still constant, and so left
    out, hangs on the last bit of its mean.
    """
    context, queries = (
        rows if rows.dtype.kind == "f" else rows.astype(np.float64) for rows in (context, queries)
    )
    missing, asked = np.isnan(context), np.isnan(queries)
    if missing.any() or asked.any():
        filled = context.copy(order="K")
        filled[missing] = 0
        count = len(context) - missing.sum(axis=0)
        mean = (filled.sum(axis=0) / np.maximum(count, 1)).astype(context.dtype)
        context, queries = np.where(missing, mean, context), np.where(asked, mean, queries)
    return Rowset(context.astype(np.float64, copy=False), queries.astype(np.float64, copy=False))


def normalised(rows: Rowset, norm: str, recipe: Recipe) -> Rowset:
    """One context through the package's own transformers."""
    pipeline = PreprocessingPipeline(norm, recipe.outlier_threshold, recipe.random_state).fit(
        rows.context
    )
    return Rowset(pipeline.X_transformed_, pipeline.transform(rows.queries))


def standardised(X: Tensor, train: int, lengths: Tensor | None, threshold: float) -> Tensor:
    """The norm method ``"none"``: z-scores, and what is still far out drawn in. float64 (B, n, d) → float32.

    The first ``train`` rows are the context, of which ``lengths`` (B,) count if it is given. Statistics are taken in
    float64: a float32 keeps nothing of a column that varies by one around ten million.
    """
    counted = torch.arange(train, device=X.device).unsqueeze(1) < _sizes(
        X, train, lengths
    )  # (B, train, 1)
    mean, deviation = _moments(X[:, :train], counted, 0)
    X = ((X - mean) / (deviation + SMALLEST)).clamp(-LARGEST_SCORE, LARGEST_SCORE)
    inner = (_sizes(X, train, lengths) > 1).to(
        X.dtype
    )  # one degree of freedom is lost, if there is one to lose
    lower, upper = _bounds(X[:, :train], counted, inner, threshold)
    counted = counted & ~(X[:, :train] < lower) & ~(X[:, :train] > upper)
    lower, upper = _bounds(X[:, :train], counted, inner, threshold)
    X = torch.maximum(lower - X.abs().log1p(), X)
    return torch.minimum(upper + X.abs().log1p(), X).float()


def _sizes(X: Tensor, train: int, lengths: Tensor | None) -> Tensor:
    return (
        torch.full((len(X), 1, 1), train, device=X.device)
        if lengths is None
        else lengths.view(-1, 1, 1)
    )


def _bounds(X: Tensor, counted: Tensor, lost: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    mean, deviation = _moments(X, counted, lost)
    width = threshold * deviation.clamp(min=SMALLEST)
    return mean - width, mean + width


def _moments(X: Tensor, counted: Tensor, lost: Tensor | int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the cells that count, (B, 1, d)."""
    count = counted.sum(dim=1, keepdim=True)
    mean = torch.where(counted, X, 0).sum(dim=1, keepdim=True) / count
    squares = torch.where(counted, X - mean, 0).square().sum(dim=1, keepdim=True)
    return mean, (squares / (count - lost)).sqrt()


class Scale(NamedTuple):
    """What scikit-learn's ``StandardScaler`` makes of the targets of a context, which the package takes in float32."""

    mean: np.float32
    deviation: np.float32

    @classmethod
    def of(cls, y: np.ndarray) -> Scale:
        y = y.astype(np.float32)
        return cls(np.float32(y.mean(dtype=np.float64)), np.float32(y.std(dtype=np.float64) or 1.0))

    def scaled(self, y: np.ndarray) -> np.ndarray:
        return (y.astype(np.float32) - self.mean) / self.deviation

    def unscaled(self, y: np.ndarray) -> np.ndarray:
        return y * self.deviation + self.mean
