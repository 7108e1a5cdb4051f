"""What a guide can be: boosted trees (LightGBM) with curves, or any scikit-learn estimator.

Both learn from rows as the encoder leaves them. They answer with class probabilities (kinds, n, C),
or with numbers (kinds, n): there are three kinds of trees, and an additive model (additive.py).
LightGBM is imported when it is used, and is saved in its own text format.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone

from crumb.additive import USUAL_WEIGHT, Slots, choose_values, fit_values, summed
from crumb.errors import BackendUnavailable, InvalidInput
from crumb.machine import task_threads
from crumb.mixing import blend, losses, mean_share, mixture
from crumb.pfn.base import TargetScale
from crumb.pfn.sklearn import is_estimator
from crumb.table.encoder import Rows, column, number_column, texts
from crumb.table.means import WIDE, mean_targets

ROUNDS, PATIENCE = 2_000, 50  # of boosting at most, and without progress
MOST_TREES = 5_000  # a round has a tree for each of more than two classes
USUAL = 100  # rounds where nothing says how many
PIECE = 256  # rows that an estimator answers at a time: see pfn/sklearn.py
MORE_ROWS = 1.1  # the model of the whole pool takes as many more rounds than those of the folds
KINDS: tuple[dict[str, Any], ...] = (  # of trees
    {"num_leaves": 15},  # better for noise
    {"num_leaves": 127},  # better for fine steps
    {"num_leaves": 31, "extra_trees": True, "feature_fraction": 0.6},  # random cuts: vary least
)
CURVES = len(KINDS)  # the kind after those of trees
HALVED = 0.5  # the share of curves: a mean of six models is better than one, but for curves hardly
LITTLE = 0.03  # a kind with a smaller share is left out
SETTINGS = {
    "learning_rate": 0.1,
    "lambda_l2": 1.0,  # without it, leaves of rare classes have no bound
    "verbosity": -1,
    "deterministic": True,
    "force_col_wise": True,
}
Taught = tuple[np.ndarray, np.ndarray]  # a table and its targets


class Learner(Protocol):
    n_classes: int | None  # None: regression
    kinds: int  # of answers

    def table(self, rows: Rows) -> Rows:
        """Rows as the model takes them."""

    def fit(self, table: Rows, y: np.ndarray, stop: np.ndarray | None) -> Any:
        """A model. ``stop``: places of rows that end the training. None: the model of all rows."""

    def answers(self, model: Any, table: Rows) -> np.ndarray:
        """What a model says of rows, by kind."""

    def weigh(self, y: np.ndarray, answers: np.ndarray) -> None:
        """Learn how much each kind counts, from answers to rows that it has not seen."""

    def joined(self, answers: np.ndarray) -> np.ndarray:
        """Answers of all kinds as one."""


def resolve_learner(
    guide: Any, n_classes: int | None, categories: list[int], seed: int, jobs: int
) -> Learner:
    if isinstance(guide, str):
        return Trees(n_classes, categories, seed, jobs)
    return Estimator(n_classes, guide)


def check_learner(guide: Any, task: str) -> None:
    """Refuse, before a table is read, what cannot be a guide."""
    if isinstance(guide, str) and guide in ("trees", "auto"):
        lightgbm()
        return
    if not is_estimator(guide, task):
        wanted = "classifier" if task == "classification" else "regressor"
        raise InvalidInput(
            f"guide must be None, 'trees', 'auto' or a scikit-learn {wanted}, got {guide!r}."
        )
    if task == "classification" and not hasattr(guide, "predict_proba"):
        raise InvalidInput(f"A guide needs class probabilities: {guide!r} has no predict_proba.")


def lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        said = "guide='trees' and guide='auto' need LightGBM: pip install 'crumb-pfn[guide]'."
        raise BackendUnavailable(said) from error
    return lightgbm


@dataclass(eq=False)
class Trees:
    """LightGBM with early stopping, three kinds of trees; and curves."""

    n_classes: int | None
    categories: list[int]  # the columns that hold them
    seed: int = 0
    jobs: int = 1
    words: dict[int, list[str]] = field(default_factory=dict)  # of the first table, sorted
    slots: Slots = field(default_factory=Slots)  # of curves, by the first table
    shares: tuple[float, ...] = (0.25,) * (CURVES + 1)  # of the kinds; 0: it is left out
    rounds: list[dict[int, int]] = field(default_factory=list)  # by kind: when trainings stopped
    weights: list[float] = field(default_factory=list)  # that were best for curves
    kinds = CURVES + 1

    def table(self, rows: Rows) -> np.ndarray:
        """Numbers; a category is the place of its word, and NaN where the pool has no such word."""
        table = np.empty((len(rows), rows.shape[1]))
        for j in range(rows.shape[1]):
            if j not in self.categories:
                table[:, j] = number_column(rows, j)
                continue
            found = texts(column(rows, j), None)
            if j not in self.words:
                self.words[j] = sorted({word for word in found if word is not None})
            places = pd.Index(self.words[j], dtype=object).get_indexer(
                pd.Index(found, dtype=object)
            )
            table[:, j] = np.where(places >= 0, places, np.nan)
        if not self.slots.knots:
            self.slots = Slots.of(table, {j: len(self.words[j]) for j in self.categories})
        return table

    def fit(self, table: np.ndarray, y: np.ndarray, stop: np.ndarray | None) -> Any:
        """Boosters by kind, the class codes that they know or the scale of their targets, mean
        targets, and curves.

        Nothing is fitted to rows of one class. LightGBM holds targets in float32, so they are
        scaled.
        """
        known = np.unique(y)
        if self.n_classes and len(known) < 2:
            return {}, known, np.empty((0, 0, 0)), np.empty((0, 0))
        if self.n_classes:
            target = np.searchsorted(known, y)
        else:
            scale = TargetScale.of(y)
            known, target = np.array(astuple(scale)), scale.scaled(y)
        teach = slice(None) if stop is None else np.setdiff1d(np.arange(len(y)), stop)
        taught = table[teach], target[teach]
        judged = None if stop is None or not len(stop) else (table[stop], target[stop])
        means, by_means = self._means(*taught)
        boosters, curves = self._train(by_means, taught, judged, means, len(known))
        return boosters, known, means, curves

    def _train(
        self,
        table: np.ndarray,
        taught: Taught,
        judged: Taught | None,
        means: np.ndarray,
        known: int,
    ) -> tuple[dict[int, Any], np.ndarray]:
        """Boosters by kind, and curves, side by side: one thread each is quicker than all for one.

        Trees learn from ``table``: ``taught`` with mean targets.
        """
        gbm, kinds = lightgbm(), [kind for kind, share in enumerate(self.shares) if share]
        settings = {**SETTINGS, **self._objective(known)}
        settings["num_threads"] = max(1, self.jobs // len(kinds))
        narrow = [j for j in self.categories if not (len(means) and j in self._wide())]
        about = {"categorical_feature": narrow, "params": settings}
        data = gbm.Dataset(table, taught[1], **about).construct()
        held = []
        if judged is not None:
            rows = self._by_means(judged[0], means)
            held = [gbm.Dataset(rows, judged[1], reference=data, **about).construct()]

        def train(kind: int) -> Any:
            if kind == CURVES:
                return self._curves(taught, judged, known)
            rounds = self._most(known) if held else int(MORE_ROWS * self._usual(kind))
            more = [gbm.early_stopping(PATIENCE, verbose=False)] if held else []
            of_kind = {**settings, **KINDS[kind]}
            return gbm.train(of_kind, data, rounds, valid_sets=held, callbacks=more)

        with task_threads(self.jobs, len(kinds)) as each:
            found = dict(zip(kinds, each(train, kinds), strict=True))
        curves = found.pop(CURVES, np.empty((0, 0)))
        if held:
            self.rounds.append({kind: one.best_iteration for kind, one in found.items()})
        return found, curves

    def _most(self, known: int) -> int:
        """Rounds, where rows that are held out may end them earlier."""
        several = self.n_classes and known > 2
        return min(ROUNDS, max(1, MOST_TREES // known)) if several else ROUNDS

    def _trees(self) -> list[int]:
        """The kinds of trees that are not left out."""
        return [kind for kind in range(CURVES) if self.shares[kind]]

    def _curves(self, taught: Taught, judged: Taught | None, known: int) -> np.ndarray:
        n_classes = known if self.n_classes else None
        if judged is None:
            usual = float(np.median(self.weights)) if self.weights else USUAL_WEIGHT
            table, y = taught
            return next(fit_values(self.slots, table, y, n_classes, [usual]))
        model, weight = choose_values(self.slots, taught, judged, n_classes)
        self.weights.append(weight)
        return model

    def _wide(self) -> list[int]:
        return [j for j in self.categories if len(self.words[j]) > WIDE]

    def _means(self, table: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(wide columns, words + 1, …): the mean target of each word; and the table with means.

        There, a row gets the mean of other rows.
        """
        wide = self._wide()
        counts = [len(self.words[j]) for j in wide]
        about = target, self.n_classes, self.seed
        pairs = zip(wide, counts, strict=True)
        found = [mean_targets(table[:, j], words, *about) for j, words in pairs]
        known = [one for one in found if one is not None]
        if not known:  # or too few rows for folds
            return np.empty((0, 0, 0)), table
        means = np.zeros((len(wide), max(counts) + 1, known[0][0].shape[1]))
        for padded, words, (mean, _) in zip(means, counts, known, strict=True):
            padded[:words], padded[-1] = mean[:-1], mean[-1]
        of_others = np.stack([one for _, one in known], axis=1)
        return means, _replaced(table, wide, of_others)

    def _by_means(self, table: np.ndarray, means: np.ndarray) -> np.ndarray:
        if not len(means):
            return table
        wide = self._wide()
        places = np.nan_to_num(table[:, wide], nan=-1).astype(np.int64)  # the last is of no word
        return _replaced(table, wide, means[np.arange(len(wide)), places])

    def _usual(self, kind: int) -> float:
        found = [rounds[kind] for rounds in self.rounds]
        return float(np.mean(found)) if found else USUAL

    def _objective(self, known: int) -> dict[str, Any]:
        about = {"seed": self.seed % 2**31}
        if not self.n_classes:
            return {**about, "objective": "regression"}
        if known == 2:
            return {**about, "objective": "binary"}
        return {**about, "objective": "multiclass", "num_class": known}

    def answers(self, model: Any, table: np.ndarray) -> np.ndarray:
        boosters, known, means, curves = model
        found = np.zeros((self.kinds, len(table), *([self.n_classes] if self.n_classes else [])))
        if self.n_classes and len(known) < 2:  # rows of one class taught it
            found[:, :, known] = 1.0
            return found
        rows = self._by_means(table, means)
        for kind in self._trees():
            found[kind] = self._answers(boosters[kind].predict(rows), known)
        if self.shares[CURVES]:
            n_classes = len(known) if self.n_classes else None
            found[CURVES] = self._answers(summed(self.slots, curves, table, n_classes), known)
        return found

    def _answers(self, found: np.ndarray, known: np.ndarray) -> np.ndarray:
        if not self.n_classes:
            return TargetScale(*known).unscaled(found)
        if len(known) == 2 and found.ndim == 1:
            found = np.column_stack([1 - found, found])
        return scattered(found.reshape(len(found), -1), known, self.n_classes)

    def weigh(self, y: np.ndarray, answers: np.ndarray) -> None:
        """One kind after the other joins those before it. A kind that was left out stays out."""
        shares, joined = np.zeros(self.kinds), None
        for kind in np.flatnonzero(self.shares):
            share = 1.0 if joined is None else self._share(y, joined, answers[kind])
            if kind == CURVES:
                share *= HALVED
            shares *= 1 - share
            shares[kind] = share
            joined = answers[kind] if joined is None else mixture(joined, answers[kind], share)
        shares[shares < LITTLE] = 0.0
        self.shares = tuple((shares / shares.sum()).tolist())

    def _share(self, y: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
        found = losses(y, first, second)[None]
        return mean_share(found, len(y), self.n_classes is None)[1]

    def joined(self, answers: np.ndarray) -> np.ndarray:
        return blend(answers, self.shares)


@dataclass(eq=False)
class Estimator:
    """A scikit-learn estimator, cloned for every fit."""

    n_classes: int | None
    estimator: Any
    kinds = 1

    def table(self, rows: Rows) -> Rows:
        return rows

    def fit(self, table: Rows, y: np.ndarray, stop: np.ndarray | None) -> Any:
        return clone(self.estimator).fit(table, y)

    def answers(self, model: Any, table: Rows) -> np.ndarray:
        from crumb.pfn.contexts import pieces

        predict = model.predict_proba if self.n_classes else model.predict
        found = np.concatenate([predict(piece) for piece in pieces(table, PIECE, PIECE)])
        found = np.asarray(found[: len(table)], dtype=np.float64)
        if not np.isfinite(found).all():
            raise InvalidInput("The guide answers with values that are not finite.")
        if self.n_classes:
            known = np.asarray(model.classes_, dtype=np.int64)
            return scattered(found, known, self.n_classes)[None]
        return found.reshape(1, len(table))

    def weigh(self, y: np.ndarray, answers: np.ndarray) -> None:
        """There is one kind."""

    def joined(self, answers: np.ndarray) -> np.ndarray:
        return answers[0]


def scattered(proba: np.ndarray, known: np.ndarray, n_classes: int) -> np.ndarray:
    """Probabilities of the classes that a model knows, among all classes."""
    whole = np.zeros((len(proba), n_classes))
    whole[:, known] = proba
    return whole


def _replaced(table: np.ndarray, columns: list[int], values: np.ndarray) -> np.ndarray:
    """A table with values (n, columns, …) in some columns: the first there, others at the end."""
    table = table.copy()
    table[:, columns] = values[:, :, 0]
    return np.hstack([table, values[:, :, 1:].reshape(len(table), -1)])
