"""Scores of a run, by scikit-learn. What does not apply to a task is None."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

SCORES = ("accuracy", "auc", "log_loss", "rmse", "r2")
FLOOR = 1e-6  # a probability of 0 for the true class would make the log-loss infinite


def scores(task: str, truth: np.ndarray, answers: np.ndarray) -> dict[str, float | None]:
    """``answers``: probabilities (T, C) over all classes of the table, or numbers (T,)."""
    measure = _classification if task == "classification" else _regression
    found = measure(truth, answers)
    rounded = {name: None if one is None else float(f"{one:.8g}") for name, one in found.items()}
    return {**dict.fromkeys(SCORES), **rounded}


def score_of_each(task: str, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """How well each query was answered: 1 or 0, or minus its squared error."""
    if task == "classification":
        return (answers.argmax(axis=1) == truth).astype(float)
    return -((answers - truth) ** 2)


def _classification(truth: np.ndarray, proba: np.ndarray) -> dict[str, float | None]:
    bounded = np.clip(proba, FLOOR, None)
    bounded /= bounded.sum(axis=1, keepdims=True)
    classes = np.arange(proba.shape[1])
    return {
        "accuracy": float(accuracy_score(truth, proba.argmax(axis=1))),
        "auc": _auc(truth, proba),
        "log_loss": float(log_loss(truth, bounded, labels=classes)) if len(classes) > 1 else 0.0,
    }


def _auc(truth: np.ndarray, proba: np.ndarray) -> float | None:
    """Each class against the rest, averaged over the classes of the queries; None for one class."""
    if proba.shape[1] == 2:
        return float(roc_auc_score(truth, proba[:, 1])) if len(np.unique(truth)) == 2 else None
    present = [c for c in np.unique(truth) if not (truth == c).all()]
    if not present:
        return None
    return float(np.mean([roc_auc_score(truth == c, proba[:, c]) for c in present]))


def _regression(truth: np.ndarray, answers: np.ndarray) -> dict[str, float | None]:
    return {
        "rmse": float(root_mean_squared_error(truth, answers)),
        "r2": float(r2_score(truth, answers)) if len(truth) > 1 else None,
    }
