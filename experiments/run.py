"""One run: split, fit, plan, predict, score. Everything random comes from the seed of the run."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import gen_batches

from crumb import CrumbClassifier, CrumbRegressor, Plan, select_contexts
from crumb.errors import BackendUnavailable, CrumbError, WeightsMissing
from experiments.dataset import Dataset, DatasetMissing
from experiments.methods import estimator_settings
from experiments.metrics import SCORES, score_of_each, scores
from experiments.protocol import Run
from experiments.split import split

OUTCOME = (
    "status", "message", *SCORES, "plan_seconds", "pass_seconds", "seconds", "context_mean",
    "contexts", "mmd2",
)  # fmt: skip
MISSING = (DatasetMissing, WeightsMissing, BackendUnavailable)  # not there, rather than broken
MMD_VALUES = 100_000_000  # kernel values that may be spent on the exact MMD²: about a second
KERNEL_ROWS = 1_000  # of a kernel matrix held at once
CLUSTER_PROTOCOLS = ("rff",)  # whose rows also hold MMD² and score of every cluster


def outcome(status: str, message: str | None = None, **found: Any) -> dict[str, Any]:
    """The part of a row that says what came out."""
    return {**dict.fromkeys(OUTCOME), "status": status, "message": message, **found}


def failure(error: BaseException) -> dict[str, Any]:
    """The outcome of a run that failed, in one sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (CrumbError, MemoryError)):
        text = f"{type(error).__name__}: {text}"
    return outcome("missing" if isinstance(error, MISSING) else "error", text[:500])


def estimator(run: Run, device: str, **more: Any) -> CrumbClassifier | CrumbRegressor:
    """Without a cache of contexts: a run is a first prediction, not a repeated one."""
    kind = CrumbClassifier if run.task == "classification" else CrumbRegressor
    return kind(model=run.model, device=device, cache_size=0, **more)


def execute(
    run: Run, dataset: Dataset, device: str = "auto", n_jobs: int | None = None
) -> dict[str, Any]:
    """What came out of a run: scores, and the seconds of stages 1 and 2 and of stage 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about windows and sizes, the same for hundreds of runs
        rows = split(run, dataset)
        model = estimator(run, device, n_jobs=n_jobs, **estimator_settings(run))
        model.fit(dataset.X.iloc[rows.pool], dataset.y[rows.pool])
        queries, truth = dataset.X.iloc[rows.queries], dataset.y[rows.queries]
        _, points = model.encode(queries)
        started = time.perf_counter()
        plan = model.plan_points(points, evidence=False)  # as in predict: nothing only to be shown
        planned = time.perf_counter()
        answers = _answers(model, queries, plan, dataset)
        finished = time.perf_counter()
        seconds = {
            "plan_seconds": round(planned - started, 6),
            "pass_seconds": round(finished - planned, 6),
            "seconds": round(finished - started, 6),
        }
        found = {**scores(run.task, truth, answers), **seconds, **_contexts(plan)}
        each = score_of_each(run.task, truth, answers)
        return outcome("ok", None, **found, **_match(run, plan, each))


def _answers(model: Any, queries: Any, plan: Plan, dataset: Dataset) -> np.ndarray:
    if isinstance(model, CrumbRegressor):
        return model.predict(queries, plan=plan)
    proba = np.zeros((len(queries), dataset.n_classes or 0))
    proba[:, model.classes_] = model.predict_proba(queries, plan=plan)  # a pool may lack classes
    return proba


def _contexts(plan: Plan) -> dict[str, float]:
    """Their mean size, and how many passes they take: clusters with the same rows share one."""
    passes = {np.sort(context).tobytes() for context in plan.contexts}
    return {"context_mean": float(plan.sizes.mean()), "contexts": len(passes)}


def _match(run: Run, plan: Plan, each: np.ndarray) -> dict[str, Any]:
    """MMD² over the groups of queries, and where the protocol wants it MMD² and score of each."""
    groups = query_groups(np.asarray(plan.query_points), run)
    mmd2 = group_mmd2(plan, groups)
    counts = np.bincount(groups)
    mean = None if mmd2 is None else float(f"{np.average(mmd2, weights=counts):.6g}")
    if run.protocol not in CLUSTER_PROTOCOLS:
        return {"mmd2": mean}
    return {
        "mmd2": mean,
        "cluster_queries": counts.tolist(),
        "cluster_score": (np.bincount(groups, each) / counts).round(6).tolist(),
        "cluster_mmd2": None if mmd2 is None else [float(f"{value:.4g}") for value in mmd2],
    }


def query_groups(queries: np.ndarray, run: Run) -> np.ndarray:
    """The clusters that CRUMB makes of the queries, from their points in the selection space.

    Every method is measured on them: MMD² to another set of queries would be another quantity.
    The pool plays no part in stage 1, so two rows stand for it.
    """
    plan = select_contexts(
        np.zeros((2, queries.shape[1])),
        queries,
        strategy="uniform",
        features=FunctionTransformer(),
        n_clusters=run.K or 1,
        context_size=1,
        bandwidth=1.0,
        random_state=run.seed,
    )
    return plan.labels


def group_mmd2(plan: Plan, groups: np.ndarray) -> list[float] | None:
    """Exact MMD² between each group of queries and the contexts that its queries get.

    A group whose queries get several contexts counts each by its queries. None if it takes long.
    """
    pairs = np.column_stack([groups, plan.labels])
    pairs, counts = np.unique(pairs, axis=0, return_counts=True)
    sizes, lengths, used = np.bincount(groups), plan.sizes, np.unique(plan.labels)
    values = (lengths[used] ** 2).sum() + (lengths[pairs[:, 1]] * sizes[pairs[:, 0]]).sum()
    if values + (sizes**2).sum() > MMD_VALUES:
        return None
    sigma, pool, points = plan.settings["bandwidth"], plan.pool_points, plan.query_points
    assert pool is not None
    assert points is not None
    asked = [points[groups == group] for group in range(len(sizes))]
    found = [_kernel_mean(own, own, sigma) for own in asked]
    rows = {context: pool[plan.contexts[context]] for context in used}
    within = {context: _kernel_mean(own, own, sigma) for context, own in rows.items()}
    for (group, context), count in zip(pairs, counts, strict=True):
        between = _kernel_mean(rows[context], asked[group], sigma)
        found[group] += count / sizes[group] * (within[context] - 2 * between)
    return found


def _kernel_mean(a: np.ndarray, b: np.ndarray, sigma: float) -> float:
    """The mean of exp(−‖x − z‖² / 2σ²) over all pairs, in double precision."""
    a, b, gamma = np.asarray(a, np.float64), np.asarray(b, np.float64), 1 / (2 * sigma**2)
    blocks = gen_batches(len(a), KERNEL_ROWS)
    return sum(rbf_kernel(a[block], b, gamma).sum() for block in blocks) / (len(a) * len(b))
