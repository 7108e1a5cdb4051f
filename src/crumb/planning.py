"""Stages 1 and 2: from a pool and queries to a ``Plan``. ``select_contexts`` needs no model."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput
from crumb.options import Options
from crumb.parallel import block_threads
from crumb.plan import Plan
from crumb.pool import Pool, TablePool
from crumb.progress import progress_bar
from crumb.selection import MMD, Problem, Selection
from crumb.selection.clustering import value_order
from crumb.selection.rare_classes import keep_rare_classes
from crumb.table.encoder import Rows, TableEncoder, in_files, to_rows
from crumb.table.space import check_features

UNMEASURED = np.array([np.nan])


def select_contexts(
    X_pool: Any,
    X_queries: Any,
    *,
    y_pool: Any = None,
    features: Any = None,
    categorical_features: Any = None,
    where: Any = None,
    columns: Any = None,
    engine: Any = "local",
    **options: Any,
) -> Plan:
    """Cluster the queries and choose a context for each cluster, without any PFN.

    The parameters are those of ``CrumbClassifier`` and of its ``fit``; ``options`` are its options
    but for ``budget``. ``min_per_class`` works only where ``y_pool``, the class of each pool row,
    is given. For a pool in Parquet files ``y_pool`` is the name of that column.

    Examples
    --------
    >>> import numpy as np
    >>> from crumb import select_contexts
    >>> rng = np.random.default_rng(0)
    >>> pool, queries = rng.normal(size=(500, 4)), rng.normal(size=(30, 4))
    >>> select_contexts(pool, queries, n_clusters=3, context_size=50).sizes.tolist()
    [50, 50, 50]
    """
    asked = _without_model(features, options)
    about = {"features": features, "categorical_features": categorical_features}
    if in_files(X_pool):
        from crumb.scale.engine import resolve_engine
        from crumb.scale.pool import open_pool

        workers, classify = resolve_engine(engine, asked.n_jobs), None if y_pool is None else True
        files = X_pool, y_pool, where, columns
        pool: Pool = open_pool(*files, workers, asked, classify=classify, **about)
    else:
        check_in_memory(where, columns)
        pool = table_pool(X_pool, y_pool, **about)
    return pool.plan(_points(pool, to_rows(X_queries)), asked.resolve(pool))


def _without_model(features: Any, options: dict[str, Any]) -> Options:
    """The options, if no model is needed for them."""
    asked = Options.of(**options)
    if asked.budget is not None:
        raise InvalidInput("A budget needs a model: use the plan method of a fitted estimator.")
    if isinstance(features, str):
        check_features(features)
        raise InvalidInput(
            "features='embedding' needs a model: use the plan method of a fitted estimator."
        )
    return asked


def _points(pool: Pool, queries: Rows) -> np.ndarray:
    names = list(queries.columns) if isinstance(queries, pd.DataFrame) else None
    if pool.columns != names or len(pool.encoder.columns_) != queries.shape[1]:
        raise InvalidInput("X_pool and X_queries must have the same columns in the same order.")
    return pool.encode(queries)[1]


def check_in_memory(where: Any, columns: Any) -> None:
    if where is not None or columns is not None:
        raise InvalidInput(
            "where= and columns= are for tables in files: filter a table in memory yourself."
        )


def table_pool(X: Any, y: Any, features: Any, categorical_features: Any) -> TablePool:
    encoder = TableEncoder(categorical_features)
    rows = encoder.fit_transform(to_rows(X))
    if y is None:
        return TablePool.learn(rows, encoder, np.zeros(len(rows)), None, features)
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(codes) != len(rows):
        raise InvalidInput(f"y_pool has {len(codes)} values for {len(rows)} pool rows.")
    return TablePool.learn(rows, encoder, codes, len(classes), features)


def make_plan(pool: Pool, queries: np.ndarray, options: Options, evidence: bool = True) -> Plan:
    """Stages 1 and 2 for queries that are points of the selection space.

    ``evidence=False`` leaves out what is measured only to be looked at.
    """
    # k-means starts from rows by their position. With queries ordered by their values, the order
    # in which they came changes nothing.
    by_value = value_order(queries)
    finder = pool.finder(options)
    options = options if finder.whole else _among_candidates(options)
    watched = options.verbose and isinstance(options.strategy, MMD)
    with (
        block_threads(options.n_jobs, options.device) as map_blocks,
        progress_bar(options.context_size, "herding", watched) as advance,
    ):
        problem = Problem(finder, queries[by_value], options, map_blocks, advance)
        selection = options.strategy.select(problem)
        plan = _finish(problem, selection, pool, evidence, np.argsort(by_value))
    return plan.attach(finder.held.points, queries) if finder.whole else plan


def _among_candidates(options: Options) -> Options:
    """For a pool in files: candidates are herded on the CPU, where reading takes the time."""
    kernel = options.asked["kernel"]
    kernel = "candidates" if kernel == "auto" else kernel
    asked = {**options.asked, "kernel": kernel, "herd_batch": 1}
    return replace(options, device="cpu", asked=asked)


def _finish(
    problem: Problem, selection: Selection, pool: Pool, evidence: bool, came: np.ndarray
) -> Plan:
    """Rare classes, evidence, and the queries back in the order in which they ``came``."""
    swapped = _keep_rare_classes(problem, selection)
    mmd2 = selection.mmd2 or [UNMEASURED] * len(swapped)
    mmd2 = [UNMEASURED if new else trace for trace, new in zip(mmd2, swapped, strict=True)]
    distance, outside = np.full(len(came), np.nan), np.zeros(len(came), dtype=bool)
    if evidence:
        from crumb.evidence import measure_support, measure_traces

        measure_traces(problem, selection, mmd2, swapped)
        distance, outside = measure_support(problem, selection)
    used, first, labels = np.unique(selection.labels[came], return_index=True, return_inverse=True)
    order = used[np.argsort(first)]  # numbered as their queries appear; empty clusters are dropped
    return Plan(
        labels=np.argsort(np.argsort(first))[labels],
        contexts=[np.asarray(selection.contexts[k], dtype=np.int64) for k in order],
        mmd2=[mmd2[k] for k in order],
        stop_reasons=[selection.stop_reasons[k] for k in order],
        centroids=selection.centroids[order],
        query_distance=distance[came],
        outside=outside[came],
        swapped=swapped[order],
        pool_fingerprint=pool.fingerprint,
        pool_size=pool.size,
        settings=_record(problem, selection),
    )


def _keep_rare_classes(problem: Problem, selection: Selection) -> np.ndarray:
    """``min_per_class`` for every context: how many rows of each are new."""
    swapped, held = np.zeros(len(selection.contexts), dtype=np.int64), problem.finder.held
    minimum = problem.options.min_per_class
    if held.codes is None or not minimum or not problem.options.strategy.drops_rows:
        return swapped
    for k, context in enumerate(selection.contexts):
        before = held.places(context)
        after = keep_rare_classes(before, selection.centroids[k], held.points, held.codes, minimum)
        swapped[k] = int((~np.isin(after, before)).sum())
        selection.contexts[k] = held.numbers(after)
    return swapped


def _record(problem: Problem, selection: Selection) -> dict[str, Any]:
    """What was decided, for the plan; what does not apply to the strategy is left out."""
    options = problem.options
    record: dict[str, Any] = {
        "strategy": options.strategy.name,
        "strategy_params": options.strategy.get_params(),
        "bandwidth": options.bandwidth,
        "context_size": problem.n,
        "n_queries": len(problem.queries),
        "min_per_class": options.min_per_class,
        "seed": problem.seed,
        "device": options.device,
        **options.facts,
    }
    if selection.kernel is not None:
        stopping = options.early_stopping
        record["kernel"] = selection.kernel
        record["herd_batch"] = problem.search.batch
        record.update(selection.facts)
        if selection.kernel == "rff":
            record["rff_dim"] = problem.search.rff_dim
        record["early_stopping"] = asdict(stopping) if stopping else False
    return record
