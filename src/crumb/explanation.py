"""Explanations: what each column did to an answer, and which training rows mattered.

A Shapley value asks what the model says where some columns of a query are known and the others are
not. Cells that are not known are those of background rows, which are rows of the query's own
context. The plan is frozen: a query keeps its context whatever is masked, and all masked rows of a
cluster go through its kept context together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from crumb.errors import InvalidInput, extra
from crumb.infer import answer
from crumb.options import positive
from crumb.pfn.base import Output
from crumb.plan import Plan, route_plan
from crumb.rng import generator
from crumb.table.encoder import Rows, column, first_columns, take
from crumb.table.row import stack

if TYPE_CHECKING:
    import shap

    from crumb.estimator import CrumbClassifier, CrumbRegressor

FEW_COLUMNS = 5  # up to here all coalitions are few
MOST_COLUMNS = 15  # and beyond here they are too many to ask for
MASKED_ROWS = 1 << 15  # that are made at a time
NEAR = 20  # rows that are left out: a pass each


def explain(
    model: CrumbClassifier | CrumbRegressor,
    X: Any,
    *,
    plan: Plan | None = None,
    background: int = 10,
    method: str = "auto",
) -> shap.Explanation:
    """Shapley values: how much each column moved each answer away from the base value.

    The values of a query sum to its answer less its base value, which is the mean answer to its
    background rows. Answers are those of the query's own context: what ``predict`` says with
    ``contexts_per_query=1``. Needs shap (extra ``explain``), whose plots take what this returns.

    Parameters
    ----------
    model : fitted CrumbClassifier or CrumbRegressor
        Probabilities are explained, or means.
    X : table of T rows
        The queries.
    plan : Plan or None, default=None
        A plan to answer with. None: contexts are chosen for ``X``.
    background : int, default=10
        Rows of a cluster's context whose cells stand for those that are masked: its first rows,
        which herding chose for that; random rows with other strategies than ``"mmd"``. More rows
        take longer, and give smaller errors: ``error_std`` holds the standard errors, as if the
        rows were random.
    method : {"auto", "permutation", "exact"}, default="auto"
        ``"permutation"``: for every background row the columns of a query are filled in one after
        the other, in a random order and in its reverse; unbiased. ``"exact"``: all coalitions of
        columns, at most 15 of these. ``"auto"``: exact for up to 5 columns.

    Returns
    -------
    explanation : shap.Explanation
        ``values`` are (T, columns, classes), or (T, columns) for regression.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier, explain
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = CrumbClassifier(context_size=60, n_clusters=2, contexts_per_query=1)
    >>> found = explain(clf.fit(X[::2], y[::2]), X[1:20:6], background=5)
    >>> found.values.shape
    (4, 4, 3)
    >>> whole = found.values.sum(axis=1) + found.base_values
    >>> bool(abs(whole - clf.predict_proba(X[1:20:6])).max() < 1e-4)
    True
    """
    package = shap_package()
    rows, points = _encoded(model, X)
    asked = _Asked(model, rows, _planned(model, points, plan), positive("background", background))
    columns = model.pool_.columns or [f"x{j}" for j in range(rows.shape[1])]
    values, base, error = asked.shapley(_resolve(method, rows.shape[1]))
    classes = getattr(model, "classes_", None)
    return package.Explanation(
        values,
        base_values=base,
        data=rows.to_numpy(dtype=object) if isinstance(rows, pd.DataFrame) else rows,
        feature_names=list(map(str, columns)),
        output_names=None if classes is None else list(map(str, classes)),
        error_std=error,
    )


def influential_rows(
    model: CrumbClassifier | CrumbRegressor,
    query: Any,
    *,
    plan: Plan | None = None,
    candidates: int | None = NEAR,
) -> pd.DataFrame:
    """Which training rows mattered for one query, with the rows' own values.

    Influence is what the answer of the query's own context loses when a row is left out of it and
    the model runs again: in the probability of the predicted class, or in the predicted number.

    Parameters
    ----------
    model : fitted CrumbClassifier or CrumbRegressor
    query : table of one row
    plan : Plan or None, default=None
        A plan to answer with. None: a context is chosen for this query alone.
    candidates : int or None, default=20
        The nearest rows of the context, each of which is left out once: a pass a row. None: all.

    Returns
    -------
    rows : DataFrame
        The most influential rows first, under their numbers in the pool: ``distance`` from the
        query in the selection space, ``influence``, ``target``, and the columns of the table as the
        model sees them. ``nsmallest(5, "distance")`` has the nearest. A name that the table has too
        gets an underscore: ``target_``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier, influential_rows
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> clf = CrumbClassifier(context_size=60).fit(X, y)
    >>> rows = influential_rows(clf, X[70:71], candidates=4)
    >>> list(rows.columns[:4])
    ['distance', 'influence', 'target', 'sepal length (cm)']
    """
    rows, points = _encoded(model, query)
    if len(rows) != 1:
        raise InvalidInput(f"influential_rows takes one query, got {len(rows)} rows.")
    planned, pool = _planned(model, points, plan), model.pool_
    context = planned.contexts[planned.labels[0]]
    held = pool.hold([context])
    own = first_columns(take(held.rows, held.places(context)), rows.shape[1])
    distance = np.linalg.norm(pool.points_of(context) - points, axis=1)
    most = len(context) if candidates is None else positive("candidates", candidates)
    near = np.argsort(distance, kind="stable")[: most if len(context) > 1 else 0]
    contexts = [context, *(np.delete(context, i) for i in near)]
    copies = take(rows, np.zeros(len(contexts), dtype=np.int64))
    found = _answers(model, contexts, np.arange(len(contexts)), copies)
    found = found[:, found[0].argmax()] if found.ndim == 2 else found
    labels, classes = held.labels(context[near]), getattr(model, "classes_", None)
    table = pd.DataFrame(take(own, near))
    influence, targets = found[0] - found[1:], labels if classes is None else classes[labels]
    about = {"distance": distance[near], "influence": influence, "target": targets}
    for place, (name, values) in enumerate(about.items()):
        table.insert(place, f"{name}_" if name in table else name, values)
    order = np.argsort(-np.abs(influence), kind="stable")
    return table.set_axis(pd.Index(context[near], name="row")).iloc[order]


def shap_package() -> Any:
    """shap, imported when it is needed."""
    with extra("explain", "An explanation"):
        import shap
    return shap


def _encoded(model: Any, X: Any) -> tuple[Rows, np.ndarray]:
    if not hasattr(model, "plan_points"):
        raise InvalidInput(f"Only CrumbClassifier and CrumbRegressor are explained, not {model!r}.")
    check_is_fitted(model)
    return model.encode(X)


def _planned(model: Any, points: np.ndarray, plan: Plan | None) -> Plan:
    if plan is None:
        return model.plan_points(points, evidence=False)
    plan.check_pool(model.pool_.fingerprint)
    return route_plan(plan, model.pool_, points, model.options_, evidence=False)


def _answers(
    model: Any, contexts: list[np.ndarray], labels: np.ndarray, rows: Rows, again: bool = False
) -> np.ndarray:
    output = Output("mean" if model.task == "regression" else "proba")
    return answer(model.backend_, model.pool_, contexts, labels, rows, output, again=again)


class Walks:
    """From a background row to the query in a random order of columns, and back in the same one.

    ``masks`` (queries, background rows, coalitions, columns) says which columns are known; the
    first coalition is empty. The way back visits the coalitions of the reverse order: each column
    is counted twice, once early and once late.
    """

    def __init__(self, shape: tuple[int, int], columns: int, rng: np.random.Generator):
        order = np.broadcast_to(np.arange(columns), (*shape, columns))
        self.turn = rng.permuted(order, axis=-1)  # of each column
        there = self.turn[..., None, :] < np.arange(columns)[:, None]
        self.masks = np.concatenate([there, ~there], axis=-2)

    def shares(self, answers: np.ndarray) -> np.ndarray:
        steps = np.roll(answers, -1, axis=-2) - answers
        there, back = np.split(steps, 2, axis=-2)
        return np.take_along_axis((there - back) / 2, self.turn[..., None], axis=-2)


class Every:
    """All coalitions, with Shapley's weights."""

    def __init__(self, shape: tuple[int, int], columns: int, rng: np.random.Generator):
        known = (np.arange(1 << columns)[:, None] >> np.arange(columns)) & 1 == 1
        self.masks = np.broadcast_to(known, (*shape, *known.shape))
        others = known.sum(axis=1, keepdims=True) - known  # without the column itself
        weights = np.array([1 / (columns * comb(columns - 1, size)) for size in range(columns)])
        self.weights = np.where(known, 1, -1) * weights[np.minimum(others, columns - 1)]

    def shares(self, answers: np.ndarray) -> np.ndarray:
        return self.weights.T @ answers


def _resolve(method: str, columns: int) -> type[Walks] | type[Every]:
    if method not in ("auto", "permutation", "exact"):
        known = "'auto', 'permutation' or 'exact'"
        raise InvalidInput(f"method must be {known}, got {method!r}.")
    if method == "exact" and columns > MOST_COLUMNS:
        raise InvalidInput(
            f"method='exact' asks for 2^{columns} coalitions of columns; it is for tables of at "
            f"most {MOST_COLUMNS} columns: leave method='auto'."
        )
    exact = columns <= FEW_COLUMNS if method == "auto" else method == "exact"
    return Every if exact else Walks


@dataclass
class _Asked:
    """Queries with their contexts, and background rows of these."""

    model: Any
    rows: Rows
    plan: Plan
    background: int

    def shapley(self, kind: type[Walks] | type[Every]) -> tuple[np.ndarray, ...]:
        """Values (T, columns, …), base values (T, …) and standard errors of the values."""
        rng = generator(self.model.options_.seed, "explanation")
        table, behind = self._background(rng)
        each = kind((1, behind.shape[1]), self.rows.shape[1], rng).masks[0].size
        most = max(1, MASKED_ROWS * self.rows.shape[1] // each)
        order = np.argsort(self.plan.labels, kind="stable")  # queries of a context come together
        found = []
        for start in range(0, len(order), most):
            some = order[start : start + most]
            coalitions = kind((len(some), behind.shape[1]), self.rows.shape[1], rng)
            answers = self._ask(table, behind, some, coalitions.masks)
            shares, first = coalitions.shares(answers), answers[:, :, 0]
            found.append((shares.mean(axis=1), first.mean(axis=1), _error(shares)))
        came = np.argsort(order)
        joined = (np.concatenate(parts)[came] for parts in zip(*found, strict=True))
        return tuple(part[..., 0] if self.model.task == "regression" else part for part in joined)

    def _background(self, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
        """The queries and, after them, the background rows; the places of those of each cluster."""
        contexts = self.plan.contexts
        count = min(self.background, *self.plan.sizes.tolist())
        # The first rows that herding chose stand for a context better than random ones.
        herded = self.plan.settings.get("strategy") == "mmd"
        order = (one if herded else rng.permutation(np.sort(one)) for one in contexts)
        drawn = np.stack([one[:count] for one in order])
        held = self.model.pool_.hold(contexts)
        behind = take(held.rows, held.places(drawn.ravel()))
        table = stack([self.rows, first_columns(behind, self.rows.shape[1])])
        return table, len(self.rows) + np.arange(drawn.size).reshape(drawn.shape)

    def _ask(
        self, table: Rows, behind: np.ndarray, some: np.ndarray, masks: np.ndarray
    ) -> np.ndarray:
        """The answers to masked queries (queries, background rows, coalitions, outputs)."""
        labels = self.plan.labels[some]
        cells = np.where(masks, some[:, None, None, None], behind[labels][:, :, None, None])
        rows = _mixed(table, cells.reshape(-1, masks.shape[-1]))
        labels = np.repeat(labels, len(rows) // len(some))
        found = _answers(self.model, self.plan.contexts, labels, rows, again=True)
        return found.reshape(*masks.shape[:-1], -1).astype(np.float64)


def _error(shares: np.ndarray) -> np.ndarray:
    """The standard error of a mean over background rows; NaN where there is only one."""
    rows = shares.shape[1]
    spread = np.square(shares - shares.mean(axis=1, keepdims=True)).sum(axis=1)
    return np.sqrt(spread / (rows * (rows - 1))) if rows > 1 else np.full_like(spread, np.nan)


def _mixed(table: Rows, cells: np.ndarray) -> Rows:
    """Rows whose cells come from different rows of a table."""
    if isinstance(table, np.ndarray):
        return table[cells, np.arange(cells.shape[1])]
    taken = {
        name: column(table, j).take(cells[:, j]).reset_index(drop=True)
        for j, name in enumerate(table.columns)
    }
    return pd.DataFrame(taken)
