"""TabPFN through the official package (extra ``tabpfn``).

Version 2 is named explicitly everywhere: the package's own default is a gated, non-commercial model.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crumb.errors import BackendUnavailable, InvalidCheckpoint, InvalidInput
from crumb.pfn.base import BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import Checkpoint
from crumb.pfn.network import NetworkBackend, Shared

try:
    from tabpfn import ModelSpecs, TabPFNClassifier, TabPFNRegressor
    from tabpfn.errors import TabPFNValidationError
    from tabpfn.model_loading import load_model
except ImportError as error:
    raise BackendUnavailable("TabPFN models need the package tabpfn: pip install 'crumb-pfn[tabpfn]'.") from error

ANY_NUMBER = 1 << 60


def _build(path: Path, task: str, _device: str, _precision: str) -> ModelSpecs:
    kind = "classifier" if task == "classification" else "regressor"
    try:
        model, criterion, architecture, inference = load_model(path=path, estimator_type=kind)
    except Exception as error:  # whatever the network's constructor makes of a wrong configuration
        raise InvalidCheckpoint(f"The weights in {path} do not fit the network that the file describes.") from error
    # The package warns above 200 rows on a CPU and refuses above 1,000: here the context budget is the user's
    # own choice, and there are many contexts.
    inference = dataclasses.replace(inference, MAX_CPU_SAMPLES=ANY_NUMBER)
    return ModelSpecs(model, architecture, inference, criterion if kind == "regressor" else None)


# The package moves a network to its device and casts it to its precision in place, so those do not share one.
shared_specs = Shared(_build)


class TabPFNBackend(NetworkBackend):
    estimators: ClassVar = {"classification": TabPFNClassifier, "regression": TabPFNRegressor}
    reserved = frozenset({"model_path"})
    missing_is_a_value = False

    def __init__(self, name: str, checkpoint: Checkpoint, window: int | None, settings: BackendSettings):
        super().__init__(name, checkpoint, window, settings)
        limit = self._specs().inference_config.MAX_NUMBER_OF_SAMPLES  # built here, to be refused at fit
        self.window = window or limit

    def _specs(self) -> ModelSpecs:
        options = self.settings.options
        device, precision = options.get("device", self.settings.device), options.get("inference_precision")
        return shared_specs(self.path, self.task, str(device), str(precision))

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        try:
            estimator = self._estimator(task).fit(task.X, task.y)
            return _predict(estimator, task, output)
        except TabPFNValidationError as error:
            raise InvalidInput(
                f"The model {self.name!r} refuses a context (arguments named here go into model_options): {error}"
            ) from error

    def _estimator(self, task: ContextTask) -> Any:
        given: dict[str, Any] = {
            "model_path": self._specs(),
            "n_estimators": self.settings.n_estimators,
            "device": self.settings.device,
            "random_state": self.settings.seed,
        }
        if isinstance(task.X, np.ndarray):  # in a frame, the package goes by the types of the columns
            given["categorical_features_indices"] = list(self.settings.categorical_indices) or None
        return self.estimators[self.task](**{**given, **self.settings.options})


def _predict(estimator: Any, task: ContextTask, output: Output) -> np.ndarray:
    if output.kind == "proba":
        return estimator.predict_proba(task.queries)
    if output.kind == "quantiles":
        levels = list(output.quantiles)
        return np.stack(estimator.predict(task.queries, output_type="quantiles", quantiles=levels), axis=1)
    return estimator.predict(task.queries, output_type=output.kind)
