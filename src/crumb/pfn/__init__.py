"""Back-ends: the models that CRUMB hands its contexts to."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import Checkpoint, checksum, read_checkpoint
from crumb.pfn.weights import CARDS, card_for, fetch, model_names

__all__ = ["Backend", "BackendSettings", "ContextTask", "Output", "resolve_backend"]


def resolve_backend(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The back-end for a model given by name, by the path of a checkpoint, or as an estimator."""
    if isinstance(model, (str, os.PathLike)):
        if isinstance(model, str) and model in model_names():
            return _by_name(model, task, settings)
        if isinstance(model, os.PathLike) or _looks_like_path(model):
            return _by_checkpoint(str(model), read_checkpoint(model), task, None, settings)
        card_for(str(model), task)  # raises: no model of this name
    return _by_instance(model, task, settings)


def _by_name(name: str, task: str, settings: BackendSettings) -> Backend:
    card = card_for(name, task)
    path = fetch(card)
    if card.sha256 is not None and checksum(path) != card.sha256:
        raise InvalidCheckpoint(f"{path} is not the file that was shipped (its checksum differs): reinstall.")
    return _by_checkpoint(name, read_checkpoint(path), task, card.window, settings)


def _by_checkpoint(
    name: str, checkpoint: Checkpoint, task: str, window: int | None, settings: BackendSettings
) -> Backend:
    if checkpoint.task != task:
        raise InvalidCheckpoint(
            f"{checkpoint.path} holds a network for {checkpoint.task}, but {task} was asked for; "
            f"use a checkpoint for {task}."
        )
    if checkpoint.family == "tabicl":
        from crumb.pfn.tabicl import TabICLBackend

        return TabICLBackend(name, checkpoint.path, task, window, settings)
    from crumb.pfn.tabpfn import TabPFNBackend

    return TabPFNBackend(name, checkpoint.path, task, window or 10_000, settings)


def _by_instance(model: Any, task: str, settings: BackendSettings) -> Backend:
    from sklearn.base import is_classifier, is_regressor

    from crumb.pfn.sklearn import SklearnBackend

    fits = is_classifier if task == "classification" else is_regressor
    if isinstance(model, type) or not hasattr(model, "fit") or not fits(model):
        wanted = "classifier" if task == "classification" else "regressor"
        raise InvalidInput(
            f"model must be a name ({', '.join(model_names())}), the path of a checkpoint file, or a "
            f"scikit-learn {wanted}; got {model!r}."
        )
    if type(model).__module__.partition(".")[0] == "tabicl":
        return _by_tabicl_instance(model, task, settings)
    return SklearnBackend(model, task, settings)


def _by_tabicl_instance(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The package's own estimator with its own settings, but one network for all contexts."""
    options = model.get_params(deep=False)
    path, version = options.pop("model_path"), options.pop("checkpoint_version")
    options.pop("allow_auto_download")
    if path is None:
        path = fetch(next(card for card in CARDS if card.file == version))
    settings = replace(settings, options=options, n_estimators=options["n_estimators"])
    return _by_checkpoint(type(model).__name__, read_checkpoint(path), task, None, settings)


def _looks_like_path(model: str) -> bool:
    return os.sep in model or model.endswith((".ckpt", ".safetensors", ".pt", ".pth")) or Path(model).exists()
