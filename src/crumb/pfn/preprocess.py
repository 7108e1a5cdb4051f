"""What tabicl does to a table before its network sees it, for many contexts at once.

The package fits its transformers on one context at a time, on the CPU. That takes longer than the
pass itself takes on a GPU. Here contexts are slices of a pool that is numbers already
(``contexts.py``). ``columns_of`` finds what varies in each context and what fills its holes,
``encoded`` ranks its categories and fills the holes. ``standardised`` and ``powered`` are the norm
methods "none" and "power". Each does a whole stack on the device. ``members`` takes the shuffles of
the ensemble from the package's own generator. The other normalisations ("quantile", "robust" …) are
the package's own, and so is "power" for a context with a column that hardly varies.
``tests/pfn/test_preprocess.py`` compares each with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crumb.pfn import power
from crumb.pfn.contexts import Numbers, Slice
from crumb.pfn.tabicl_package import Ensemble, PreprocessingPipeline, TabICL

LARGEST_SCORE = 100.0  # z-scores are clipped here
SMALLEST = 1e-6  # added to, or the least of, a standard deviation
# A column that varies less is left to the package, where the norm method is "power". Below the
# first, its exponent can be so large that queries overflow, and the package then clips all of them.
# Below the second, a share of its largest value, the last bits of the mean count.
LEAST_RANGE, LEAST_SHARE = 2e-6, 1e-8
POWER_CELLS = 1 << 22  # that are transformed together: the search has about eight such arrays
EPS = torch.finfo(torch.float64).eps


class Rowset(NamedTuple):
    """The numbers of a context and of its queries, in the same columns."""

    context: np.ndarray
    queries: np.ndarray

    def normalised(self, norm: str, ensemble: Mapping[str, Any]) -> Rowset:
        """By the package's own transformers."""
        seed = ensemble["random_state"]
        pipeline = PreprocessingPipeline(norm, ensemble["outlier_threshold"], seed)
        pipeline.fit(self.context)
        return Rowset(pipeline.X_transformed_, pipeline.transform(self.queries))


class Columns(NamedTuple):
    """What a context's columns are to the package."""

    fill: np.ndarray  # (all,): what stands for a number that is missing
    kept: np.ndarray  # those that vary; the package leaves out the others
    wide: bool  # all of them vary so much that ``powered`` equals the package

    def stacked(self, norm: str) -> bool:
        """Whether a norm method is done for whole stacks, not by the package."""
        return norm == "none" or (norm == "power" and self.wide)


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


def columns_of(contexts: Sequence[Slice], device: torch.device) -> list[Columns | None]:
    """What there is to know of each context before it is encoded; all tables have one shape.

    None where the package would refuse the rows.
    """
    sizes, categories = sizes_of(contexts, device)[:, None], contexts[0].table.shape[1]
    X = gathered(contexts, max(map(len, contexts)), device)
    there = (torch.arange(X.shape[1], device=device) < sizes).unsqueeze(-1) & ~X.isnan()
    count = there.sum(dim=1)  # (B, d)
    low = X.masked_fill(~there, torch.inf).amin(dim=1)
    high = X.masked_fill(~there, -torch.inf).amax(dim=1)
    varies, holes = high > low, count < sizes
    varies[:, :categories] |= (holes & (count > 0))[:, :categories]  # missing is a category
    wide = high - low > (LEAST_SHARE * torch.maximum(-low, high)).clamp(min=LEAST_RANGE)
    wide[:, :categories] = varies[:, :categories]
    fill = X.masked_fill(~there, 0).sum(dim=1) / count.clamp(min=1)
    fill[:, :categories] = 0
    found = (part.cpu().numpy() for part in (varies, wide, fill, low, holes))
    return list(map(partial(_columns, categories), contexts, *found))


def _columns(
    categories: int,
    context: Slice,
    varies: np.ndarray,
    wide: np.ndarray,
    fill: np.ndarray,
    low: np.ndarray,
    holes: np.ndarray,
) -> Columns | None:
    table = context.table
    exactly = (holes & ~varies)[categories:].any() or table.precision.itemsize < 8
    if exactly:  # the last bits of the means count
        fill[categories:] = table.means(context.ids)
        varies[categories:] |= (holes & np.isfinite(low) & (fill != low))[categories:]
    if not (table.finite and np.isfinite(fill).all() and len(fill)):
        return None
    if len(context) == 1:  # one row says nothing about what varies
        varies[:] = True
    varies[0] |= not varies.any()  # a network needs a column
    return Columns(fill, np.flatnonzero(varies), bool(wide[varies].all()))


def encoded(
    contexts: Sequence[Slice],
    queries: Sequence[Slice],
    columns: Sequence[Columns],
    train: int,
    asked: int,
    device: torch.device,
) -> Tensor:
    """Numbers without holes in the columns that vary, float64 (B, train + asked, d).

    Contexts are padded to ``train`` rows and queries to ``asked`` rows. All tables have one shape,
    and equally many columns that vary.
    """
    X = torch.cat([gathered(contexts, train, device), gathered(queries, asked, device)], dim=1)
    categories = contexts[0].table.shape[1]
    stacked = (np.stack(part) for part in zip(*(one[:2] for one in columns), strict=True))
    fill, kept = (torch.from_numpy(part).to(device) for part in stacked)
    numbers = X[..., categories:]
    numbers.copy_(numbers.where(~numbers.isnan(), fill[:, None, categories:]))
    if categories:
        X[..., :categories] = ranked(X[..., :categories], train, sizes_of(contexts, device))
    return X.gather(2, kept[:, None].expand(-1, X.shape[1], -1))


def sizes_of(contexts: Sequence[Slice], device: torch.device) -> Tensor:
    return torch.tensor([len(context) for context in contexts], device=device)


def rowset(context: Slice, queries: Slice, columns: Columns) -> Rowset:
    """One context, for the package's own transformers."""
    train, cpu = len(context), torch.device("cpu")
    X = encoded([context], [queries], [columns], train, len(queries), cpu)[0].numpy()
    return Rowset(X[:train], X[train:])


def gathered(slices: Sequence[Slice], most: int, device: torch.device) -> Tensor:
    """The numbers of slices (B, most, d), padded with rows that mean nothing."""
    ids = np.zeros((len(slices), most), dtype=np.int64)
    tables: dict[Numbers, list[int]] = {}
    for i, one in enumerate(slices):
        ids[i, : len(one)] = one.ids
        tables.setdefault(one.table, []).append(i)
    parts = [table.gather(ids[members], device) for table, members in tables.items()]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate(list(tables.values())))
    return torch.cat(parts)[torch.from_numpy(order).to(device)]


def ranked(codes: Tensor, train: int, sizes: Tensor) -> Tensor:
    """Categories (B, n, k) by their rank among those of the context, which has ``sizes`` (B,) rows.

    −1 where a cell is missing or holds what the context does not: scikit-learn's ordinal encoder.
    """
    codes = codes.mT.nan_to_num(nan=-1.0).contiguous()
    padding = torch.arange(train, device=codes.device) >= sizes[:, None, None]
    known = codes[..., :train]
    known = known.masked_fill(padding | (known < 0), torch.inf).sort(dim=-1).values
    rank = (known.diff(dim=-1, prepend=known[..., :1]) > 0).cumsum(dim=-1)
    place = torch.searchsorted(known, codes).clamp(max=train - 1)
    there = known.gather(-1, place) == codes
    return torch.where(there, rank.gather(-1, place), -1).mT.to(codes.dtype)


def standardised(X: Tensor, train: int, lengths: Tensor, threshold: float) -> Tensor:
    """The norm method "none": z-scores, with outliers drawn in. float64 (B, n, d) → float32.

    The first ``train`` rows are the context, of which each table has ``lengths`` (B,). Statistics
    are in float64: a float32 keeps nothing of a column that varies by one around ten million.
    """
    counted = _counted(train, lengths)
    return _drawn_in(_scored(X, counted), counted, threshold)


def powered(X: Tensor, train: int, lengths: Tensor, threshold: float) -> Tensor:
    """The norm method "power": z-scores, Yeo and Johnson's transform, z-scores, outliers drawn in.

    As ``standardised``, for columns that vary enough (``Columns.wide``).
    """
    tables = max(1, POWER_CELLS // X[0].numel())
    columns = max(1, POWER_CELLS // (tables * X.shape[1]))
    parts = [
        torch.cat([_powered(some, sizes, train, threshold) for some in few.split(columns, 2)], 2)
        for few, sizes in zip(X.split(tables), lengths.split(tables), strict=True)
    ]
    return torch.cat(parts)


NORMS: dict[str, Callable[[Tensor, int, Tensor, float], Tensor]] = {
    "none": standardised,
    "power": powered,
}


def _powered(X: Tensor, lengths: Tensor, train: int, threshold: float) -> Tensor:
    counted = _counted(train, lengths)
    X = _scored(X, counted)
    context = X[:, :train]
    exponent = power.likeliest(context.mT.contiguous(), counted.mT.expand_as(context.mT)).mT
    constant = _constant(*_moments(context, counted, 0), lengths)
    X = power.transformed(X, torch.where(constant, 1.0, exponent))
    mean, deviation = _moments(X[:, :train], counted, 0)
    deviation = torch.where(_constant(mean, deviation, lengths), 1.0, deviation)
    return _drawn_in((X - mean) / deviation, counted, threshold)


def _constant(mean: Tensor, deviation: Tensor, lengths: Tensor) -> Tensor:
    """Which columns (B, 1, d) scikit-learn takes for constants: as far as rounding goes."""
    sizes, variance = lengths.view(-1, 1, 1), deviation.square()
    return variance <= sizes * EPS * variance + (sizes * EPS * mean).square()


def _counted(train: int, lengths: Tensor) -> Tensor:
    """Which rows of the contexts are no padding, (B, train, 1)."""
    return torch.arange(train, device=lengths.device).unsqueeze(1) < lengths.view(-1, 1, 1)


def _scored(X: Tensor, counted: Tensor) -> Tensor:
    mean, deviation = _moments(X[:, : counted.shape[1]], counted, 0)
    return ((X - mean) / (deviation + SMALLEST)).clamp(-LARGEST_SCORE, LARGEST_SCORE)


def _drawn_in(X: Tensor, counted: Tensor, threshold: float) -> Tensor:
    """Outliers by their logarithm, in float32."""
    train = counted.shape[1]
    # Degrees of freedom; one row has none to lose.
    lost = (counted.sum(dim=1, keepdim=True) > 1).to(X.dtype)
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
