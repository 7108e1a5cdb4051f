"""TabPFN through the official package (extra ``tabpfn``).

Weights are always named explicitly: the package's own default is a gated, non-commercial model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crumb.errors import BackendUnavailable, InvalidCheckpoint, InvalidInput
from crumb.pfn.base import BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import Checkpoint
from crumb.pfn.groups import halved, in_groups
from crumb.pfn.network import NetworkBackend, Shared
from crumb.pfn.tabpfn_batch import (
    HELD_CELLS,
    cells,
    group_of,
    most_together,
    predict_alone,
    predict_together,
    row_bytes,
)

try:
    from tabpfn import ModelSpecs, TabPFNClassifier, TabPFNRegressor
    from tabpfn.errors import TabPFNValidationError
    from tabpfn.model_loading import load_model
except ImportError as error:
    raise BackendUnavailable(
        "TabPFN models need the package tabpfn: pip install 'crumb-pfn[tabpfn]'."
    ) from error

ANY_NUMBER = 1 << 60
UNHEEDED = {"fit_mode", "memory_saving_mode"}  # by the package's batched calls


@dataclasses.dataclass
class SharedSpecs(ModelSpecs):
    """Is not copied with its estimator: batched calls clone theirs, network and all."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> SharedSpecs:
        return self


def _build(path: Path, task: str, _device: str, _precision: str) -> ModelSpecs:
    kind = "classifier" if task == "classification" else "regressor"
    try:
        model, criterion, architecture, inference = load_model(path=path, estimator_type=kind)
    except Exception as error:  # a wrong configuration can break the constructor in any way
        raise InvalidCheckpoint(
            f"The weights in {path} do not fit the network that the file describes."
        ) from error
    # The package warns above 200 rows on a CPU and refuses above 1,000. Here the user has chosen
    # the context size, and there are many contexts.
    inference = dataclasses.replace(inference, MAX_CPU_SAMPLES=ANY_NUMBER)
    return SharedSpecs(model, architecture, inference, criterion if kind == "regressor" else None)


# The package moves a network to its device and casts it to its precision in place. So a network
# is shared only where both are the same.
shared_specs = Shared(_build)


class TabPFNBackend(NetworkBackend):
    estimators: ClassVar = {"classification": TabPFNClassifier, "regression": TabPFNRegressor}
    reserved = frozenset({"model_path"})
    missing_is_a_value = False

    def __init__(
        self, name: str, checkpoint: Checkpoint, window: int | None, settings: BackendSettings
    ):
        super().__init__(name, checkpoint, window, settings)
        limit = self.specs.inference_config.MAX_NUMBER_OF_SAMPLES  # loaded: may be refused at fit
        self.window = window or limit

    @property
    def specs(self) -> ModelSpecs:
        """The network, and how the package runs it."""
        precision = self.settings.options.get("inference_precision")
        return shared_specs(self.path, self.task, self._device, str(precision))

    @property
    def _device(self) -> str:
        return str(self.settings.options.get("device", self.settings.device))

    @property
    def batched(self) -> bool:
        """Whether contexts share a pass: slower on a CPU, and wrong in the package on MPS."""
        return self._device.startswith("cuda") and not UNHEEDED & set(self.settings.options)

    def predict_contexts(
        self, tasks: Iterable[ContextTask], output: Output
    ) -> Iterator[np.ndarray]:
        if not self.batched:
            return super().predict_contexts(tasks, output)

        def run(group: list[ContextTask]) -> list[np.ndarray]:
            most = most_together(self.specs, group, self._device)
            calls = (group[start : start + most] for start in range(0, len(group), most))
            return [answer for call in calls for answer in self._call(call, output)]

        return in_groups(tasks, lambda task: group_of(task, output), run, cells, HELD_CELLS)

    def _call(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        return halved(
            tasks,
            run=lambda some: self._together(some, output),
            alone=lambda task: self.predict_context(task, output),
        )

    def _together(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        try:
            with self.alone(), self._refusals():
                return predict_together(self._estimator(tasks[0]), tasks, output)
        except NotImplementedError:  # an option whose effect the package fits for each context
            return [self.predict_context(task, output) for task in tasks]

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        with self._refusals():
            return predict_alone(self._estimator(task).fit(task.X, task.y), task, output)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except TabPFNValidationError as error:
            raise InvalidInput(
                f"The model {self.name!r} refuses a context "
                f"(arguments named here go into model_options): {error}"
            ) from error

    def _estimator(self, task: ContextTask) -> Any:
        given: dict[str, Any] = {"model_path": self.specs}
        if isinstance(task.X, np.ndarray):  # in a frame, the types of the columns say it
            given["categorical_features_indices"] = list(self.settings.categorical_indices) or None
        return self.estimator(**given)

    def work(self, rows: int, queries: int, columns: int) -> float:
        """Floating-point operations of a pass, by the layers of the network."""
        config: Any = self.specs.architecture_config
        wide = self.specs.model.embedding_dim
        tokens = columns // getattr(config, "features_per_group", 1) + 2
        layer = (rows + queries) * tokens * (24 * wide**2 + 4 * wide * (rows + tokens))
        return float(config.nlayers * layer)

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        return float((rows + queries) * row_bytes(self.specs, columns))
