"""TabPFN through the official package (extra ``tabpfn``).

Weights are always named explicitly: the package's own default is a gated, non-commercial model.

On a GPU several contexts share a pass, by the package's batched calls. The package prepares every
context by itself, as ``fit`` and ``predict`` do, and stacks the results. So the answers are those
of one context at a time, up to rounding in the network's precision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from crumb.errors import InvalidInput, extra
from crumb.machine import free_bytes
from crumb.pfn.base import ContextTask, NetworkBackend, Output, Tasks
from crumb.pfn.contexts import halved, in_groups, pieces
from crumb.pfn.models import fitting, per_file

with extra("tabpfn", "A TabPFN model"):
    from tabpfn import ModelSpecs, TabPFNClassifier, TabPFNRegressor
    from tabpfn.errors import TabPFNValidationError
    from tabpfn.model_loading import load_model

ANY_NUMBER = 1 << 60
# About 100 contexts of 500 rows and 20 columns in the released network. A GPU is busy with fewer,
# and the widest tensor stays under 2³¹ numbers, where 32-bit indices end.
BATCH_BYTES = 16 << 30
HELD_CELLS = 1 << 22  # of the tasks that wait for others to go with
# As wide as the embedding, at the peak of a layer: its input, and its MLP (4) before and after.
TENSORS = 9
UNHEEDED = {"fit_mode", "memory_saving_mode"}  # by the package's batched calls


@dataclasses.dataclass
class SharedSpecs(ModelSpecs):
    """Is not copied with its estimator: batched calls clone theirs, network and all."""

    def __deepcopy__(self, _memo: dict[int, Any]) -> SharedSpecs:
        return self


def _build(path: Path, task: str, _device: str, _precision: str) -> ModelSpecs:
    kind = "classifier" if task == "classification" else "regressor"
    with fitting(path):
        model, criterion, architecture, inference = load_model(path=path, estimator_type=kind)
    # The package warns above 200 rows on a CPU and refuses above 1,000. Here the user has chosen
    # the context size, and there are many contexts.
    inference = dataclasses.replace(inference, MAX_CPU_SAMPLES=ANY_NUMBER)
    return SharedSpecs(model, architecture, inference, criterion if kind == "regressor" else None)


# The package moves a network to its device and casts it to its precision in place. So a network
# is shared only where both are the same.
shared_specs = per_file(_build)


class TabPFNBackend(NetworkBackend):
    estimators: ClassVar = {"classification": TabPFNClassifier, "regression": TabPFNRegressor}
    reserved = frozenset({"model_path"})
    missing_is_a_value = False

    def open(self) -> None:
        limit = self.specs.inference_config.MAX_NUMBER_OF_SAMPLES
        self.window = self.window or limit

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

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        if not self.batched:
            return super().predict_contexts(tasks, output)
        key, run = partial(group_of, output=output), partial(self._group, output=output)
        return in_groups(tasks, key, run, lambda task: task.cells, HELD_CELLS)

    def _group(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        """Answers to tasks of one shape, in calls that fit in memory by an estimate of it."""
        rows = len(tasks[0].X) + max(len(task.queries) for task in tasks)
        one = rows * row_bytes(self.specs, tasks[0].X.shape[1])
        most = max(1, min(BATCH_BYTES, free_bytes(self._device)) // one)
        calls = (tasks[start : start + most] for start in range(0, len(tasks), most))
        together = partial(self._together, output=output)
        alone = partial(self.predict_context, output=output)
        return [answer for call in calls for answer in halved(call, together, alone)]

    def _together(self, tasks: list[ContextTask], output: Output) -> list[np.ndarray]:
        """Answers from one call."""
        estimator, most = self._estimator(tasks[0]), max(len(task.queries) for task in tasks)
        queries = [pieces(task.queries, most, most)[0] for task in tasks]
        given = [task.X for task in tasks], [task.y for task in tasks], queries
        try:
            with self.alone(), self._refusals():
                if output.kind == "proba":
                    answers = estimator.predict_proba_batched(*given)
                else:
                    answers = estimator.predict_batched(*given, **asked_of(output))
        except NotImplementedError:  # an option whose effect the package fits for each context
            return [self.predict_context(task, output) for task in tasks]
        pairs = zip(answers, tasks, strict=True)
        return [stacked(answer, output)[: len(task.queries)] for answer, task in pairs]

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        with self._refusals():
            estimator = self._estimator(task).fit(task.X, task.y)
            if output.kind == "proba":
                return estimator.predict_proba(task.queries)
            return stacked(estimator.predict(task.queries, **asked_of(output)), output)

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
        layers = layers_of(self.specs, columns, rows)
        each = (blocks * tokens * (24 * wide**2 + 4 * wide * seen)
                for blocks, tokens, wide, seen in layers)  # fmt: skip
        return float((rows + queries) * sum(each))

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        return float((rows + queries) * row_bytes(self.specs, columns))


def group_of(task: ContextTask, output: Output) -> Hashable:
    """What tasks of one call have in common: the package asks for one shape and one set of classes.

    Queries are padded to the same number. Rows are counted in powers of two, so that at most half
    of them are padding.
    """
    classes = int(task.y.max()) + 1 if output.kind == "proba" else None
    rows = len(task.X) + len(task.queries)
    return type(task.X), task.X.shape, classes, rows.bit_length()


def asked_of(output: Output) -> dict[str, Any]:
    levels = {"quantiles": list(output.quantiles)} if output.kind == "quantiles" else {}
    return {"output_type": output.kind, **levels}


def stacked(answer: Any, output: Output) -> np.ndarray:
    """The package lists its quantiles one by one."""
    return np.stack(answer, axis=1) if output.kind == "quantiles" else answer


def layers_of(specs: ModelSpecs, columns: int, rows: int) -> list[tuple[int, int, int, int]]:
    """Blocks of the network: how many, tokens a row, their width, and how many each one sees."""
    config: Any = specs.architecture_config
    wide = specs.model.embedding_dim
    if not hasattr(config, "embed_dim"):  # up to 2.6: every cell goes through every layer
        tokens = columns // getattr(config, "features_per_group", 1) + 2
        return [(config.nlayers, tokens, wide, rows + tokens)]
    tokens = columns + config.feat_agg_num_cls_tokens  # before a row becomes one token
    seen = config.dist_embed_num_inducing_points + tokens
    blocks = config.dist_embed_num_blocks + config.feat_agg_num_blocks
    return [(blocks, tokens, config.embed_dim, seen), (config.nlayers, 1, wide, rows)]


def row_bytes(specs: ModelSpecs, columns: int) -> int:
    """In single precision; half of it in the half precision that a GPU has by default."""
    config: Any = specs.architecture_config
    prepared = 2 * columns + 10  # the columns twice, once transformed, and a few components
    wide = sum(tokens * width for _, tokens, width, _ in layers_of(specs, prepared, 0))
    outputs = 3 * max(config.num_buckets, config.max_num_classes)
    return 4 * (TENSORS * wide + outputs)
