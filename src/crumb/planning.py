"""Stages 1 and 2 from matrices to a ``Plan``; ``select_contexts`` is the same for people who bring their own model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from crumb.devices import resolve_device
from crumb.errors import InvalidInput
from crumb.evidence import measure_support, measure_traces, trace, unmeasured
from crumb.herding.cost import Load
from crumb.herding.greedy import EarlyStopping
from crumb.herding.kernel import median_bandwidth
from crumb.options import (
    check_bandwidth,
    median_factor,
    non_negative,
    positive,
    resolve_context_size,
    resolve_early_stopping,
    resolve_kernel,
)
from crumb.parallel import block_threads, resolve_jobs
from crumb.plan import Plan
from crumb.progress import progress_bar
from crumb.rng import generator
from crumb.selection import MMD, Problem, Selection, Strategy, resolve_strategy
from crumb.selection.clustering import value_order
from crumb.selection.rare_classes import keep_rare_classes
from crumb.table.encoder import TableEncoder, fingerprint, in_files, to_rows
from crumb.table.space import SelectionSpace


def select_contexts(
    X_pool: Any,
    X_queries: Any,
    *,
    y_pool: Any = None,
    strategy: str | Strategy = "mmd",
    n_clusters: str | int | None = "auto",
    context_size: str | float = "auto",
    kernel: str = "auto",
    rff_dim: int = 256,
    herd_batch: str | int = "auto",
    bandwidth: str | float = "median",
    early_stopping: bool | EarlyStopping = False,
    features: Any = None,
    categorical_features: Any = None,
    min_per_class: int = 1,
    device: str = "auto",
    random_state: Any = 0,
    n_jobs: int | None = None,
    where: Any = None,
    columns: Any = None,
    engine: Any = "local",
    verbose: int = 0,
) -> Plan:
    """Cluster the queries and choose a context for each cluster, without any PFN.

    The parameters are those of ``CrumbClassifier`` and of its ``fit``. ``min_per_class`` works only where ``y_pool``,
    the class of each pool row, is given; for a pool in Parquet files it is the name of that column.

    Examples
    --------
    >>> import numpy as np
    >>> from crumb import select_contexts
    >>> rng = np.random.default_rng(0)
    >>> plan = select_contexts(rng.normal(size=(500, 4)), rng.normal(size=(30, 4)), n_clusters=3, context_size=50)
    >>> plan.n_clusters, plan.sizes.tolist()
    (3, [50, 50, 50])
    """
    options: dict[str, Any] = {
        "strategy": strategy,
        "n_clusters": n_clusters,
        "context_size": context_size,
        "kernel": kernel,
        "rff_dim": rff_dim,
        "herd_batch": herd_batch,
        "bandwidth": bandwidth,
        "early_stopping": early_stopping,
        "min_per_class": min_per_class,
        "device": device,
        "random_state": resolve_seed(random_state),
        "n_jobs": n_jobs,
        "verbose": verbose,
    }
    if in_files(X_pool):
        from crumb.scale.pool import plan_files

        return plan_files(
            X_pool,
            X_queries,
            y_pool,
            where,
            columns,
            engine,
            features,
            categorical_features,
            options,
        )
    if where is not None or columns is not None:
        raise InvalidInput(
            "where= and columns= are for tables in files: filter a table in memory yourself."
        )
    encoder, space = TableEncoder(categorical_features), SelectionSpace(features)
    raw_pool, raw_queries = to_rows(X_pool), to_rows(X_queries)
    if _columns(raw_pool) != _columns(raw_queries):
        raise InvalidInput("X_pool and X_queries must have the same columns in the same order.")
    if space.embedded:
        raise InvalidInput(
            "features='embedding' needs a model: use the plan method of a fitted estimator."
        )
    rows = encoder.fit_transform(raw_pool)
    codes = None
    if y_pool is not None:
        codes = np.unique(np.asarray(y_pool), return_inverse=True)[1]
        if len(codes) != len(rows):
            raise InvalidInput(f"y_pool has {len(codes)} values for {len(rows)} pool rows.")
    pool = space.fit_transform(rows, encoder, None if y_pool is None else np.asarray(y_pool))
    settings = plan_settings(pool, **options)
    queries = space.transform(encoder.transform(raw_queries))
    return make_plan(pool, queries, settings, fingerprint(rows, encoder.kinds_, features), codes)


@dataclass(frozen=True)
class PlanSettings:
    """Everything that can be decided before the queries are seen."""

    strategy: Strategy
    n_clusters: int
    n: int
    kernel: str
    rff_dim: int
    herd_batch: str | int
    bandwidth: float
    early_stopping: EarlyStopping | None
    min_per_class: int
    device: str
    seed: int
    n_jobs: int | None
    verbose: int
    fixed_clusters: bool = False  # whether the user has said K
    fixed_rows: bool = False  # and n
    affordable: int | None = None  # kernel values; None: as many as usual
    facts: dict[str, Any] = field(default_factory=dict)  # what else the plan should say


def plan_settings(
    pool: np.ndarray,
    *,
    strategy: str | Strategy,
    n_clusters: str | int | None,
    context_size: str | float,
    kernel: str,
    rff_dim: int,
    herd_batch: str | int,
    bandwidth: str | float,
    early_stopping: bool | EarlyStopping,
    min_per_class: int,
    device: str,
    random_state: Any,
    n_jobs: int | None,
    verbose: int,
    window: int | None = None,
    rows: int | None = None,
) -> PlanSettings:
    """Check the user's settings against the pool; every mistake in them shows here.

    ``rows``: of the whole pool, where ``pool`` is only the sample behind the bandwidth.
    """
    rows = len(pool) if rows is None else rows
    strategy, device, seed = (
        resolve_strategy(strategy),
        resolve_device(device),
        resolve_seed(random_state),
    )
    sigma = check_bandwidth(bandwidth)
    if isinstance(sigma, str):
        sigma = median_factor(sigma) * median_bandwidth(pool, generator(seed, "bandwidth"))
    resolve_kernel(kernel, rff_dim, herd_batch, sigma)
    resolve_jobs(n_jobs)
    if n_clusters is None:
        clusters = 1
    else:
        clusters = (
            strategy.default_clusters
            if n_clusters == "auto"
            else positive("n_clusters", n_clusters)
        )
    n = resolve_context_size(context_size, rows, window) if strategy.drops_rows else rows
    return PlanSettings(
        strategy,
        clusters,
        n,
        kernel,
        rff_dim,
        herd_batch,
        sigma,
        resolve_early_stopping(early_stopping),
        non_negative("min_per_class", min_per_class),
        device,
        seed,
        n_jobs,
        verbose,
        fixed_clusters=n_clusters != "auto" or strategy.default_clusters == 1,
        fixed_rows=context_size != "auto" or not strategy.drops_rows,
    )


def make_plan(
    pool: np.ndarray,
    queries: np.ndarray,
    settings: PlanSettings,
    pool_fingerprint: str,
    y: np.ndarray | None = None,
    evidence: bool = True,
) -> Plan:
    """Stages 1 and 2 for queries and a pool in the selection space; ``y`` holds class codes, if any.

    ``evidence=False`` leaves out what is measured only to be looked at, for plans that nobody will see.
    """
    by_value = value_order(queries)
    with planning(len(pool), queries[by_value], settings) as problem:
        problem = replace(problem, pool=pool)
        selection = settings.strategy.select(problem)
        plan = finish_plan(problem, selection, by_value, settings, pool_fingerprint, y, evidence)
    return plan.attach(pool, queries)


@contextmanager
def planning(rows: int, queries: np.ndarray, settings: PlanSettings) -> Iterator[Problem]:
    """The problem, all but the pool itself, of which only the number of rows need be known.

    k-means starts from rows by their position. With queries in the order of their values, the order in which they came
    changes nothing.
    """
    clusters = min(settings.n_clusters, len(queries))
    load = Load(rows, len(queries), clusters, settings.n, queries.shape[1])
    kernel = resolve_kernel(
        settings.kernel,
        settings.rff_dim,
        settings.herd_batch,
        settings.bandwidth,
        load,
        settings.device,
        settings.affordable,
    )
    watched = settings.verbose and isinstance(settings.strategy, MMD)
    with (
        block_threads(settings.n_jobs, settings.device) as map_blocks,
        progress_bar(settings.n, "herding", watched) as advance,
    ):
        yield Problem(
            np.empty((0, queries.shape[1])),
            queries,
            settings.n,
            clusters,
            kernel,
            settings.early_stopping,
            settings.seed,
            settings.device,
            map_blocks,
            advance,
        )


def finish_plan(
    problem: Problem,
    selection: Selection,
    by_value: np.ndarray,
    settings: PlanSettings,
    pool_fingerprint: str,
    y: np.ndarray | None,
    evidence: bool,
    reference: np.ndarray | None = None,
) -> Plan:
    """Rare classes and evidence, and the queries back in the order in which they came.

    ``reference``: rows that stand for the pool where ``problem.pool`` does not, because it holds candidates only.
    """
    if selection.kernel is not None:
        problem = replace(problem, kernel=replace(problem.kernel, ways=(selection.kernel,)))
    swapped = np.zeros(len(selection.contexts), dtype=np.int64)
    if y is not None and settings.strategy.drops_rows and settings.min_per_class:
        swapped = _guard(problem, selection, y, settings.min_per_class)
    if selection.mmd2 is None:
        selection.mmd2 = measure_traces(problem, selection) if evidence else unmeasured(selection)
    distance, outside = np.full(len(by_value), np.nan), np.zeros(len(by_value), dtype=bool)
    if evidence:
        distance, outside = measure_support(problem, selection, reference)
    came = np.argsort(by_value)  # back to the order in which the queries came
    used, first, labels = np.unique(selection.labels[came], return_index=True, return_inverse=True)
    order = used[
        np.argsort(first)
    ]  # clusters are numbered as their queries appear; those without any are dropped
    return Plan(
        labels=np.argsort(np.argsort(first))[labels],
        contexts=[np.asarray(selection.contexts[k], dtype=np.int64) for k in order],
        mmd2=[selection.mmd2[k] for k in order],
        stop_reasons=[selection.stop_reasons[k] for k in order],
        centroids=selection.centroids[order],
        query_distance=distance[came],
        outside=outside[came],
        swapped=swapped[order],
        pool_fingerprint=pool_fingerprint,
        pool_size=len(problem.pool),
        settings=_record(problem, settings, selection),
    )


def resolve_seed(random_state: Any) -> int:
    """An int is the seed itself; None and generators give a fresh one."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise InvalidInput(f"random_state must not be negative, got {random_state}.")
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _columns(rows: Any) -> list[Any]:
    return list(rows.columns) if hasattr(rows, "columns") else [rows.shape[1]]


def _guard(problem: Problem, selection: Selection, y: np.ndarray, minimum: int) -> np.ndarray:
    """Apply ``min_per_class`` to every context; the traces of those that change are drawn anew."""
    swapped = np.zeros(len(selection.contexts), dtype=np.int64)
    for k, context in enumerate(selection.contexts):
        guarded = keep_rare_classes(context, selection.centroids[k], problem.pool, y, minimum)
        swapped[k] = int((~np.isin(guarded, context)).sum())
        if swapped[k]:
            selection.contexts[k] = guarded
            if selection.mmd2 is not None:
                selection.mmd2[k] = trace(problem, guarded, problem.queries[selection.labels == k])
    return swapped


def _record(problem: Problem, settings: PlanSettings, selection: Selection) -> dict[str, Any]:
    """What was decided, for the plan; what does not apply to the strategy is left out."""
    record: dict[str, Any] = {
        "strategy": settings.strategy.name,
        "strategy_params": settings.strategy.get_params(),
        "bandwidth": problem.kernel.bandwidth,
        "context_size": problem.n,
        "n_queries": len(problem.queries),
        "min_per_class": settings.min_per_class,
        "seed": problem.seed,
        "device": problem.device,
        **settings.facts,
    }
    if isinstance(settings.strategy, MMD):
        record["kernel"] = problem.kernel.name
        record["herd_batch"] = problem.kernel.batch
        record.update(selection.facts)
        if problem.kernel.name == "rff":
            record["rff_dim"] = problem.kernel.rff_dim
        record["early_stopping"] = (
            asdict(problem.early_stopping) if problem.early_stopping else False
        )
    return record
