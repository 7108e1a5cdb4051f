"""Any scikit-learn classifier or regressor as a back-end: a copy of it is fitted on each context.

One copy is fitted again and again, because networks with scikit-learn's interface load their
weights when they are made, or when they are fitted for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

from crumb.machine import one_thread
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output, Tasks
from crumb.pfn.contexts import pieces

# Products of few rows round differently from products of many. With a frozen plan an answer may
# depend on its row alone, so estimators see pieces of this one size, however many rows are asked.
PIECE = 256
# Rows of a context up to which threads do not help an estimator: they wait for each other at every
# small step, on a busy machine for many times the time of the work.
SMALL = 10_000


def is_estimator(model: Any, task: str) -> bool:
    """Whether this is a scikit-learn estimator for a task.

    A class that names the mixin after BaseEstimator has no type in scikit-learn's eyes.
    """
    if isinstance(model, type) or not hasattr(model, "fit"):
        return False
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if task == "classification":
        return is_classifier(model) or isinstance(last, ClassifierMixin)
    return is_regressor(model) or isinstance(last, RegressorMixin)


class SklearnBackend(Backend):
    def __init__(self, estimator: Any, task: str, settings: BackendSettings):
        self.name = type(estimator).__name__
        self.estimator, self.settings = estimator, settings
        self.settled = _settled(estimator.get_params(), settings)
        self._copies = threading.local()  # threads must not fit the same one
        if task == "regression":
            self.outputs = ("mean",)
        else:
            self.outputs = ("proba", "label") if hasattr(estimator, "predict_proba") else ("label",)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_copies": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _copies=threading.local())

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        jobs = effective_n_jobs(self.settings.n_jobs)
        tasks = iter(tasks)
        # A few tasks at a time, so that not all contexts are in memory at once. Each is made when
        # its turn comes.
        for first in tasks:
            some = chain([first], islice(tasks, 4 * jobs - 1))
            with nullcontext() if len(first.X) > SMALL else one_thread():
                answers = Parallel(n_jobs=jobs)(
                    delayed(_fit_predict)(self._copy(jobs), task, output) for task in some
                )
            yield from answers

    def _copy(self, jobs: int) -> Any:
        """To be fitted. A new one where a fit is not the same the second time."""
        if jobs > 1 or any(_goes_on(*one) for one in self.estimator.get_params().items()):
            return self._new()
        if not hasattr(self._copies, "one"):
            self._copies.one = self._new()
        return self._copies.one

    def _new(self) -> Any:
        return clone(self.estimator).set_params(**self.settled)


def _settled(asked: dict[str, Any], settings: BackendSettings) -> dict[str, Any]:
    """CRUMB's device and seed for the parameters that the user has left open."""
    settled: dict[str, Any] = {}
    for name, value in asked.items():
        last = name.rpartition("__")[2]  # of a step in a pipeline
        if last == "random_state" and value is None:
            settled[name] = settings.seed
        elif last == "device" and value == "auto":
            settled[name] = settings.device
    return settled


def _goes_on(name: str, value: Any) -> bool:
    """Whether a parameter makes a fit begin where the last one ended."""
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return True
    return name.rpartition("__")[2] == "warm_start" and bool(value)


def _fit_predict(estimator: Any, task: ContextTask, output: Output) -> np.ndarray:
    estimator.fit(task.X, task.y)
    predict = estimator.predict_proba if output.kind == "proba" else estimator.predict
    if task.key is None:
        return predict(task.queries)
    answers = [predict(piece) for piece in pieces(task.queries, PIECE, PIECE)]
    return np.concatenate(answers)[: len(task.queries)]
