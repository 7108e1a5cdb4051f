"""A fitted estimator as a file: pool, labels, parameters, the model's name and checksum. No pickle.

The selection space is not stored: it is a function of the pool and is fitted again on loading.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput, PlanMismatch
from crumb.estimator import CrumbClassifier, CrumbRegressor
from crumb.files import read_archive, write_archive
from crumb.herding.greedy import EarlyStopping
from crumb.pfn.models import checksum, model_names
from crumb.selection import Strategy
from crumb.selection.base import REGISTRY

FORMAT = "crumb-estimator"
VERSION = 1
KINDS = {"classification": CrumbClassifier, "regression": CrumbRegressor}


def save(estimator: Any, path: str | Path) -> None:
    """What ``CrumbClassifier.save`` and ``CrumbRegressor.save`` do."""
    if estimator.pool_.on_disk:
        raise InvalidInput(
            "This pool stays in its Parquet files and cannot be put into one file: save the plan, "
            "and fit again there."
        )
    params = _portable_params(estimator)
    pool = estimator.pool_
    rows, arrays, files = pool.rows, {"y": pool.y}, {}
    about = {
        "task": estimator.task,
        "params": params,
        "model_sha256": _model_checksum(estimator),
        "fingerprint": estimator.pool_.fingerprint,
    }
    if isinstance(rows, pd.DataFrame):
        about["columns"] = _portable_names(rows.columns)
        about["kinds"] = pool.encoder.kinds_
        files["pool.parquet"] = pack_frame(rows)
    else:
        arrays["pool"] = rows
    if estimator.task == "classification":
        if estimator.classes_.dtype.kind not in "OUbiuf":
            raise InvalidInput(
                f"Labels of type {estimator.classes_.dtype} cannot be saved without pickle."
            )
        about["classes"] = estimator.classes_.tolist()
        about["class_dtype"] = estimator.classes_.dtype.str
    write_archive(path, FORMAT, VERSION, about, arrays, files)


def load(path: str | Path, **changes: Any) -> Any:
    """Read a fitted estimator that ``save`` wrote; its answers are those of the saved one.

    ``changes`` replace parameters that differ on this machine: ``load(path, device="cpu")``, or
    ``model=`` for a checkpoint in another place. Open only files that you trust: they name the
    model that will be loaded.
    """
    about, arrays, files = read_archive(path, FORMAT, VERSION)
    try:
        params, y = {**about["params"], **changes}, arrays["y"]
        if about["task"] == "classification":
            y = np.array(about["classes"], dtype=np.dtype(about["class_dtype"]))[y]
        if "pool.parquet" in files:
            rows = unpack_frame(files["pool.parquet"], about["columns"], about["kinds"])
        else:
            rows = arrays["pool"]
        estimator = KINDS[about["task"]](**_live_params(params))
    except KeyError as error:
        raise PlanMismatch(f"{path} is incomplete: it has no {error}.") from error
    estimator.fit(rows, y)
    if _model_checksum(estimator) != about["model_sha256"]:
        raise PlanMismatch(
            f"{path} was saved with other weights of the model {params['model']!r} than those on "
            f"this machine."
        )
    if estimator.pool_.fingerprint != about["fingerprint"]:
        raise PlanMismatch(
            f"The pool in {path} is not the one that was saved: the file is damaged."
        )
    return estimator


def _portable_params(estimator: Any) -> dict[str, Any]:
    params = estimator.get_params(deep=False)
    if not isinstance(params["model"], (str, os.PathLike)):
        raise InvalidInput(
            "A model given as an estimator cannot be saved without pickle: use joblib.dump for "
            "files that stay with you, or give the model by name or path."
        )
    if params["features"] is not None and not isinstance(params["features"], str):
        raise InvalidInput(
            "A transformer given as features= cannot be saved without pickle: use joblib.dump for "
            "files that stay with you."
        )
    if params["model"] not in model_names():
        params["model"] = os.path.abspath(
            params["model"]
        )  # a path must mean the same from another folder
    params["random_state"], params["engine"] = (
        estimator.options_.seed,
        "local",
    )  # where it is loaded is another machine
    if isinstance(params["strategy"], Strategy):
        strategy = params["strategy"]
        params["strategy"] = {"name": strategy.name, **strategy.get_params()}
    if isinstance(params["early_stopping"], EarlyStopping):
        params["early_stopping"] = dataclasses.asdict(params["early_stopping"])
    if params["categorical_features"] is not None:
        params["categorical_features"] = (
            np.asarray(params["categorical_features"], dtype=object).ravel().tolist()
        )
    params = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in params.items()
    }
    try:
        json.dumps(params)
    except TypeError as error:
        raise InvalidInput(
            f"These settings cannot be written to a file without pickle: {error}."
        ) from error
    return params


def _model_checksum(estimator: Any) -> str:
    path = estimator.backend_.path
    assert path is not None, "a model that is no file is refused before it comes to this"
    return checksum(path)


def _live_params(params: dict[str, Any]) -> dict[str, Any]:
    params = dict(params)
    if isinstance(params["strategy"], dict):
        settings = dict(params["strategy"])
        params["strategy"] = REGISTRY[settings.pop("name")](**settings)
    if isinstance(params["early_stopping"], dict):
        params["early_stopping"] = EarlyStopping(**params["early_stopping"])
    return params


def pack_frame(rows: pd.DataFrame) -> bytes:
    """A frame as Parquet, whose columns go by number: their names may be anything."""
    buffer = io.BytesIO()
    rows.set_axis([str(i) for i in range(rows.shape[1])], axis=1).to_parquet(buffer, index=False)
    return buffer.getvalue()


def unpack_frame(parquet: bytes, columns: list[Any], kinds: list[str]) -> pd.DataFrame:
    """Parquet forgets that a column of numbers was a category."""
    frame = pd.read_parquet(io.BytesIO(parquet))
    categories = {
        name: "category"
        for name, kind in zip(frame.columns, kinds, strict=True)
        if kind == "category"
    }
    return frame.astype(categories).set_axis(columns, axis=1)


def _portable_names(columns: pd.Index) -> list[str | int]:
    names = [name.item() if isinstance(name, np.generic) else name for name in columns]
    odd = [name for name in names if not isinstance(name, (str, int))]
    if odd:
        raise InvalidInput(
            f"Column names must be text or whole numbers to be saved; {odd[0]!r} is neither."
        )
    return names
