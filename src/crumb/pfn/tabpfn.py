"""TabPFN through the official package (extra ``tabpfn``).

Version 2 is named explicitly everywhere: the package's own default is a gated, non-commercial model.
"""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from crumb.errors import BackendUnavailable, InvalidCheckpoint
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import read_checkpoint
from crumb.pfn.tabicl import check_options

try:
    from tabpfn import ModelSpecs, TabPFNClassifier, TabPFNRegressor
    from tabpfn.model_loading import load_model
except ImportError as error:
    raise BackendUnavailable(
        "TabPFN models need the package tabpfn: pip install 'crumb-pfn[tabpfn]'."
    ) from error

CPU_ROWS = 1_000  # above this the package refuses to run on a CPU unless told otherwise

_specs: dict[tuple[Path, int, int, str], ModelSpecs] = {}
_lock = threading.Lock()


def shared_specs(path: Path, task: str) -> ModelSpecs:
    """The network of a checkpoint with what belongs to it: built on first use, then shared by reference."""
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size, task)
    with _lock:
        if key not in _specs:
            _specs[key] = _build(path, task)
        return _specs[key]


def _build(path: Path, task: str) -> ModelSpecs:
    kind = "classifier" if task == "classification" else "regressor"
    try:
        model, criterion, architecture, inference = load_model(path=path, estimator_type=kind)
    except (RuntimeError, TypeError, ValueError, KeyError, AssertionError) as error:
        raise InvalidCheckpoint(
            f"The weights in {path} do not fit the network that the file describes."
        ) from error
    return ModelSpecs(model, architecture, inference, criterion if kind == "regressor" else None)


class TabPFNBackend(Backend):
    def __init__(self, name: str, path: Path, task: str, window: int | None, settings: BackendSettings):
        self.name, self.path, self.task, self.window = name, path, task, window
        self.settings = settings
        self.outputs = ("proba",) if task == "classification" else ("mean", "median", "quantiles")
        self.max_classes = read_checkpoint(path).max_classes or None
        check_options(self._kind, settings.options, name)

    @property
    def _kind(self) -> type:
        return TabPFNClassifier if self.task == "classification" else TabPFNRegressor

    def _estimator(self, n_context: int) -> Any:
        given: dict[str, Any] = {
            "model_path": shared_specs(self.path, self.task),
            "n_estimators": self.settings.n_estimators,
            "device": self.settings.device,
            "random_state": self.settings.seed,
        }
        if self.settings.categorical_indices:
            given["categorical_features_indices"] = list(self.settings.categorical_indices)
        if self.settings.device == "cpu" and CPU_ROWS < n_context <= (self.window or CPU_ROWS):
            given["ignore_pretraining_limits"] = True  # the budget was the user's choice and fits the model
        return self._kind(**{**given, **self.settings.options})

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Running on CPU with more than", category=UserWarning)
            estimator = self._estimator(len(task.X)).fit(task.X, task.y)
            if output.kind == "proba":
                return estimator.predict_proba(task.queries)
            if output.kind == "quantiles":
                levels = list(output.quantiles)
                answer = estimator.predict(task.queries, output_type="quantiles", quantiles=levels)
                return np.stack(answer, axis=1)
            return estimator.predict(task.queries, output_type=output.kind)
