"""One run: split, fit, plan, predict, score. Everything random comes from the seed of the run."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from crumb.bench.dataset import Dataset
from crumb.bench.methods import estimator_settings
from crumb.bench.metrics import SCORES, right, scores
from crumb.bench.protocol import Run
from crumb.bench.split import split
from crumb.errors import BackendUnavailable, CrumbError, DatasetMissing, WeightsMissing
from crumb.estimator import CrumbClassifier, CrumbRegressor
from crumb.herding.kernel import Rbf
from crumb.infer import distinct_passes
from crumb.plan import Plan
from crumb.selection.clustering import cluster, value_order

OUTCOME = (
    "status", "message", *SCORES, "plan_seconds", "pass_seconds", "seconds", "context_mean", "contexts", "mmd2",
)  # fmt: skip
MISSING = (DatasetMissing, WeightsMissing, BackendUnavailable)  # not there, rather than broken
MMD_VALUES = 100_000_000  # kernel values that may be spent on the exact MMD²: under a second
CLUSTER_PROTOCOLS = ("rff",)  # whose rows also hold MMD² and score of every cluster: does the one follow the other?


def outcome(status: str, message: str | None = None, **found: Any) -> dict[str, Any]:
    """The part of a row that says what came out."""
    return {**dict.fromkeys(OUTCOME), "status": status, "message": message, **found}


def failure(error: BaseException) -> dict[str, Any]:
    """A run that came to nothing, in one sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (CrumbError, MemoryError)):
        text = f"{type(error).__name__}: {text}"
    return outcome("missing" if isinstance(error, MISSING) else "error", text[:500])


def execute(run: Run, dataset: Dataset, device: str = "auto", n_jobs: int | None = None) -> dict[str, Any]:
    """What came out of a run. Times are those of stages 1 and 2, and of stage 3; the table is encoded before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about windows and pools, the same for hundreds of runs; the row has the sizes
        return _execute(run, dataset, device, n_jobs)


def _execute(run: Run, dataset: Dataset, device: str, n_jobs: int | None) -> dict[str, Any]:
    rows = split(run, dataset)
    kind = CrumbClassifier if run.task == "classification" else CrumbRegressor
    # Without room for contexts that are kept: a run is a first prediction, not a repeated one.
    model = kind(model=run.model, device=device, n_jobs=n_jobs, cache_size=0, **estimator_settings(run))
    model.fit(dataset.X.iloc[rows.pool], dataset.y[rows.pool])
    queries, truth = dataset.X.iloc[rows.queries], dataset.y[rows.queries]
    points = model._query(queries)[1]
    started = time.perf_counter()
    plan = model._plan(
        points, evidence=False
    )  # as in predict: what is measured only to be shown costs no method anything
    planned = time.perf_counter()
    answers = _answers(model, queries, plan, dataset)
    finished = time.perf_counter()
    groups = query_groups(points, run)
    mmd2 = group_mmd2(plan, model._points, points, groups, model._settings.device)
    found: dict[str, Any] = {
        **scores(run.task, truth, answers),
        "plan_seconds": round(planned - started, 6),
        "pass_seconds": round(finished - planned, 6),
        "seconds": round(finished - started, 6),
        "context_mean": float(plan.sizes.mean()),
        "contexts": len(distinct_passes(plan.contexts, plan.labels)),
        "mmd2": None if mmd2 is None else float(f"{np.average(mmd2, weights=np.bincount(groups)):.6g}"),
    }
    if run.protocol in CLUSTER_PROTOCOLS:
        found |= _by_cluster(right(run.task, truth, answers), groups, mmd2)
    return outcome("ok", None, **found)


def _answers(model: CrumbClassifier | CrumbRegressor, queries: Any, plan: Plan, dataset: Dataset) -> np.ndarray:
    if isinstance(model, CrumbRegressor):
        return model.predict(queries, plan=plan)
    proba = np.zeros((len(queries), dataset.n_classes or 0))
    proba[:, model.classes_] = model.predict_proba(queries, plan=plan)  # a pool may lack classes
    return proba


def query_groups(points: np.ndarray, run: Run) -> np.ndarray:
    """The clusters that CRUMB makes of the queries. Every method is measured on them: MMD² to another set of queries
    would be another quantity."""
    order = value_order(points)  # as planning does it, so that CRUMB's own clusters come out
    groups = np.empty(len(points), dtype=np.int64)
    groups[order] = cluster(points[order], min(run.K or 1, len(points)), run.seed)[0]
    return groups


def group_mmd2(
    plan: Plan, pool: np.ndarray, points: np.ndarray, groups: np.ndarray, device: str = "cpu"
) -> list[float] | None:
    """Exact MMD² between each group of queries and the contexts that its queries get, whatever chose these.

    A group whose queries get several contexts counts each by its queries. None where it would take long.
    """
    pairs, counts = np.unique(np.column_stack([groups, plan.labels]), axis=0, return_counts=True)
    sizes, lengths = np.bincount(groups), plan.sizes
    values = (lengths[np.unique(pairs[:, 1])] ** 2).sum() + (lengths[pairs[:, 1]] * sizes[pairs[:, 0]]).sum()
    if values + (sizes**2).sum() > MMD_VALUES:
        return None
    kernel = Rbf(plan.settings["bandwidth"])
    queries = [_tensor(points[groups == group], device) for group in range(len(sizes))]
    found = np.array([float(kernel.mean(own, own)) for own in queries])
    for context in np.unique(pairs[:, 1]):
        rows = _tensor(pool[plan.contexts[context]], device)
        own = float(kernel.mean(rows, rows))  # once, however many groups share the context
        for group, count in zip(pairs[pairs[:, 1] == context, 0], counts[pairs[:, 1] == context], strict=True):
            share = count / sizes[group]
            found[group] += share * (own - 2 * float(kernel.mean(rows, queries[group])))
    return found.tolist()


def _tensor(rows: np.ndarray, device: str) -> Any:
    """In double precision, which CUDA has and Apple's GPUs have not."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float64))
    return tensor.to(device) if device.startswith("cuda") else tensor


def _by_cluster(each: np.ndarray, groups: np.ndarray, mmd2: list[float] | None) -> dict[str, list[float] | None]:
    """Lists over the groups, the same for every method: how well their queries were answered, and MMD²."""
    numbers = range(int(groups.max()) + 1)
    return {
        "cluster_queries": [int((groups == group).sum()) for group in numbers],
        "cluster_score": [round(float(each[groups == group].mean()), 6) for group in numbers],
        "cluster_mmd2": None if mmd2 is None else [float(f"{value:.4g}") for value in mmd2],
    }
