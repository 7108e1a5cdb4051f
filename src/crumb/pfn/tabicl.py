"""TabICL (v1, v1.1, v2 and the embedded network) through the official package.

The package reloads its checkpoint on every ``fit``; here its estimators are handed one network, loaded once
per process and device, and shared by all contexts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.tabicl import TabICL

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import Checkpoint, read_checkpoint
from crumb.table import Rows

# Files of tabicl 0.1.x do not name these flags, whose defaults have since become those of v2.
V1_ARCHITECTURE = {
    "col_affine": True,
    "col_feature_group": False,
    "col_target_aware": False,
    "col_ssmax": False,
    "icl_ssmax": False,
    "row_rope_interleaved": True,
    "bias_free_ln": False,
}
PASS_BYTES = 2 << 30  # size of the largest activation of one pass on a CPU, which the package does not split

_networks: dict[tuple[Path, int, int, str], TabICL] = {}
_lock = threading.Lock()


def shared_network(path: Path, device: str) -> TabICL:
    """The network of a checkpoint on a device: built on first use, then the same object for everyone."""
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size, device)
    with _lock:
        if key not in _networks:
            _networks[key] = _build(read_checkpoint(path)).to(device)
        return _networks[key]


def _build(checkpoint: Checkpoint) -> TabICL:
    config = checkpoint.config
    if "col_ssmax" not in config and not any("ssmax" in name for name in checkpoint.state_dict):
        config = {**V1_ARCHITECTURE, **config}
    try:
        network = TabICL(**config)
        network.load_state_dict(checkpoint.state_dict)
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise InvalidCheckpoint(
            f"The weights in {checkpoint.path} do not fit the network that the file describes."
        ) from error
    return network.eval()


class _SharedNetwork:
    """Mixed into tabicl's estimators: takes the network that is there instead of reading the file again."""

    crumb_path: Path
    device_: torch.device

    def _load_model(self) -> None:
        self.model_path_ = self.crumb_path
        self.model_config_ = read_checkpoint(self.crumb_path).config
        self.model_ = shared_network(self.crumb_path, str(self.device_))


class SharedTabICLClassifier(_SharedNetwork, TabICLClassifier):
    pass


class SharedTabICLRegressor(_SharedNetwork, TabICLRegressor):
    pass


class TabICLBackend(Backend):
    def __init__(self, name: str, path: Path, task: str, window: int | None, settings: BackendSettings):
        self.name, self.path, self.task, self.window = name, path, task, window
        self.settings = settings
        self.outputs = ("proba",) if task == "classification" else ("mean", "median", "quantiles")
        native = read_checkpoint(path).max_classes
        self.max_classes = None if settings.options.get("support_many_classes", True) else native
        self._estimator()  # a misspelt option is refused at fit, not at the first prediction

    def _estimator(self) -> Any:
        kind = SharedTabICLClassifier if self.task == "classification" else SharedTabICLRegressor
        given = {
            "n_estimators": self.settings.n_estimators,
            "device": self.settings.device,
            "random_state": self.settings.seed,
            "n_jobs": self.settings.n_jobs,
            "allow_auto_download": False,
        }
        check_options(kind, self.settings.options, self.name)
        estimator = kind(**{**given, **self.settings.options})
        estimator.crumb_path = self.path
        return estimator

    def predict_context(self, task: ContextTask, output: Output) -> np.ndarray:
        estimator = self._estimator().fit(task.X, task.y)
        predict = _predictor(estimator, output)
        chunks = [predict(chunk) for chunk in self._chunks(task)]
        return np.concatenate(chunks)

    def _chunks(self, task: ContextTask) -> list[Rows]:
        """Queries in pieces that fit in memory. Queries do not see each other, so the answers stay the same."""
        network = shared_network(self.path, self.settings.device)
        width = task.X.shape[1] + 4  # features and summary tokens
        members = min(self.settings.n_estimators, self.settings.options.get("batch_size") or 8)
        rows = PASS_BYTES // (4 * network.embed_dim * width * members)
        size = max(1_000, rows - len(task.X))
        return [_rows(task.queries, start, start + size) for start in range(0, len(task.queries), size)]


def _predictor(estimator: Any, output: Output) -> Callable[[Rows], np.ndarray]:
    if output.kind == "proba":
        return estimator.predict_proba
    alphas = list(output.quantiles) or None
    return lambda rows: estimator.predict(rows, output_type=output.kind, alphas=alphas)


def _rows(rows: Rows, start: int, stop: int) -> Rows:
    return rows.iloc[start:stop] if isinstance(rows, pd.DataFrame) else rows[start:stop]


def check_options(kind: type, options: dict[str, Any], name: str) -> None:
    """Refuse ``model_options`` that the package's estimator does not have."""
    known = kind._get_param_names()  # type: ignore[attr-defined]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInput(
            f"The model {name!r} has no option {', '.join(map(repr, unknown))}; it has {', '.join(known)}."
        )
