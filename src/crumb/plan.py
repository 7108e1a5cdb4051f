"""The plan: which queries share which context, and the evidence for it. Plain arrays, no model.

``make_plan`` is stages 1 and 2, from a pool and queries to a ``Plan``. ``select_contexts`` does the
same for two tables.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from crumb.errors import InvalidFile, InvalidInput, PlanMismatch
from crumb.evidence import measure_support, measure_traces
from crumb.files import read_archive, reading, write_archive
from crumb.learning import Whole, open_table
from crumb.machine import block_threads, progress_bar
from crumb.options import Options
from crumb.pool import Pool, table_pool
from crumb.selection import MMD, Problem, Selection
from crumb.selection.base import UNMEASURED, nearest_centroid, value_order
from crumb.table.encoder import Rows, to_rows
from crumb.table.space import EMBEDDING, check_features

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "crumb-plan"
VERSION = 1
ARRAYS = ("labels", "centroids", "query_distance", "outside", "swapped")  # in a file, as they are
ABOUT = ("stop_reasons", "pool_fingerprint", "pool_size", "settings")


@dataclass(eq=False, repr=False)
class Plan:
    """Stages 1 and 2, finished: everything that stage 3 needs, and why it came out so.

    ``CrumbClassifier.plan``, ``CrumbRegressor.plan`` and ``select_contexts`` make plans.

    Parameters
    ----------
    labels : array (T,)
        The cluster of each query. Queries far outside of the pool are routed: they have no part in
        the choice of clusters and contexts, unless they are the majority.
    contexts : list of K arrays
        Row indices into the pool, most wanted first.
    mmd2 : list of K arrays
        MMD² between the queries of a cluster and the first 1, 2, … rows of its context. Estimated
        from the random features with ``kernel="rff"``, exact otherwise; a single NaN where it was
        too costly to measure.
    stop_reasons : list of K strings
        Why each context has the size that it has.
    centroids : array (K, d)
        Where rows are routed that the plan has not seen.
    query_distance : array (T,)
        Distance of each query to the nearest row of its context, in the selection space.
    outside : array (T,) of bool
        Queries farther from the pool than 99 % of the pool's own rows are from each other.
    settings : dict
        What was chosen: strategy, kernel, bandwidth, budget, seed, …
    swapped : array (K,)
        Rows that ``min_per_class`` swapped into each context.
    pool_fingerprint, pool_size : str, int
        Which pool the indices point into.
    pool_points, query_points : array or None
        Points of the selection space, for drawing; they are not saved.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> plan = CrumbClassifier(context_size=40, n_clusters=2).fit(X, y).plan(X[:60])
    >>> plan.summary()[["queries", "context"]].to_numpy().tolist()
    [[50, 40], [10, 40]]
    >>> len(plan.contexts[0]), plan.settings["strategy"]
    (40, 'mmd')
    """

    labels: np.ndarray
    contexts: list[np.ndarray]
    mmd2: list[np.ndarray]
    stop_reasons: list[str]
    centroids: np.ndarray
    query_distance: np.ndarray
    outside: np.ndarray
    swapped: np.ndarray
    pool_fingerprint: str
    pool_size: int
    settings: dict[str, Any] = field(default_factory=dict)
    pool_points: np.ndarray | None = None
    query_points: np.ndarray | None = None

    def __post_init__(self) -> None:
        per_cluster = self.contexts, self.mmd2, self.stop_reasons, self.centroids, self.swapped
        per_query = self.labels, self.query_distance, self.outside
        whole = (
            len({len(part) for part in per_cluster}) == len({len(part) for part in per_query}) == 1
            and _indices(self.labels, self.n_clusters)
            and all(_indices(context, self.pool_size) for context in self.contexts)
            and self.centroids.ndim == 2
            and np.isfinite(self.centroids).all()
            and all(len(t) and (np.isfinite(t).all() or len(t) == 1) for t in self.mmd2)
            and np.isfinite(self.query_distance).mean() in (0, 1)  # all are measured, or none
        )
        if not whole:
            raise PlanMismatch("This plan contradicts itself: its parts do not fit together.")

    def __repr__(self) -> str:
        count, sizes = self.n_clusters, self.sizes
        rows = f"{sizes.max():,}" if len(set(sizes)) == 1 else f"{sizes.min():,} to {sizes.max():,}"
        contexts = f"{count:,} contexts of {rows}" if count > 1 else f"1 context of {rows}"
        asked, named = f"{len(self.labels):,} queries", self.settings.get("strategy", "unknown")
        return f"<Plan: {asked}, {contexts} of {self.pool_size:,} rows, strategy {named!r}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from crumb.markup import facts, table

        names = ("strategy", "kernel", "bandwidth", "seed")
        about = {name: self.settings.get(name) for name in names}
        outside = int(self.outside.sum())
        return facts(repr(self)[1:-1], about | {"queries outside": outside}) + table(self.summary())

    def __getstate__(self) -> dict[str, Any]:
        """The points kept for drawing are the pool: a pickled plan stays small without them."""
        return {**vars(self), "pool_points": None, "query_points": None}

    @property
    def n_clusters(self) -> int:
        """K."""
        return len(self.contexts)

    @property
    def sizes(self) -> np.ndarray:
        """Rows in each context."""
        return np.array([len(context) for context in self.contexts])

    @property
    def contexts_per_query(self) -> int:
        """How many contexts answer a query, at most.

        One in plans of version 0.1, and where every context is the whole pool.
        """
        if (self.sizes == self.pool_size).all():
            return 1
        return min(self.settings.get("contexts_per_query", 1), self.n_clusters)

    @property
    def final_mmd2(self) -> np.ndarray:
        """MMD² of each whole context."""
        return np.array([trace[-1] for trace in self.mmd2])

    def route(self, points: np.ndarray) -> np.ndarray:
        """The cluster of rows, whether or not the plan was made for them.

        Parameters
        ----------
        points : array (T, d)
            Rows as points of the selection space.

        Returns
        -------
        labels : array (T,)
        """
        return nearest_centroid(points, self.centroids)

    def check_pool(self, fingerprint: str) -> None:
        """Raise ``PlanMismatch`` where the plan is for another pool.

        Parameters
        ----------
        fingerprint : str
        """
        if fingerprint != self.pool_fingerprint:
            raise PlanMismatch("This plan was made for another pool: make a new one with plan(X).")

    def summary(self) -> pd.DataFrame:
        """The clusters at a glance.

        Returns
        -------
        summary : DataFrame of K rows
            ``queries`` in the cluster; rows of its ``context``; ``mmd2`` between the two, 0 is
            best; why the context ``stopped`` growing; rows ``swapped`` in for ``min_per_class``;
            ``median_distance`` from a query to the nearest row of the context; queries
            ``outside``, farther from the pool than 99 % of its own rows are from each other.
        """
        members = [self.labels == cluster for cluster in range(self.n_clusters)]
        distances = [self.query_distance[mine] if mine.any() else UNMEASURED for mine in members]
        return pd.DataFrame(
            {
                "queries": [int(mine.sum()) for mine in members],
                "context": self.sizes,
                "mmd2": self.final_mmd2,
                "stopped": self.stop_reasons,
                "swapped": self.swapped,
                "median_distance": [np.median(distance) for distance in distances],
                "outside": [int(self.outside[mine].sum()) for mine in members],
            },
            index=pd.RangeIndex(self.n_clusters, name="cluster"),
        )

    def plot(
        self,
        pool: np.ndarray | None = None,
        queries: np.ndarray | None = None,
        cluster: int | None = None,
        path: str | Path | None = None,
    ) -> Figure:
        """Draw pool, queries and the context of one cluster in two dimensions, and the MMD² traces.

        MMD² may rise after its minimum, which the picture then marks: a row is taken only once, so
        where the pool has few rows like the queries, later rows are less and less like them. They
        may still teach the network; ``early_stopping`` leaves them out.

        Parameters
        ----------
        pool, queries : array or None, default=None
            Points of the selection space. The plans of estimators bring them; without them only
            the traces are drawn.
        cluster : int or None, default=None
            None: the cluster with the most queries.
        path : str, path or None, default=None
            Where to save the picture as well.

        Returns
        -------
        figure : matplotlib Figure
        """
        from crumb.picture import draw_plan

        pool = self.pool_points if pool is None else pool
        queries = self.query_points if queries is None else queries
        return draw_plan(self, pool, queries, cluster, path)

    def save(self, path: str | Path) -> None:
        """Write the plan to one file (arrays and JSON, no pickle), or nothing at all.

        Parameters
        ----------
        path : str or path
        """
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays |= {"sizes": self.sizes, "contexts": np.concatenate(self.contexts)}
        arrays |= {"trace_sizes": np.array([len(trace) for trace in self.mmd2])}
        arrays |= {"mmd2": np.concatenate(self.mmd2)}
        about = {name: getattr(self, name) for name in ABOUT}
        write_archive(path, FORMAT, VERSION, about, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that ``save`` wrote.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        plan : Plan
        """
        about, arrays, _ = read_archive(path, FORMAT, VERSION)
        with reading(path, FORMAT):
            plain: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
            plain |= {name: about[name] for name in ABOUT}
            plain["contexts"] = _split(arrays["contexts"], arrays["sizes"])
            plan = cls(**plain, mmd2=_split(arrays["mmd2"], arrays["trace_sizes"]))
            if any(len(np.unique(rows)) < len(rows) for rows in plan.contexts):
                raise InvalidFile(f"{path} is damaged: a context has a row twice.")
        return plan


def _indices(values: np.ndarray, limit: int) -> bool:
    return (
        values.dtype.kind in "iu" and len(values) > 0 and values.min() >= 0 and values.max() < limit
    )


def _split(joined: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    return np.split(joined, np.cumsum(sizes)[:-1])


def make_plan(pool: Pool, queries: np.ndarray, options: Options, evidence: bool = True) -> Plan:
    """Stages 1 and 2 for queries that are points of the selection space.

    ``evidence=False`` leaves out what is measured only to be looked at.
    """
    # k-means starts from rows by their position. With queries ordered by their values, the order
    # in which they came changes nothing.
    by_value = value_order(queries)
    shape = pool.size, pool.sample.rows.shape[1]
    options = options.for_queries(shape, len(queries))
    near, finder = _near(pool, queries, options)[by_value], pool.finder(options)
    options = options if finder.whole else _among_candidates(options)
    watched = options.verbose and isinstance(options.strategy, MMD)
    with (
        block_threads(options.n_jobs, options.device) as map_blocks,
        progress_bar(0, "herding", watched) as advance,
    ):
        whole = Problem(finder, queries[by_value], options, map_blocks, advance)
        problem = replace(whole, queries=whole.queries[near])
        selection = options.strategy.select(problem)
        minimum = options.min_per_class if options.strategy.drops_rows else 0
        swapped = selection.keep_rare_classes(finder.held, minimum)
        if evidence:
            measure_traces(problem, selection, swapped)
        if not near.all():
            labels, selection.labels = selection.labels, whole.route(selection.centroids)
            selection.labels[near] = labels
        support = _support(whole, selection, evidence)
        plan = _finish(pool, whole, selection, swapped, support, np.argsort(by_value))
    if finder.whole:
        plan.pool_points, plan.query_points = finder.held.points, queries
    return plan


def route_plan(
    plan: Plan, pool: Pool, queries: np.ndarray, options: Options, evidence: bool = True
) -> Plan:
    """A plan as it answers other queries than its own. Clusters that get none of them stay.

    MMD² is still that of the queries which the plan was made for.
    """
    finder = pool.finder(options)
    selection = Selection(plan.route(queries), plan.centroids, plan.contexts)
    if evidence:  # a pool in files reads the rows of the contexts
        finder.find(plan.centroids, plan.contexts)
    distance, outside = _support(Problem(finder, queries, options), selection, evidence)
    routed = replace(plan, labels=selection.labels, query_distance=distance, outside=outside)
    if finder.whole:
        routed.pool_points, routed.query_points = finder.held.points, queries
    return routed


def _near(pool: Pool, queries: np.ndarray, options: Options) -> np.ndarray:
    """Queries that choose clusters and contexts: (T,).

    One that is far outside of the pool has no rows of its kind there. It would only draw a
    centroid, and perhaps a whole cluster, away from the others.
    """
    far = pool.space.reach.beyond(queries)
    if not options.strategy.shares or 2 * far.sum() >= len(far):
        far[:] = False
    return ~far


def _among_candidates(options: Options) -> Options:
    """For a pool in files: candidates are herded on the CPU, where reading takes the time."""
    kernel = options.asked["kernel"]
    kernel = "candidates" if kernel == "auto" else kernel
    asked = {**options.asked, "kernel": kernel, "herd_batch": 1}
    return replace(options, device="cpu", asked=asked)


def _finish(
    pool: Pool,
    problem: Problem,
    selection: Selection,
    swapped: np.ndarray,
    support: tuple[np.ndarray, np.ndarray],
    came: np.ndarray,
) -> Plan:
    """The queries back in the order in which they ``came``."""
    mmd2 = selection.mmd2 or [UNMEASURED] * len(swapped)
    used, first, labels = np.unique(selection.labels[came], return_index=True, return_inverse=True)
    order = used[np.argsort(first)]  # numbered as their queries appear; empty clusters are dropped
    return Plan(
        labels=np.argsort(np.argsort(first))[labels],
        contexts=[np.asarray(selection.contexts[k], dtype=np.int64) for k in order],
        mmd2=[mmd2[k] for k in order],
        stop_reasons=[selection.stop_reasons[k] for k in order],
        centroids=selection.centroids[order],
        query_distance=support[0][came],
        outside=support[1][came],
        swapped=swapped[order],
        pool_fingerprint=pool.fingerprint,
        pool_size=pool.size,
        settings=_record(problem, selection),
    )


def _support(
    problem: Problem, selection: Selection, evidence: bool
) -> tuple[np.ndarray, np.ndarray]:
    """How far the queries are from their contexts, and which are outside of the pool."""
    if not evidence:
        queries = len(problem.queries)
        return np.full(queries, np.nan), np.zeros(queries, dtype=bool)
    return measure_support(problem, selection)


def _record(problem: Problem, selection: Selection) -> dict[str, Any]:
    """What was decided, for the plan; what does not apply to the strategy is left out."""
    options = problem.options
    record: dict[str, Any] = {
        "strategy": options.strategy.name,
        "strategy_params": options.strategy.get_params(),
        "bandwidth": options.bandwidth,
        "context_size": problem.n,
        "contexts_per_query": options.contexts_per_query,
        "n_queries": len(problem.queries),
        "min_per_class": options.min_per_class,
        "seed": problem.seed,
        "device": options.device,
        **options.facts,
    }
    if selection.kernel is not None:
        stopping, search = options.early_stopping, problem.search
        record |= {"kernel": selection.kernel, "herd_batch": search.batch, **selection.facts}
        if selection.kernel == "rff":
            record["rff_dim"] = search.rff_dim
        record["early_stopping"] = asdict(stopping) if stopping else False
    return record


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

    Parameters
    ----------
    X_pool : table, path or pyarrow dataset
        The training rows, as for ``CrumbClassifier.fit``.
    X_queries : table of T rows
    y_pool : array (N,), str or None, default=None
        The class of each pool row, for ``min_per_class``; for files the name of its column.
    features : "auto", array, transformer or None, default=None
        As for ``CrumbClassifier``; ``"auto"`` needs ``y_pool``.
    categorical_features : list or None, default=None
    where, columns, engine
        As for ``CrumbClassifier`` and its ``fit``.
    **options
        Those of ``CrumbClassifier`` that choose contexts, but for ``budget``: ``n_clusters``,
        ``context_size``, ``strategy``, ``kernel``, …

    Returns
    -------
    plan : Plan

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
    table, workers = open_table(X_pool, y_pool, where, columns, engine, asked.n_jobs)
    if isinstance(table, Whole):
        pool: Pool = table_pool(table.X, table.y, **about)
        pool.facts |= table.facts
    else:
        from crumb.scale.pool import FilePool

        classify = None if y_pool is None else True
        pool = FilePool(table, workers, asked, classify=classify, **about)
    return pool.plan(_points(pool, to_rows(X_queries)), asked.resolve(pool))


def _without_model(features: Any, options: dict[str, Any]) -> Options:
    """The options, if no model is needed for them."""
    asked = Options.of(**options)
    if asked.budget is not None:
        raise InvalidInput("A budget needs a model: use the plan method of a fitted estimator.")
    check_features(features)
    if isinstance(features, str) and features == EMBEDDING:
        raise InvalidInput("features='embedding' needs a model: use the plan of an estimator.")
    return asked


def _points(pool: Pool, queries: Rows) -> np.ndarray:
    names = list(queries.columns) if isinstance(queries, pd.DataFrame) else None
    if pool.columns != names or len(pool.encoder.columns_) != queries.shape[1]:
        raise InvalidInput("X_pool and X_queries must have the same columns in the same order.")
    return pool.encode(queries)[1]
