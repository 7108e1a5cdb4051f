"""TabICL (v1, v1.1, v2 and the embedded networks) through the official package.

The package reads its checkpoint at every ``fit``. Here its estimators get one network, which is
loaded once per process and device and shared by all contexts. On a GPU many contexts go through it
in one pass, on a CPU side by side (``fused.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from tabicl import TabICLClassifier, TabICLRegressor

from crumb.errors import InvalidInput
from crumb.machine import resolve_jobs, said_once, task_threads
from crumb.pfn.architecture import V1_ARCHITECTURE, build
from crumb.pfn.base import ContextTask, KeepingBackend, Output, Tasks
from crumb.pfn.contexts import bounded, pieces, tensor_bytes
from crumb.pfn.fused import HELD_BYTES, LEAST_QUERIES, FusedPasses, can_fuse, task_bytes
from crumb.pfn.models import fitting, per_file, read_checkpoint
from crumb.pfn.tabicl_package import TabICL, resolve_torch_device

# Tasks and their answers; None: the package should give it.
Answered: TypeAlias = tuple[list[ContextTask], list[np.ndarray | None]]
# Largest activation of one pass on a CPU, where the package does not split a pass.
PASS_BYTES = 2 << 30


def _build(path: Path, device: str) -> TabICL:
    checkpoint = read_checkpoint(path)
    config = checkpoint.config
    if "col_ssmax" not in config and not any("ssmax" in name for name in checkpoint.state_dict):
        config = {**V1_ARCHITECTURE, **config}
    with fitting(path):
        network = build(config)
        network.load_state_dict(checkpoint.state_dict)
    return network.eval().to(device)


shared_network = per_file(_build)


class Shared:
    """Mixed into the package's estimators: takes a network that is there, and reads no file."""

    checkpoint: Path

    def _load_model(self) -> None:
        self.model_ = shared_network(self.checkpoint, str(self.device_))

    def in_half_precision(self, device: torch.device, shape: tuple[int, int]) -> bool:
        """Whether the package would run a context of this shape in half precision."""
        self.device_, (self.n_samples_in_, self.n_features_in_) = device, shape
        return bool(self._resolve_amp_fa3()[0])  # type: ignore[attr-defined]


class SharedClassifier(Shared, TabICLClassifier):
    pass


class SharedRegressor(Shared, TabICLRegressor):
    pass


class TabICLBackend(KeepingBackend):
    estimators: ClassVar = {"classification": SharedClassifier, "regression": SharedRegressor}
    reserved = frozenset({"model_path", "checkpoint_version", "allow_auto_download"})
    travels = True
    most_categories = 40  # by the package's own measure
    # Whether contexts share passes. None: except on a CPU, where each has a thread of its own.
    # False: the package's own passes, one after the other.
    fuse: bool | None = None

    def open(self) -> None:
        super().open()
        options = self.settings.options
        if options.get("support_many_classes", True) and not options.get("kv_cache"):
            self.max_classes = None
        shared_network(self.path, self.settings.device)

    @property
    def network(self) -> TabICL:
        return shared_network(self.path, self.settings.device)

    def estimator(self, **given: Any) -> Any:
        made = super().estimator(**given)
        made.checkpoint = self.path
        return made

    def predict_contexts(self, tasks: Tasks, output: Output) -> Iterator[np.ndarray]:
        passes = None if self.fuse is False else self._passes(output)
        if passes is None:
            yield from super().predict_contexts(tasks, output)
            return
        together = self._stacked if self.fuse or not self.on_cpu else self._side_by_side
        for some, answers in together(tasks, passes):
            for task, answer in zip(some, answers, strict=True):
                yield self.predict_context(task, output) if answer is None else answer

    @property
    def on_cpu(self) -> bool:
        return resolve_torch_device(self.estimator().device).type == "cpu"

    @property
    def together(self) -> int:
        return resolve_jobs(self.settings.n_jobs) if self.on_cpu else super().together

    def _stacked(self, tasks: Tasks, passes: FusedPasses) -> Iterator[Answered]:
        """Contexts that share passes."""
        for some in bounded(tasks, task_bytes, HELD_BYTES):
            apart = [task for task in some if self.kept_under(task) is None]
            with self.alone():
                answers = dict(zip(map(id, apart), passes(apart), strict=True))
            yield some, [answers.get(id(task)) for task in some]

    def _side_by_side(self, tasks: Tasks, passes: FusedPasses) -> Iterator[Answered]:
        """Contexts that have a thread each: on a CPU a stack falls out of its caches.

        A context that comes again is left to the package, whose cache of it gives the same bits.
        """
        passes.apart = True

        def answer(task: ContextTask) -> np.ndarray | None:
            return passes([task])[0] if task.key is None else None

        workers = 1
        # No more than there are threads: under a budget of time the next contexts may be cut.
        for some in bounded(tasks, lambda _: 1, resolve_jobs(self.settings.n_jobs)):
            fit = self.settings.stack_bytes // max(map(passes.bytes, some))
            # The last ones have one thread each too: threads of a pass wait for each other, on a
            # busy machine ten times as long as the pass itself takes.
            workers = min(fit, max(workers, len(some)))
            quiet = said_once(self._said) if passes.transforms else nullcontext()
            with quiet, task_threads(self.settings.n_jobs, workers) as each:
                answers = list(each(answer, some))
            yield some, answers

    def _passes(self, output: Output) -> FusedPasses | None:
        """None: the options or the network need the package's own passes."""
        estimator = self.estimator()
        device = resolve_torch_device(estimator.device)
        network = shared_network(self.path, str(device))
        if not can_fuse(network, estimator):
            return None
        return FusedPasses(network, estimator, output, device, self.settings.stack_bytes)

    def embed(self, task: ContextTask) -> np.ndarray:
        passes = self._passes(Output("mean"))
        if passes is None:
            raise InvalidInput(
                f"The model {self.name!r} with these model_options has no row embeddings."
            )
        with self.alone():
            return passes.embed(replace(task, y=_merged(task.y, self.network.max_classes)))

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        estimator = self.fitted(task)
        if output.kind == "proba":
            predict = estimator.predict_proba
        else:
            alphas = list(output.quantiles) or None
            predict = partial(estimator.predict, output_type=output.kind, alphas=alphas)
        some = pieces(task.queries, _piece(estimator, task), task.multiple)
        answers = [predict(piece) for piece in some]
        return np.concatenate(answers)[: len(task.queries)]

    def fitted(self, task: ContextTask) -> Any:
        """The estimator for a context, with its keys and values where it will come again."""
        if (key := self.kept_under(task)) is None:
            return self.estimator().fit(task.X, task.y)
        return self.contexts.get_or(
            key, lambda: self.estimator(kv_cache="kv").fit(task.X, task.y), self.size_of
        )

    def size_of(self, made: Any) -> int:
        return tensor_bytes(dict(made.model_kv_cache_))

    def kept_under(self, task: ContextTask) -> bytes | None:
        # The package's hierarchy of classes has no cache.
        too_many = 0 < self.network.max_classes <= task.y.max(initial=0)
        if too_many or "kv_cache" in self.settings.options:
            return None
        return super().kept_under(task)

    def kept_bytes(self, task: ContextTask) -> int:
        network = self.network
        width = network.embed_dim * network.row_num_cls
        members = self.settings.options.get("n_estimators", self.settings.n_estimators)
        rows = 8 * width * network.icl_num_blocks * len(task.y) * members
        return int(1.25 * rows)  # the columns have some too

    def work(self, rows: int, queries: int, columns: int) -> float:
        """Floating-point operations of a pass, by the layers of the network."""
        net = self.network
        wide, tokens, all_rows = net.embed_dim, columns + net.row_num_cls, rows + queries
        block = 8 + 4 * net.ff_factor  # products of a block, in squares of its width
        points = net.col_num_inds
        cells = columns * (
            all_rows * ((block - 4) * wide**2 + 4 * points * wide)
            + rows * 4 * wide * (wide + points)
        )
        across = all_rows * tokens * (block * wide**2 + 4 * tokens * wide)
        width = wide * net.row_num_cls
        learning = all_rows * (block * width**2 + 4 * rows * width)
        numbers = 2 * columns * all_rows * net.col_embedder.in_linear.in_features * wide
        blocks = net.col_num_blocks * cells + net.row_num_blocks * across
        return float(numbers + blocks + net.icl_num_blocks * learning)

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        """The widest activations of a pass, and of those that run beside it or share it."""
        net, most = self.network, self.settings.stack_bytes
        tokens, all_rows = columns + net.row_num_cls, rows + min(queries, LEAST_QUERIES)
        one = 14 * 4 * net.embed_dim * tokens * all_rows
        others = min(self.together * one, most) if self.settings.device == "cpu" else most
        return float(max(one * self.settings.n_estimators, others))


def _merged(y: np.ndarray, most: int) -> np.ndarray:
    """Codes of at most ``most`` classes, the rarest in one; numbers (``most`` 0) as they are."""
    if not most:
        return y
    rank = np.argsort(np.argsort(-np.bincount(y), kind="stable"))
    return np.minimum(rank[y], most - 1)


def _piece(estimator: Any, task: ContextTask) -> int:
    """Queries whose pass fits in memory."""
    width = task.columns + estimator.model_.row_num_cls  # features and summary tokens
    members = min(estimator.n_estimators, estimator.batch_size or estimator.n_estimators)
    rows = PASS_BYTES // (4 * estimator.model_.embed_dim * width * members)
    size = max(LEAST_QUERIES, rows - len(task.y))
    return max(task.multiple, size // task.multiple * task.multiple)  # only the last has filling
