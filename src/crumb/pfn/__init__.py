"""Back-ends: the models that CRUMB hands its contexts to."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output
from crumb.pfn.checkpoint import checksum, read_checkpoint
from crumb.pfn.weights import card_for, card_of_file, fetch, model_names

if TYPE_CHECKING:
    from crumb.pfn.network import NetworkBackend

__all__ = ["Backend", "BackendSettings", "ContextTask", "Output", "resolve_backend"]


def resolve_backend(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The back-end for a model given by name, by the path of a checkpoint, or as an estimator."""
    if isinstance(model, str) and not _looks_like_path(model):
        return _by_name(model, task, settings)
    if isinstance(model, (str, os.PathLike)):
        return _by_checkpoint(os.fspath(model), model, task, None, settings)
    return _by_instance(model, task, settings)


def _looks_like_path(model: str) -> bool:
    if model in model_names():
        return False
    return (
        os.sep in model
        or model.endswith((".ckpt", ".safetensors", ".pt", ".pth"))
        or os.path.exists(model)
    )


def _by_name(name: str, task: str, settings: BackendSettings) -> Backend:
    card = card_for(name, task)
    _network_backend(
        card.family
    )  # a package that is missing is missed before anything is downloaded
    path = fetch(card)
    if card.sha256 is not None and checksum(path) != card.sha256:
        raise InvalidCheckpoint(
            f"{path} is not the file that was shipped (its checksum differs): reinstall."
        )
    return _by_checkpoint(name, path, task, card.window, settings)


def _by_checkpoint(
    name: str,
    path: str | os.PathLike[str],
    task: str,
    window: int | None,
    settings: BackendSettings,
) -> Backend:
    checkpoint = read_checkpoint(path)
    if checkpoint.task != task:
        raise InvalidCheckpoint(
            f"{checkpoint.path} holds a network for {checkpoint.task}, but {task} was asked for; "
            f"use a checkpoint for {task}."
        )
    return _network_backend(checkpoint.family)(name, checkpoint, window, settings)


def _network_backend(family: str) -> type[NetworkBackend]:
    if family == "tabicl":
        from crumb.pfn.tabicl import TabICLBackend

        return TabICLBackend
    from crumb.pfn.tabpfn import TabPFNBackend

    return TabPFNBackend


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
    if settings.options:
        raise InvalidInput(
            "model_options are for models given by name or path; set them on the estimator itself."
        )
    if _is_tabicl(model):
        return _by_tabicl_instance(model, task, settings)
    return SklearnBackend(model, task, settings)


def _is_tabicl(model: Any) -> bool:
    """The package's two plain estimators; those that fine-tune have weights of their own."""
    kind = type(model)
    return kind.__module__.partition(".")[0] == "tabicl" and kind.__name__ in (
        "TabICLClassifier",
        "TabICLRegressor",
    )


def _by_tabicl_instance(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The package's own estimator with its own settings, but one network for all contexts."""
    options = model.get_params(deep=False)
    path, version = options.pop("model_path"), options.pop("checkpoint_version")
    options.pop("allow_auto_download")
    if path is None:
        path = fetch(card_of_file(version))
    return _by_checkpoint(
        type(model).__name__, path, task, None, replace(settings, options=options)
    )
