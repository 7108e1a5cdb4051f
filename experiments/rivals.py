"""Rivals that are no choice of contexts: boosting over contexts, and corrections of answers.

- BoostPFN (Wang et al., AISTATS 2025, arXiv 2503.01256): every round draws a context by weights,
  and the rows that the sum of all rounds answers badly weigh more in the next one.
- PFN-Boost (Jayawardhana et al., 2025, arXiv 2502.02672): boosted trees that start at the scores of
  a PFN.
- Prior correction: answers of a context in which classes have other shares than they should. With
  the shares of the answers themselves it is DistPFN (Lee et al., ICML 2026, arXiv 2605.04363).

All work on class codes 0 … C−1 and probabilities (rows, C), in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from crumb import CrumbClassifier
from crumb.trees import lightgbm

# A context, its class codes, and rows: their probabilities.
Network = Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]
LEAST = 1e-6  # probabilities below it have the score of this one
MOST_STEP = 10.0  # a round may weigh as much
SCALES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the PFN's scores, that boosting may start at
HELD_OUT = 5  # every fifth row: they choose the scale and end the training
TREES = {"objective": "multiclass", "learning_rate": 0.1, "verbosity": -1, "deterministic": True}
ROUNDS, PATIENCE = 500, 30


def network(n_classes: int, **settings: Any) -> Network:
    """One context, all of whose rows the model sees."""

    def answer(X: pd.DataFrame, y: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
        model = CrumbClassifier(strategy="full", **settings).fit(X, y)
        proba = np.zeros((len(rows), n_classes))
        proba[:, model.classes_] = model.predict_proba(rows)
        return proba

    return answer


def scores(proba: np.ndarray) -> np.ndarray:
    """Log-probabilities."""
    return np.log(np.clip(proba, LEAST, None))


# BoostPFN


def boost_contexts(
    answer: Network,
    X: pd.DataFrame,
    y: np.ndarray,
    queries: pd.DataFrame,
    n: int = 500,
    rounds: int = 10,
    seed: int = 0,
) -> np.ndarray:
    """BoostPFN with the cross-entropy and its exponential weights: probabilities of the queries."""
    rng, rows = np.random.default_rng(seed), pd.concat([X, queries], ignore_index=True)
    weights, total = np.full(len(y), 1 / len(y)), np.zeros((len(rows), int(y.max()) + 1))
    for _ in range(rounds):
        context = draw(weights, y, n, rng)
        found = scores(answer(X.iloc[context], y[context], rows))
        total += best_step(total[: len(y)], found[: len(y)], y) * found
        weights = reweighted(weights, total[: len(y)], y)
    return softmax(total[len(y) :], axis=1)


def draw(weights: np.ndarray, y: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n rows by their weights, and one of each class that these lack."""
    rows = rng.choice(len(y), min(n, len(y)), replace=False, p=weights)
    for code in np.setdiff1d(y, y[rows]):
        some = np.flatnonzero(y == code)
        rows = np.append(rows, rng.choice(some, p=weights[some] / weights[some].sum()))
    return rows


def deviance(total: np.ndarray, y: np.ndarray) -> float:
    """The cross-entropy of sums of scores."""
    return float(-log_softmax(total, axis=1)[np.arange(len(y)), y].sum())


def best_step(total: np.ndarray, found: np.ndarray, y: np.ndarray) -> float:
    """How much of a round the sum takes: the least cross-entropy on the pool."""
    best = minimize_scalar(
        lambda step: deviance(total + step * found, y), bounds=(0, MOST_STEP), method="bounded"
    )
    return float(best.x)


def reweighted(weights: np.ndarray, total: np.ndarray, y: np.ndarray) -> np.ndarray:
    """w·exp(r), where r is the probability that the sum gives to the wrong classes."""
    wrong = 1 - softmax(total, axis=1)[np.arange(len(y)), y]
    weights = weights * np.exp(wrong)
    return weights / weights.sum()


# PFN-Boost


class OutputBoosting:
    """Trees on top of a PFN: the probabilities are softmax(s · scores of the PFN + trees)."""

    def fit(self, table: np.ndarray, y: np.ndarray, start: np.ndarray) -> OutputBoosting:
        """``start`` (rows, C): scores of the PFN for rows whose labels it did not see."""
        gbm, held = lightgbm(), np.arange(len(y)) % HELD_OUT == 0
        settings = {**TREES, "num_class": start.shape[1]}
        least = np.inf
        for scale in SCALES:
            data, stop = (
                gbm.Dataset(table[some], y[some], init_score=scale * start[some], reference=None)
                for some in (~held, held)
            )
            stop.set_reference(data)
            ends = gbm.early_stopping(PATIENCE, verbose=False)
            made = gbm.train(settings, data, ROUNDS, valid_sets=[stop], callbacks=[ends])
            found = made.best_score["valid_0"]["multi_logloss"]
            if found < least:
                least, self.scale, self.trees = found, scale, made
        return self

    def predict_proba(self, table: np.ndarray, start: np.ndarray) -> np.ndarray:
        return softmax(self.scale * start + self.trees.predict(table, raw_score=True), axis=1)


# Prior correction


def corrected(proba: np.ndarray, context: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """p(y|x) · wanted(y) / context(y), with sum 1: as if classes had the wanted shares."""
    ratio = np.divide(wanted, context, out=np.zeros_like(wanted), where=context > 0)
    changed = proba * ratio
    total = changed.sum(axis=1, keepdims=True)
    return np.where(total > 0, changed / np.where(total > 0, total, 1), proba)


def correct_contexts(
    proba: np.ndarray,
    labels: np.ndarray,
    contexts: Sequence[np.ndarray],
    y: np.ndarray,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """Each context's answers, corrected from its class shares to ``shares`` (those of the pool).

    None: to the mean of the answers of that context, as DistPFN does.
    """
    found = proba.copy()
    for k in np.unique(labels):
        asked = labels == k
        own = np.bincount(y[contexts[k]], minlength=proba.shape[1]) / len(contexts[k])
        wanted = proba[asked].mean(axis=0) if shares is None else shares
        found[asked] = corrected(proba[asked], own, wanted)
    return found
