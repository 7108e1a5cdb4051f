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
    nothing: dict[str, float | None] = dict.fromkeys(SCORES)
    found = _classification(truth, answers) if task == "classification" else _regression(truth, answers)
    return {**nothing, **{name: None if value is None else float(f"{value:.8g}") for name, value in found.items()}}


def right(task: str, truth: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """How well each query was answered: 1 or 0, or minus its squared error."""
    return (answers.argmax(axis=1) == truth).astype(float) if task == "classification" else -((answers - truth) ** 2)


def _classification(truth: np.ndarray, proba: np.ndarray) -> dict[str, float | None]:
    bounded = np.clip(proba, FLOOR, None)
    bounded /= bounded.sum(axis=1, keepdims=True)
    return {
        "accuracy": float(accuracy_score(truth, proba.argmax(axis=1))),
        "auc": _auc(truth, proba),
        "log_loss": float(log_loss(truth, bounded, labels=np.arange(proba.shape[1]))) if proba.shape[1] > 1 else 0.0,
    }


def _auc(truth: np.ndarray, proba: np.ndarray) -> float | None:
    """Each class against the rest, averaged over the classes that queries have; None where they have only one."""
    if proba.shape[1] == 2:
        return float(roc_auc_score(truth, proba[:, 1])) if len(np.unique(truth)) == 2 else None
    present = [c for c in np.unique(truth) if not (truth == c).all()]
    return float(np.mean([roc_auc_score(truth == c, proba[:, c]) for c in present])) if present else None


def _regression(truth: np.ndarray, answers: np.ndarray) -> dict[str, float | None]:
    return {
        "rmse": float(root_mean_squared_error(truth, answers)),
        "r2": float(r2_score(truth, answers)) if len(truth) > 1 else None,
    }
