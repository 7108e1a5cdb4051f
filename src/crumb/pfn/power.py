"""Yeo and Johnson's power transform of many columns at once, as scikit-learn fits it.

scikit-learn asks scipy for the most likely exponent of one column after the other. scipy searches
by Brent's method (``scipy.optimize.fminbound``), between bounds that keep the variance from
overflowing. Here all columns take scipy's steps side by side, and each stops where it would stop
alone. So a likelihood that is flat, has two maxima, or rises up to a bound gives scipy's exponent
too, and no column depends on the others. scikit-learn before 1.7 and scipy before 1.12 search
without bounds: there a column with one far outlier has a larger exponent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MOST_STEPS = 500  # scipy's, as are those below
TOLERANCE = 1.48e-8  # of an exponent near zero
RELATIVE_TOLERANCE = math.sqrt(2.2e-16)  # of a large one
GOLDEN = (3 - math.sqrt(5)) / 2
ROOM = 20  # times the largest cell can still be transformed
# Half of the range of a float64: a variance takes squares.
FLOAT = torch.finfo(torch.float64)
SMALLEST_LOG = (math.log(FLOAT.tiny) - math.log(FLOAT.eps)) / 2
LARGEST_LOG = (math.log(FLOAT.max) + math.log(FLOAT.eps)) / 2
NEARLY = 1e-12  # this near to 0 and 2 the transform is a logarithm, to all digits that count


def transformed(X: Tensor, exponent: Tensor) -> Tensor:
    """X with each cell bent; the exponents have one row, or one cell of each column."""
    return _bent(X.abs().log1p(), torch.where(X < 0, -1.0, 1.0).to(X), exponent)


def likeliest(X: Tensor, counted: Tensor) -> Tensor:
    """The most likely exponents (…, 1) of columns (…, n); only cells that count (…, n) do.

    Columns should be z-scores. Far from zero, the likelihood of a column is rounding errors.
    """
    columns = Likelihood.of(X, counted)
    return _least(columns.unlikelihood, *columns.bounds())


def _bent(size: Tensor, sign: Tensor, exponent: Tensor) -> Tensor:
    """Sizes are log1p of the absolute values; a cell without a sign becomes 0."""
    logarithm = ((exponent - 1).abs() - 1).abs() < NEARLY
    bend = (torch.where(logarithm, exponent + NEARLY, exponent) - 1) * sign + 1  # λ, below 0 2 − λ
    return (bend * size).expm1_().div_(bend).mul_(sign)


class Likelihood(NamedTuple):
    """What the likelihood needs to know of columns."""

    size: Tensor  # (…, n): log1p of the absolute values
    sign: Tensor  # (…, n): 1 or −1; 0 where a cell does not count
    rows: Tensor  # (…, 1): how many cells count
    total: Tensor  # (…, 1): of the sizes with their signs

    @classmethod
    def of(cls, X: Tensor, counted: Tensor) -> Likelihood:
        size = X.abs().log1p().masked_fill_(~counted, 0)
        sign = torch.where(X < 0, -1.0, 1.0).to(X).masked_fill_(~counted, 0)
        rows = counted.sum(-1, keepdim=True).to(X)
        return cls(size, sign, rows, (size * sign).sum(-1, keepdim=True))

    def bounds(self) -> tuple[Tensor, Tensor]:
        """Between which scipy searches, (…, 1) each."""
        most = (ROOM * self.size.amax(-1, keepdim=True).expm1()).log1p()
        low, high = SMALLEST_LOG / most, LARGEST_LOG / most
        below = (self.sign < 0).any(-1, keepdim=True)
        above = (self.sign > 0).any(-1, keepdim=True)
        return (
            torch.where(below, torch.where(above, torch.maximum(2 - high, low), 2 - high), low),
            torch.where(below, torch.where(above, torch.minimum(2 - low, high), 2 - low), high),
        )

    def unlikelihood(self, exponent: Tensor) -> Tensor:
        """The negative log-likelihood (…, 1) of exponents (…, 1)."""
        Y = _bent(self.size, self.sign, exponent)
        Y.sub_(Y.sum(-1, keepdim=True) / self.rows).mul_(self.sign)
        variance = Y.square_().sum(-1, keepdim=True) / self.rows
        found = self.rows / 2 * variance.log() - (exponent - 1) * self.total
        return torch.where(found.isinf() | (variance < FLOAT.tiny), torch.inf, found)


class Search(NamedTuple):
    """Where Brent's search for the least value of each function stands; all of one shape."""

    low: Tensor
    high: Tensor
    best: Tensor
    second: Tensor
    third: Tensor
    f_best: Tensor
    f_second: Tensor
    f_third: Tensor
    step: Tensor  # the last one
    before: Tensor  # the one before it, or how far a golden section could have gone

    @property
    def middle(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def tolerance(self) -> Tensor:
        return RELATIVE_TOLERANCE * self.best.abs() + TOLERANCE / 3

    @property
    def goes_on(self) -> Tensor:
        width = self.high - self.low
        return (self.best - self.middle).abs() > 2 * self.tolerance - width / 2

    def stepped(self) -> Search:
        """With the next step: to the least of a parabola, or by a golden section."""
        middle, tolerance = self.middle, self.tolerance
        room = torch.where(self.best >= middle, self.low, self.high) - self.best
        step, fits = self.parabola()
        x = self.best + step
        at_an_end = (x - self.low < 2 * tolerance) | (self.high - x < 2 * tolerance)
        step = torch.where(at_an_end, tolerance.copysign(middle - self.best), step)
        return self._replace(
            step=torch.where(fits, step, GOLDEN * room), before=torch.where(fits, self.step, room)
        )

    def parabola(self) -> tuple[Tensor, Tensor]:
        """The step to the least of the parabola through three points, and whether it will do."""
        r = (self.best - self.second) * (self.f_best - self.f_third)
        q = (self.best - self.third) * (self.f_best - self.f_second)
        p = (self.best - self.third) * q - (self.best - self.second) * r
        q = 2 * (q - r)
        p, q = torch.where(q > 0, -p, p), q.abs()
        shrinks = (self.before.abs() > self.tolerance) & (p.abs() < (q * self.before / 2).abs())
        inside = (p > q * (self.low - self.best)) & (p < q * (self.high - self.best))
        return (p + 0.0) / q, shrinks & inside  # −0 is a step to the right

    def asked(self) -> Tensor:
        """The next place."""
        return self.best + torch.maximum(self.step.abs(), self.tolerance).copysign(self.step)

    def told(self, x: Tensor, f: Tensor) -> Search:
        """With the value at the next place."""
        better, right = f <= self.f_best, x >= self.best
        as_second = ~better & ((f <= self.f_second) | (self.second == self.best))
        free = (self.third == self.best) | (self.third == self.second)
        as_third = ~better & ~as_second & ((f <= self.f_third) | free)

        def ranked(new: Tensor, *old: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            best, second, third = old
            return (
                torch.where(better, new, best),
                torch.where(better, best, torch.where(as_second, new, second)),
                torch.where(better | as_second, second, torch.where(as_third, new, third)),
            )

        return Search(
            torch.where(better == right, torch.minimum(x, self.best), self.low),
            torch.where(better == right, self.high, torch.maximum(x, self.best)),
            *ranked(x, self.best, self.second, self.third),
            *ranked(f, self.f_best, self.f_second, self.f_third),
            self.step,
            self.before,
        )


def _least(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Where a function is least: scipy's ``fminbound`` for many functions at once."""
    x = low + GOLDEN * (high - low)
    f, nothing = function(x), torch.zeros_like(x)
    search = Search(low, high, x, x, x, f, f, f, nothing, nothing)
    for _ in range(MOST_STEPS - 1):
        goes_on = search.goes_on
        if not goes_on.any():
            break
        new = search.stepped()
        x = new.asked()
        new = new.told(x, function(x))
        both = zip(new, search, strict=True)
        search = Search(*(torch.where(goes_on, later, now) for later, now in both))
    return search.best
