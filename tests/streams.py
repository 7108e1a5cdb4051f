"""What the tests of crumb.online share: tables, cheap models, a clock that stands still."""

from __future__ import annotations

import threading
import time

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier
from crumb.online.worker import Clock

SETTINGS = {"n_clusters": 3, "context_size": 40, "cache_size": 0, "contexts_per_query": 1}


def table(rows: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    return X, (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)


def cheap(model=None, **more) -> CrumbClassifier:
    X, y = table()
    return CrumbClassifier(model=model or LogisticRegression(), **{**SETTINGS, **more}).fit(X, y)


def queries(rows: int = 60, seed: int = 1, shift: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)) + shift


class ManualClock(Clock):
    """Stands still until it is moved; waiting does not end by itself."""

    def __init__(self) -> None:
        self.time = 100.0
        self._waits_on: threading.Condition | None = None

    def now(self) -> float:
        return self.time

    def date(self) -> float:
        return self.time

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        self._waits_on = condition
        condition.wait(10)  # a test that forgets to wake the worker ends

    def move(self, seconds: float) -> None:
        while self._waits_on is None:
            time.sleep(0.001)
        with self._waits_on:
            self.time += seconds
            self._waits_on.notify_all()


class Gate(ClassifierMixin, BaseEstimator):
    """A classifier that answers only while its gate is open, and fails when told to."""

    def __init__(self, name: str = "gate"):
        self.name = name

    opened = threading.Event()
    entered = threading.Event()
    broken = False

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        Gate.entered.set()
        assert Gate.opened.wait(20)
        if Gate.broken:
            raise MemoryError("no room for this pass")
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def reset_gate(opened: bool) -> None:
    Gate.broken = False
    Gate.entered.clear()
    (Gate.opened.set if opened else Gate.opened.clear)()
