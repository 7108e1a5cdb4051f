"""What tabicl does to a table before its network sees it, for many contexts at once.

The package fits its transformers on one context at a time, on the CPU. That takes longer than the
pass itself takes on a GPU. Here ``encode`` brings the rows to numbers as the package does,
``members`` takes the shuffles of its ensemble from its own generator, and ``standardised`` does its
standardising and clipping for a whole stack of contexts on the device. The other normalisations
("power", "quantile" …) are the package's own. ``tests/pfn/test_preprocess.py``
compares each with the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from crumb.pfn.tabicl_package import Ensemble, PreprocessingPipeline, TabICL, TransformToNumerical
from crumb.table.encoder import Rows

LARGEST_SCORE = 100.0  # z-scores are clipped here
SMALLEST = 1e-6  # added to, or the least of, a standard deviation


class Rowset(NamedTuple):
    """The numbers of a context and of its queries, in the same columns."""

    context: np.ndarray
    queries: np.ndarray

    def normalised(self, norm: str, ensemble: Mapping[str, Any]) -> Rowset:
        """By the package's own transformers; "none" is left to ``standardised``."""
        if norm == "none":
            return self
        seed = ensemble["random_state"]
        pipeline = PreprocessingPipeline(norm, ensemble["outlier_threshold"], seed)
        pipeline.fit(self.context)
        return Rowset(pipeline.X_transformed_, pipeline.transform(self.queries))


class Member(NamedTuple):
    """One of the ensemble: how it normalises, and the order of its columns and classes."""

    norm: str
    columns: np.ndarray
    classes: np.ndarray  # none: regression


def ensemble_of(estimator: Any, network: TabICL) -> dict[str, Any]:
    """What the package's estimators tell their ensemble."""
    shared = ("n_estimators", "feat_shuffle_method", "outlier_threshold", "random_state")
    arguments = {name: getattr(estimator, name) for name in shared}
    if network.max_classes > 0:
        arguments["class_shuffle_method"] = estimator.class_shuffle_method
    methods = estimator.norm_methods or ("none", "power")
    methods = (methods,) if isinstance(methods, str) else tuple(methods)
    return {"classification": network.max_classes > 0, "norm_methods": methods, **arguments}


@lru_cache(maxsize=256)
def members(n_features: int, n_classes: int, **ensemble: Any) -> tuple[Member, ...]:
    """The package's ensemble for a table of this size. It does not depend on the rows."""
    shuffles = Ensemble(**ensemble).shuffles(n_features, n_classes)
    return tuple(
        Member(norm, np.array(columns), np.array(classes or (), dtype=np.int64))
        for norm, some in shuffles.items()
        for columns, classes in some
    )


def encode(context: Rows, queries: Rows) -> Rowset | None:
    """Numbers without holes, in the columns that vary in the context.

    None where the package would refuse the rows.
    """
    read = _from_frame if isinstance(context, pd.DataFrame) else _from_array
    rows = read(context, queries)
    if rows.context.shape[1] == 0 or not all(np.isfinite(part).all() for part in rows):
        return None
    varies = (rows.context != rows.context[0]).any(axis=0)
    if varies.all() or len(rows.context) == 1:  # one row says nothing about what varies
        return rows
    varies[0] |= not varies.any()  # a network needs a column
    return Rowset(rows.context[:, varies], rows.queries[:, varies])


def _from_frame(context: pd.DataFrame, queries: pd.DataFrame) -> Rowset:
    encoder = TransformToNumerical().fit(context)
    both = (encoder.transform(rows) for rows in (context, queries))
    return Rowset(*(np.asarray(rows, dtype=np.float64) for rows in both))


def _from_array(context: np.ndarray, queries: np.ndarray) -> Rowset:
    """Holes filled with the mean of the column in the context, or 0 where there is none.

    In the precision and the order of scikit-learn's imputer: the last bit of a mean decides whether
    a filled column is still constant, and so left out.
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


def standardised(X: Tensor, train: int, lengths: Tensor, threshold: float) -> Tensor:
    """The norm method "none": z-scores, with outliers drawn in. float64 (B, n, d) → float32.

    The first ``train`` rows are the context, of which each table has ``lengths`` (B,). Statistics
    are in float64: a float32 keeps nothing of a column that varies by one around ten million.
    """
    sizes = lengths.view(-1, 1, 1)
    counted = torch.arange(train, device=X.device).unsqueeze(1) < sizes  # (B, train, 1)
    mean, deviation = _moments(X[:, :train], counted, 0)
    X = ((X - mean) / (deviation + SMALLEST)).clamp(-LARGEST_SCORE, LARGEST_SCORE)
    lost = (sizes > 1).to(X.dtype)  # degrees of freedom; one row has none to lose
    lower, upper = _bounds(X[:, :train], counted, lost, threshold)
    counted = counted & ~(X[:, :train] < lower) & ~(X[:, :train] > upper)
    lower, upper = _bounds(X[:, :train], counted, lost, threshold)
    X = torch.maximum(lower - X.abs().log1p(), X)
    return torch.minimum(upper + X.abs().log1p(), X).float()


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
    """The targets of a context as scikit-learn's ``StandardScaler`` scales them, in float32."""

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
