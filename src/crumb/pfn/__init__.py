"""Back-ends: the models that CRUMB hands its contexts to.

==========  ====================================================================================
base        the protocol: tasks in, answers out; what all back-ends with a checkpoint share
models      which models there are, where the file of one is, and whether that file is sound
contexts    contexts that go together, in pieces, or once more
tabicl      TabICL and the embedded networks. On a GPU many contexts share a pass: fused stacks
            them, preprocess prepares their rows, forward is the way through the network,
            architecture builds it. Only tabicl_package imports the package's inside
tabpfn      TabPFN
sklearn     any scikit-learn estimator
==========  ====================================================================================
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn import models
from crumb.pfn.base import Backend, BackendSettings, ContextTask, Output

__all__ = ["Backend", "BackendSettings", "ContextTask", "Output", "resolve_backend"]

ENDINGS = (".ckpt", ".safetensors", ".pt", ".pth")
SHARED_ESTIMATORS = ("TabICLClassifier", "TabICLRegressor")  # others fine-tune weights of their own


def resolve_backend(model: Any, task: str, settings: BackendSettings) -> Backend:
    """The back-end for a model given by name, by the path of a checkpoint, or as an estimator."""
    if not isinstance(model, (str, os.PathLike)):
        return _by_instance(model, task, settings)
    name = os.fspath(model)
    looks_like_path = os.sep in name or name.endswith(ENDINGS) or os.path.exists(name)
    if not isinstance(model, str) or (looks_like_path and model not in models.model_names()):
        return _by_checkpoint(name, name, task, None, settings)
    card = models.card_for(name, task)
    models.family_named(
        card.family
    ).load()  # a missing package is reported before anything is downloaded
    path = models.fetch(card)
    if card.sha256 is not None and models.checksum(path) != card.sha256:
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
    checkpoint = models.read_checkpoint(path)
    if checkpoint.task != task:
        raise InvalidCheckpoint(
            f"{checkpoint.path} holds a network for {checkpoint.task}, but {task} was asked for; "
            f"use a checkpoint for {task}."
        )
    return models.family_named(checkpoint.family).load()(name, checkpoint, window, settings)


def _by_instance(model: Any, task: str, settings: BackendSettings) -> Backend:
    from sklearn.base import is_classifier, is_regressor

    from crumb.pfn.sklearn import SklearnBackend

    fits = is_classifier if task == "classification" else is_regressor
    if isinstance(model, type) or not hasattr(model, "fit") or not fits(model):
        wanted = "classifier" if task == "classification" else "regressor"
        raise InvalidInput(
            f"model must be a name ({', '.join(models.model_names())}), the path of a checkpoint "
            f"file, or a scikit-learn {wanted}; got {model!r}."
        )
    if settings.options:
        raise InvalidInput(
            "model_options are for models given by name or path; set them on the estimator itself."
        )
    kind = type(model)
    if kind.__module__.partition(".")[0] != "tabicl" or kind.__name__ not in SHARED_ESTIMATORS:
        return SklearnBackend(model, task, settings)
    # The package's own estimator with its own settings, but one network for all contexts.
    options = model.get_params(deep=False)
    path, version = options.pop("model_path"), options.pop("checkpoint_version")
    options.pop("allow_auto_download")
    if path is None:
        path = models.fetch(models.card_of_file(version))
    return _by_checkpoint(kind.__name__, path, task, None, replace(settings, options=options))
