"""TabICL (v1, v1.1, v2 and the embedded network) through the official package.

The package reloads its checkpoint on every ``fit``; here its estimators are handed one network, loaded once
per process and device, and shared by all contexts. On a GPU many contexts go through it in one pass (``fused.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.tabicl import TabICL
from tabicl._torch_devices import resolve_torch_device

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.architecture import V1_ARCHITECTURE, build
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.cache import ContextCache, tensor_bytes
from crumb.pfn.checkpoint import Checkpoint, read_checkpoint
from crumb.pfn.fused import HELD_BYTES, LEAST_QUERIES, FusedPasses, can_fuse, task_bytes
from crumb.pfn.groups import bounded, padded
from crumb.pfn.network import NetworkBackend, Shared
from crumb.table import Rows

PASS_BYTES = 2 << 30  # size of the largest activation of one pass on a CPU, which the package does not split
# Products of few rows round differently from products of many. Where contexts come again (a frozen plan, whose answers
# depend on the row alone), queries come in multiples of so many, lest an answer depend on how many were asked together.
FEWEST_QUERIES = 32


def _build(path: Path, device: str) -> TabICL:
    checkpoint = read_checkpoint(path)
    config = checkpoint.config
    if "col_ssmax" not in config and not any("ssmax" in name for name in checkpoint.state_dict):
        config = {**V1_ARCHITECTURE, **config}
    try:
        network = build(config)
        network.load_state_dict(checkpoint.state_dict)
    except Exception as error:  # whatever the network's constructor makes of a wrong configuration
        raise InvalidCheckpoint(f"The weights in {path} do not fit the network that the file describes.") from error
    return network.eval().to(device)


shared_network = Shared(_build)


class _SharedNetwork:
    """Mixed into tabicl's estimators: takes the network that is there instead of reading the file again."""

    crumb_path: Path
    device_: torch.device

    def _load_model(self) -> None:
        self.model_path_ = self.crumb_path
        self.model_ = shared_network(self.crumb_path, str(self.device_))


class SharedTabICLClassifier(_SharedNetwork, TabICLClassifier):
    pass


class SharedTabICLRegressor(_SharedNetwork, TabICLRegressor):
    pass


class TabICLBackend(NetworkBackend):
    estimators: ClassVar = {"classification": SharedTabICLClassifier, "regression": SharedTabICLRegressor}
    reserved = frozenset({"model_path", "checkpoint_version", "allow_auto_download"})
    fuse: bool | None = None  # whether contexts share passes; None: on anything but a CPU, where it is slower

    def __init__(self, name: str, checkpoint: Checkpoint, window: int | None, settings: BackendSettings):
        super().__init__(name, checkpoint, window, settings)
        if settings.options.get("support_many_classes", True) and not settings.options.get("kv_cache"):
            self.max_classes = None
        shared_network(self.path, settings.device)  # weights that do not fit are refused at fit
        self._contexts: ContextCache[Any] = ContextCache(settings.cache_bytes)

    def predict_contexts(self, tasks: Iterable[ContextTask], output: Output) -> Iterator[np.ndarray]:
        passes = self._fused(output)
        if passes is None:
            yield from super().predict_contexts(tasks, output)
            return
        for some in bounded(tasks, task_bytes, HELD_BYTES):
            stacked = [i for i, task in enumerate(some) if not self._is_kept(task)]
            with self.alone():
                answers = dict(zip(stacked, passes([some[i] for i in stacked]), strict=True))
            for i, task in enumerate(some):
                answer = answers.get(i)
                yield self.predict_context(task, output) if answer is None else answer

    def embed(self, task: ContextTask) -> np.ndarray:
        network = shared_network(self.path, self.settings.device)
        estimator = self._estimator()
        if not can_fuse(network, estimator):
            raise InvalidInput(f"The model {self.name!r} with these model_options has no row embeddings.")
        passes = FusedPasses(
            network, estimator, Output("mean"), resolve_torch_device(estimator.device), self.settings.stack_bytes
        )
        with self.alone():
            return passes.embed(replace(task, y=_known_classes(task.y, network.max_classes)))

    def keep(self, task: ContextTask) -> None:
        if task.key is not None and self._is_kept(task) and self._contexts.has_room(task.key, self._kept_bytes(task)):
            with self.alone():
                self._fitted(task)

    def forget(self, keys: Iterable[bytes] | None = None) -> None:
        if keys is None:
            self._contexts.clear()
        else:
            self._contexts.drop(keys)

    def share(self, other: Backend) -> None:
        if isinstance(other, TabICLBackend):
            self._contexts = other._contexts

    def work(self, rows: int, queries: int, columns: int) -> float:
        """Floating-point operations of a pass, by the layers of the network."""
        net = shared_network(self.path, self.settings.device)
        wide, tokens, all_rows = net.embed_dim, columns + net.row_num_cls, rows + queries
        block, points = 8 + 4 * net.ff_factor, net.col_num_inds  # products of a block, in squares of its width
        cells = columns * (all_rows * ((block - 4) * wide**2 + 4 * points * wide) + rows * 4 * wide * (wide + points))
        across = all_rows * tokens * (block * wide**2 + 4 * tokens * wide)
        width = wide * net.row_num_cls
        learning = all_rows * (block * width**2 + 4 * rows * width)
        return float(net.col_num_blocks * cells + net.row_num_blocks * across + net.icl_num_blocks * learning)

    def bytes(self, rows: int, queries: int, columns: int) -> float:
        """Of the widest activations of a pass; on a GPU contexts share passes of ``stack_bytes``."""
        net = shared_network(self.path, self.settings.device)
        cells = 4 * net.embed_dim * (columns + net.row_num_cls) * (rows + min(queries, LEAST_QUERIES))
        alone = 14 * cells * self.settings.n_estimators
        return float(alone if self.settings.device == "cpu" else max(alone, self.settings.stack_bytes))

    def _fused(self, output: Output) -> FusedPasses | None:
        estimator = self._estimator()
        device = resolve_torch_device(estimator.device)
        if not (device.type != "cpu" if self.fuse is None else self.fuse):
            return None
        network = shared_network(self.path, str(device))
        if not can_fuse(network, estimator):
            return None
        return FusedPasses(network, estimator, output, device, self.settings.stack_bytes)

    def run(self, task: ContextTask, output: Output) -> np.ndarray:
        estimator = self._fitted(task)
        predict = _predictor(estimator, output)
        multiple = 1 if task.key is None else FEWEST_QUERIES
        answers = [predict(padded(piece, multiple)) for piece in _pieces(estimator, task)]
        return np.concatenate(answers)[: len(task.queries)]

    def _fitted(self, task: ContextTask) -> Any:
        """The package's estimator for a context: kept with its keys and values where the context will come again."""
        if task.key is None or not self._is_kept(task):
            return self._estimator().fit(task.X, task.y)
        return self._contexts.get_or(
            task.key,
            lambda: self._estimator(kv_cache="kv").fit(task.X, task.y),
            lambda estimator: tensor_bytes(dict(estimator.model_kv_cache_)),
        )

    def _is_kept(self, task: ContextTask) -> bool:
        if task.key is None or not task.keep:
            return False
        network = shared_network(self.path, self.settings.device)
        if "kv_cache" in self.settings.options or (0 < network.max_classes <= task.y.max(initial=0)):
            return False  # the user's own choice; the package's hierarchy of classes has no cache
        return self._kept_bytes(task) <= self.settings.cache_bytes

    def _kept_bytes(self, task: ContextTask) -> int:
        """Of the keys and values of a context, about."""
        network = shared_network(self.path, self.settings.device)
        width = network.embed_dim * network.row_num_cls
        members = self.settings.options.get("n_estimators", self.settings.n_estimators)
        return int(1.25 * 8 * width * network.icl_num_blocks * len(task.X) * members)  # the columns have some too

    def _estimator(self, **more: Any) -> Any:
        given = {
            "n_estimators": self.settings.n_estimators,
            "device": self.settings.device,
            "random_state": self.settings.seed,
            **more,
        }
        estimator = self.estimators[self.task](**{**given, **self.settings.options})
        estimator.crumb_path = self.path
        return estimator


def _known_classes(y: np.ndarray, most: int) -> np.ndarray:
    """Codes of at most so many classes, of which the rarest share the last; numbers as they are."""
    if not most:
        return y
    rank = np.argsort(np.argsort(-np.bincount(y), kind="stable"))
    return np.minimum(rank[y], most - 1)


def _predictor(estimator: Any, output: Output) -> Callable[[Rows], np.ndarray]:
    if output.kind == "proba":
        return estimator.predict_proba
    alphas = list(output.quantiles) or None
    return lambda rows: estimator.predict(rows, output_type=output.kind, alphas=alphas)


def _pieces(estimator: Any, task: ContextTask) -> list[Rows]:
    """Queries in pieces that fit in memory. Queries do not see each other, so the answers stay the same."""
    width = task.X.shape[1] + estimator.model_.row_num_cls  # features and summary tokens
    members = min(estimator.n_estimators, estimator.batch_size or estimator.n_estimators)
    rows = PASS_BYTES // (4 * estimator.model_.embed_dim * width * members)
    size = max(LEAST_QUERIES, rows - len(task.X))
    if task.key is not None:
        size = max(FEWEST_QUERIES, size // FEWEST_QUERIES * FEWEST_QUERIES)  # so that only the last piece is filled up
    return [_rows(task.queries, start, start + size) for start in range(0, len(task.queries), size)]


def _rows(rows: Rows, start: int, stop: int) -> Rows:
    return rows.iloc[start:stop] if isinstance(rows, pd.DataFrame) else rows[start:stop]
