"""An additive model: a curve for each number, a value for each word, and their sum.

Boosted trees cut noise into steps; a sum of curves does not. Where many columns say a little each
it is as good as trees, and the two together are better than either (docs/guide.md). A curve is
straight between its knots, so a model is one value for each slot: a knot, a word, or a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, Ridge

from crumb.machine import quiet
from crumb.mixing import loss

KNOTS = 8  # at quantiles of the rows, and as many at quantiles of the distinct values
WEIGHTS = (0.03, 0.3, 3.0)  # of a row, against the penalty on values
USUAL_WEIGHT = 0.3  # where nothing says which
MOST_ROWS, MOST_WORK = 50_000, 3_000_000  # rows that teach; the same times columns and classes
HUGE = 1e150  # differences of larger numbers may overflow
NEVER = -30.0  # log-odds of a class without rows
Fit = Callable[[float], tuple[np.ndarray, np.ndarray]]  # values and level, by weight


@dataclass(eq=False)
class Slots:
    """The places that values stand at, column by column; each column ends with one for gaps."""

    knots: list[np.ndarray] = field(default_factory=list)  # rising; words stand at 0, 1, 2, …
    numbers: list[int] = field(default_factory=list)  # the columns that hold them

    @classmethod
    def of(cls, table: np.ndarray, n_words: dict[int, int]) -> Slots:
        """``n_words``: of the columns that hold the places of words."""
        knots = [
            np.arange(max(1.0, n_words[j])) if j in n_words else _knots(column)
            for j, column in enumerate(table.T)
        ]
        return cls(knots, [j for j in range(table.shape[1]) if j not in n_words])

    @property
    def starts(self) -> np.ndarray:
        return np.cumsum([0, *(len(knots) + 1 for knots in self.knots)])

    def design(self, table: np.ndarray) -> sparse.csr_matrix:
        """(n, slots): how much each slot counts. A number counts at the two knots around it."""
        table, places = np.clip(table, -HUGE, HUGE), np.empty(table.shape)
        for j, knots in enumerate(self.knots):
            places[:, j] = np.interp(table[:, j], knots, np.arange(len(knots)))
            places[np.isnan(table[:, j]), j] = len(knots)
        low = np.floor(places)
        share, slots = places - low, self.starts[:-1] + low
        slots, weights = np.hstack([slots, slots + (share > 0)]), np.hstack([1 - share, share])
        rows = np.arange(len(table) + 1) * slots.shape[1]
        parts = weights.astype(np.float32).ravel(), slots.astype(np.int32).ravel(), rows
        return sparse.csr_matrix(parts, (len(table), self.starts[-1]))

    def lines(self) -> sparse.csr_matrix:
        """(slots, numbers): a straight line over the knots of each number, from −1 to 1."""
        counts = [len(self.knots[j]) for j in self.numbers]
        slots = [np.arange(self.starts[j], self.starts[j + 1] - 1) for j in self.numbers]
        heights = [np.linspace(-1, 1, count) for count in counts]
        shape = self.starts[-1], len(counts)
        if not counts:
            return sparse.csr_matrix(shape)
        places = np.concatenate(slots), np.repeat(np.arange(len(counts)), counts)
        return sparse.csr_matrix((np.concatenate(heights).astype(np.float32), places), shape)


def _knots(column: np.ndarray) -> np.ndarray:
    """At quantiles of the rows, and of the distinct values: most of a count's rows are zeros."""
    column = np.clip(column[~np.isnan(column)], -HUGE, HUGE)
    if not len(column):
        return np.zeros(1)
    marks = np.linspace(0, 1, KNOTS)
    of_rows, of_values = (
        np.quantile(values, marks, method="nearest") for values in (column, np.unique(column))
    )
    return np.union1d(of_rows, of_values)


def fit_values(
    slots: Slots, table: np.ndarray, y: np.ndarray, n_classes: int | None, weights: Iterable[float]
) -> Iterator[np.ndarray]:
    """Models (slots + 1, outputs), one for each of ``weights``; the last row is added to all.

    A penalty on values alone would bend steep curves; so each curve also has a line.
    """
    rows = _teachers(y, table.shape[1], n_classes)
    design, lines, y = slots.design(table[rows]), slots.lines(), y[rows]
    design = sparse.hstack([design, design @ lines], format="csr")
    fit = _numbers(design, y) if n_classes is None else _classes(design, y, n_classes)
    for weight in weights:
        with quiet():  # about the last digits
            found, level = fit(weight)
        values, slopes = np.split(found, [lines.shape[0]])
        yield np.vstack([values + lines @ slopes, level])


def choose_values(
    slots: Slots,
    taught: tuple[np.ndarray, np.ndarray],
    judged: tuple[np.ndarray, np.ndarray],
    n_classes: int | None,
) -> tuple[np.ndarray, float]:
    """The model, of those of ``WEIGHTS``, that explains other rows best; and its weight."""
    (learned, answered), (table, y) = taught, judged
    models = list(fit_values(slots, learned, answered, n_classes, WEIGHTS))
    losses = [loss(y, summed(slots, model, table, n_classes)).mean() for model in models]
    best = int(np.argmin(losses))
    return models[best], WEIGHTS[best]


def summed(slots: Slots, model: np.ndarray, table: np.ndarray, n_classes: int | None) -> np.ndarray:
    """What a model says of rows: probabilities (n, C), or numbers (n,)."""
    found = slots.design(table) @ model[:-1] + model[-1]
    return found[:, 0] if n_classes is None else softmax(found, axis=1)


def _numbers(design: sparse.csr_matrix, y: np.ndarray) -> Fit:
    def fit(weight: float) -> tuple[np.ndarray, np.ndarray]:
        model = Ridge(1 / weight, solver="sparse_cg", max_iter=200, tol=1e-4).fit(design, y)
        return model.coef_[:, None], np.array([model.intercept_])

    return fit


def _classes(design: sparse.csr_matrix, y: np.ndarray, n_classes: int) -> Fit:
    there = np.unique(y)
    columns = there[-1:] if len(there) == 2 else there
    model = LogisticRegression(tol=1e-3, warm_start=True)  # from one weight to the next

    def fit(weight: float) -> tuple[np.ndarray, np.ndarray]:
        values, level = np.zeros((design.shape[1], n_classes)), np.full(n_classes, NEVER)
        level[there] = 0.0
        if len(there) > 1:
            model.set_params(C=weight).fit(design, y)
            values[:, columns], level[columns] = model.coef_.T, model.intercept_
        return values, level

    return fit


def _teachers(y: np.ndarray, columns: int, n_classes: int | None) -> np.ndarray:
    """All rows, or every so many of them and one of each class."""
    most = int(min(MOST_ROWS, MOST_WORK / (columns * max(1, (n_classes or 2) - 1))))
    if len(y) <= most:
        return np.arange(len(y))
    some = np.linspace(0, len(y) - 1, most).astype(np.int64)
    return np.union1d(some, np.unique(y, return_index=True)[1]) if n_classes else some
