"""Any scikit-learn classifier or regressor as a back-end: cloned and fitted on each context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone

from crumb.machine import one_thread
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.contexts import pieces

# Products of few rows round differently from products of many. With a frozen plan an answer may
# depend on its row alone, so estimators see pieces of this one size, however many rows are asked.
PIECE = 256
# Rows of a context up to which threads do not help an estimator: they wait for each other at every
# small step, on a busy machine for many times the time of the work.
SMALL = 10_000


class SklearnBackend(Backend):
    def __init__(self, estimator: Any, task: str, settings: BackendSettings):
        self.name = type(estimator).__name__
        self.estimator, self.settings = estimator, settings
        if task == "regression":
            self.outputs = ("mean",)
        else:
            self.outputs = ("proba", "label") if hasattr(estimator, "predict_proba") else ("label",)

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        return next(iter(self.predict_contexts([task], output)))

    def predict_contexts(
        self, tasks: Iterable[ContextTask], output: Output
    ) -> Iterator[np.ndarray]:
        jobs = effective_n_jobs(self.settings.n_jobs)
        tasks = iter(tasks)
        # A few tasks at a time, so that not all contexts are in memory at once. Each is made when
        # its turn comes.
        for first in tasks:
            some = chain([first], islice(tasks, 4 * jobs - 1))
            with nullcontext() if len(first.X) > SMALL else one_thread():
                answers = Parallel(n_jobs=jobs)(
                    delayed(_fit_predict)(clone(self.estimator), task, output) for task in some
                )
            yield from answers


def _fit_predict(estimator: Any, task: ContextTask, output: Output) -> np.ndarray:
    estimator.fit(task.X, task.y)
    predict = estimator.predict_proba if output.kind == "proba" else estimator.predict
    if task.key is None:
        return predict(task.queries)
    answers = [predict(piece) for piece in pieces(task.queries, PIECE, PIECE)]
    return np.concatenate(answers)[: len(task.queries)]
