"""A fitted estimator as a file: pool, labels, parameters, the model's name and checksum. No pickle.

The selection space is not stored, but for the weights of its columns: it is a function of the pool
and is fitted again on loading.
"""

from __future__ import annotations

import dataclasses
import io
import os
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from crumb.errors import InvalidFile, InvalidInput, PlanMismatch
from crumb.estimator import CrumbClassifier, CrumbRegressor
from crumb.files import check_unpacked, packed, read_archive, reading, unpacked, write_archive
from crumb.guide import Guide
from crumb.herding.greedy import EarlyStopping
from crumb.pfn.models import checksum, model_names
from crumb.plan import Plan
from crumb.selection import Strategy
from crumb.selection.base import REGISTRY
from crumb.table.encoder import Rows
from crumb.table.space import ColumnSpace, Learned, is_auto, is_weights

FORMAT = "crumb-estimator"
VERSION = 1
KINDS = {"classification": CrumbClassifier, "regression": CrumbRegressor}


def save(estimator: Any, path: str | Path) -> None:
    """What ``CrumbClassifier.save`` and ``CrumbRegressor.save`` do."""
    pool, task = estimator.pool_, estimator.task
    if pool.on_disk:
        raise InvalidInput("This pool stays in its Parquet files: save the plan, and fit again.")
    rows, arrays = pool.rows, {"y": pool.y}
    files: dict[str, bytes] = {}
    about = {
        "task": task,
        "params": _portable_params(estimator),
        "model_sha256": checksum(estimator.backend_.path),
        "fingerprint": pool.fingerprint,
    }
    pack_rows("pool", rows, arrays, files)
    if isinstance(rows, pd.DataFrame):
        about |= {"columns": _portable_names(rows.columns), "kinds": pool.encoder.kinds_}
    if task == "classification":
        classes = estimator.classes_
        if classes.dtype.kind not in "OUbiuf":
            raise InvalidInput(f"Labels of type {classes.dtype} cannot be saved without pickle.")
        about |= {"classes": classes.tolist(), "class_dtype": classes.dtype.str}
    if pool.guide is not None:
        about["guide"], more, texts = pool.guide.pack()
        arrays, files = {**arrays, **more}, {**files, **texts}
    if isinstance(pool.space, ColumnSpace) and pool.space.weights is not None:
        arrays["weights"] = pool.space.weights
    if estimator.plan_ is not None:
        files["plan.crumb"] = packed(estimator.plan_.save)
    write_archive(path, FORMAT, VERSION, about, arrays, files)


def load(path: str | Path, **changes: Any) -> CrumbClassifier | CrumbRegressor:
    """Read a fitted estimator that ``save`` wrote; its answers are those of the saved one.

    Open only files that you trust: they name the model that will be loaded. They do not choose the
    ``engine``.

    Parameters
    ----------
    path : str or path
    **changes
        Parameters that differ on this machine: ``load(path, device="cpu")``, or ``model=`` for a
        checkpoint in another place.

    Returns
    -------
    estimator : CrumbClassifier or CrumbRegressor

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier, load
    >>> X, y = load_iris(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.crumb")
    >>> CrumbClassifier(context_size=60).fit(X, y).save(path)
    >>> load(path, device="cpu").predict(X[:1])
    array([0])
    """
    about, arrays, files = read_archive(path, FORMAT, VERSION)
    with reading(path, FORMAT):
        params, y = {**about["params"], "engine": "local", **changes}, arrays["y"]
        if about["task"] == "classification":
            y = np.array(about["classes"], dtype=np.dtype(about["class_dtype"]))[y]
        rows = unpack_rows("pool", arrays, files, about.get("columns"), about.get("kinds"))
        estimator: Any = KINDS[about["task"]](**_live_params(params))
        guide = Guide.unpack(about["guide"], arrays, files) if "guide" in about else None
        # What was learned is not learned again; the parameters stay, for refreshes of a stream.
        asked = {name: getattr(estimator, name) for name in ("guide", "plan_at", "features")}
        planned = "plan.crumb" in files and estimator.plan_at == "fit"
        estimator.set_params(guide=guide, plan_at="predict" if planned else asked["plan_at"])
        if is_auto(estimator.features) and "weights" in arrays:
            estimator.set_params(features=Learned(arrays["weights"]))
        estimator.fit(rows, y).set_params(**asked)
        if checksum(estimator.backend_.path) != about["model_sha256"]:
            model = f"the model {params['model']!r} than those on this machine"
            raise PlanMismatch(f"{path} was saved with other weights of {model}.")
        if estimator.pool_.fingerprint != about["fingerprint"]:
            raise InvalidFile(f"The pool in {path} is not the one that was saved: it is damaged.")
        if planned:
            estimator.plan_ = unpacked(files["plan.crumb"], Plan.load)
            estimator.plan_.check_pool(about["fingerprint"])
    return estimator


def _portable_params(estimator: Any) -> dict[str, Any]:
    params = estimator.get_params(deep=False)
    model, strategy, stopping = (params[n] for n in ("model", "strategy", "early_stopping"))
    pickled = "cannot be saved without pickle: use joblib.dump for files that stay with you"
    if not isinstance(model, (str, os.PathLike)):
        raise InvalidInput(f"A model given as an estimator {pickled}, or give its name or path.")
    if is_weights(params["features"]):
        params["features"] = np.asarray(params["features"], dtype=float).tolist()
    elif not isinstance(params["features"], (str, type(None))):
        raise InvalidInput(f"A transformer given as features= {pickled}.")
    if model not in model_names():
        params["model"] = os.path.abspath(model)  # a path must mean the same from another folder
    if not isinstance(params["guide_folds"], (str, type(None))):
        raise InvalidInput(f"A splitter given as guide_folds= {pickled}.")
    params["random_state"] = estimator.options_.seed
    params["engine"] = "local"  # where it is loaded is another machine
    if isinstance(strategy, Strategy):
        params["strategy"] = {"name": strategy.name, **strategy.get_params()}
    if isinstance(stopping, EarlyStopping):
        params["early_stopping"] = dataclasses.asdict(stopping)
    if params["categorical_features"] is not None:
        marked = np.asarray(params["categorical_features"], dtype=object)
        params["categorical_features"] = marked.ravel().tolist()
    return params


def _live_params(params: dict[str, Any]) -> dict[str, Any]:
    params = dict(params)
    if isinstance(params["strategy"], dict):
        settings = dict(params["strategy"])
        params["strategy"] = REGISTRY[settings.pop("name")](**settings)
    if isinstance(params["early_stopping"], dict):
        params["early_stopping"] = EarlyStopping(**params["early_stopping"])
    return params


def pack_rows(name: str, rows: Rows, arrays: dict[str, Any], files: dict[str, bytes]) -> None:
    """A table among the arrays of an archive, or among its files: as Parquet, whose columns go by
    number, since their names may be anything."""
    if isinstance(rows, pd.DataFrame):
        buffer, numbered = io.BytesIO(), [str(i) for i in range(rows.shape[1])]
        rows.set_axis(numbered, axis=1).to_parquet(buffer, index=False)
        files[f"{name}.parquet"] = buffer.getvalue()
    else:
        arrays[name] = rows


def unpack_rows(
    name: str, arrays: dict[str, Any], files: dict[str, bytes], columns: Any, kinds: Any
) -> Rows:
    """``kinds`` of the columns: Parquet forgets that a column of numbers was a category."""
    parquet = files.get(f"{name}.parquet")
    if parquet is None:
        return arrays[name]
    about = pq.read_metadata(io.BytesIO(parquet))  # repeated values take next to no room in it
    check_unpacked("The table", 8 * about.num_rows * about.num_columns, 10 * len(parquet))
    frame = pd.read_parquet(io.BytesIO(parquet))
    pairs = zip(frame.columns, kinds, strict=True)
    categories = {name: "category" for name, kind in pairs if kind == "category"}
    return frame.astype(categories).set_axis(columns, axis=1)


def _portable_names(columns: pd.Index) -> list[str | int]:
    odd = [name for name in columns if not isinstance(name, (str, Integral))]
    if odd:
        raise InvalidInput(f"Column names must be text or whole numbers; {odd[0]!r} is neither.")
    return list(columns)
