"""``CrumbClassifier`` and ``CrumbRegressor``: validate, hold the pool, call the three stages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from crumb.budget import PassCost, choose, measure, parse_budget
from crumb.devices import resolve_device
from crumb.embedding import RowEmbedding
from crumb.errors import InvalidInput
from crumb.herding import EarlyStopping
from crumb.infer import Pool, infer
from crumb.pfn import Backend, BackendSettings, Output, resolve_backend
from crumb.plan import Plan
from crumb.planning import PlanSettings, make_plan, plan_settings, resolve_seed
from crumb.scale.engine import Engine, resolve_engine
from crumb.selection import Strategy, resolve_strategy
from crumb.settings import cache_bytes, check_bandwidth, positive, resolve_kernel
from crumb.space import SelectionSpace
from crumb.table import Rows, TableEncoder, fingerprint, in_files, to_rows

if TYPE_CHECKING:
    from crumb.scale.pool import DiskPool

DEFAULT_QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass
class _Known:
    """What fitting has learnt of a table."""

    encoder: TableEncoder
    space: Any
    points: np.ndarray  # the whole pool, or the sample behind the bandwidth of one that stays on disk
    pool: Pool  # likewise
    backend: Backend
    fingerprint: str
    shape: tuple[int, ...]  # rows and columns of the whole pool in the selection space
    disk: DiskPool | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class _Crumb(BaseEstimator):
    """What classifier and regressor share."""

    _task: str

    def __init__(
        self,
        *,
        model: Any = "embedded",
        strategy: str | Strategy = "mmd",
        n_clusters: str | int | None = "auto",
        context_size: str | float = "auto",
        budget: str | float | None = None,
        kernel: str = "auto",
        rff_dim: int = 256,
        herd_batch: str | int = "auto",
        bandwidth: str | float = "median",
        early_stopping: bool | EarlyStopping = False,
        features: Any = None,
        categorical_features: Sequence[Any] | None = None,
        min_per_class: int = 1,
        n_estimators: int = 1,
        model_options: dict[str, Any] | None = None,
        cache_size: float = 500,
        device: str = "auto",
        random_state: Any = 0,
        n_jobs: int | None = None,
        engine: Any = "local",
        verbose: int = 0,
    ):
        self.model = model
        self.strategy = strategy
        self.n_clusters = n_clusters
        self.context_size = context_size
        self.budget = budget
        self.kernel = kernel
        self.rff_dim = rff_dim
        self.herd_batch = herd_batch
        self.bandwidth = bandwidth
        self.early_stopping = early_stopping
        self.features = features
        self.categorical_features = categorical_features
        self.min_per_class = min_per_class
        self.n_estimators = n_estimators
        self.model_options = model_options
        self.cache_size = cache_size
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.verbose = verbose

    def _fit(self, X: Any, y: Any, where: Any = None, columns: Any = None) -> None:
        if y is None:
            raise InvalidInput(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        resolve_strategy(self.strategy)  # what is misspelt shows before the table is encoded
        resolve_kernel(self.kernel, self.rff_dim, self.herd_batch, bandwidth=1.0)
        check_bandwidth(self.bandwidth)
        budget = parse_budget(self.budget)
        seed, engine = resolve_seed(self.random_state), resolve_engine(self.engine, self.n_jobs)
        if in_files(X):
            known = self._know_files(X, y, where, columns, engine, seed)
        elif where is not None or columns is not None:
            raise InvalidInput("where= and columns= are for tables in files: filter a table in memory yourself.")
        else:
            known = self._know_table(X, y, seed)
        backend = known.backend
        settings = plan_settings(
            known.points,
            strategy=self.strategy,
            n_clusters=self.n_clusters,
            context_size=self.context_size,
            kernel=self.kernel,
            rff_dim=self.rff_dim,
            herd_batch=self.herd_batch,
            bandwidth=self.bandwidth,
            early_stopping=self.early_stopping,
            min_per_class=self.min_per_class,
            device=self.device,
            random_state=seed,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            window=backend.window,
            rows=known.shape[0],
        )
        settings = replace(settings, facts=known.facts)
        if budget is not None and settings.fixed_clusters and settings.fixed_rows:
            raise InvalidInput("A budget chooses n_clusters and context_size: leave at least one of them 'auto'.")
        # All at once and last: a fit that fails leaves the estimator as it was.
        self._encoder, self._space, self._points, self._pool = known.encoder, known.space, known.points, known.pool
        self._shape, self._disk = known.shape, known.disk
        self._seed, self._backend, self._settings = seed, engine.backend(backend), settings
        self._budget = budget
        self._pass_cost: PassCost | None = None  # measured when the first queries come
        self._fingerprint = known.fingerprint
        self.bandwidth_, self.context_size_ = settings.bandwidth, settings.n

    def _know_table(self, X: Any, y: Any, seed: int) -> _Known:
        rows = to_rows(X, min_rows=2)
        validate_data(self, rows, skip_check_array=True)  # sets n_features_in_ and feature_names_in_
        labels = _labels(y)
        check_consistent_length(rows, labels)
        encoder, space = TableEncoder(self.categorical_features), SelectionSpace(self.features)
        rows = encoder.fit_transform(rows)
        pool = self._label_pool(rows, labels)
        backend = self._resolve_backend(encoder, pool, seed)
        embed = RowEmbedding(backend, pool, seed, self.verbose) if space.embedded else None
        points = space.fit_transform(rows, encoder, pool.y, embed)
        about = (self.features, *embed.identity()) if embed else (self.features,)
        mark = fingerprint(rows, encoder.kinds_, *about)
        return _Known(encoder, space, points, pool, backend, mark, points.shape)

    def _know_files(self, X: Any, y: Any, where: Any, columns: Any, engine: Engine, seed: int) -> _Known:
        """A table in files: read whole where it is small, learnt in one pass where it is not."""
        from crumb.scale.pool import fits_in_memory, learn_pool, read_whole
        from crumb.scale.source import count_rows, open_source
        from crumb.scale.strategies import check_strategy

        if not isinstance(y, str):
            raise InvalidInput("For a table in files y is the name of the target's column.")
        source = count_rows(open_source(X, y, where, columns), engine)
        if fits_in_memory(source):
            known = self._know_table(*read_whole(source), seed)
            known.facts["pool"] = {"rows": source.rows, "on_disk": False, "covered": True}
            return known
        check_strategy(resolve_strategy(self.strategy), self.kernel)
        disk, statistics = learn_pool(
            source,
            engine,
            seed=seed,
            classify=self._task == "classification",
            features=self.features,
            categorical_features=self.categorical_features,
            verbose=self.verbose,
        )
        statistics.check_labels()
        validate_data(self, disk.sample.rows, skip_check_array=True)
        labels = statistics.distinct_labels() if self._task == "classification" else disk.sample.y
        self._label_pool(disk.sample.rows, labels)  # checks them, and sets classes_
        return _Known(
            disk.encoder,
            disk.reader.space,
            disk.bandwidth_points,
            disk.sample,
            self._resolve_backend(disk.encoder, disk.sample, seed),
            disk.fingerprint,
            disk.shape,
            disk,
        )

    def _label_pool(self, rows: Rows, labels: np.ndarray) -> Pool:
        raise NotImplementedError

    def _resolve_backend(self, encoder: TableEncoder, pool: Pool, seed: int) -> Backend:
        options = self.model_options if self.model_options is not None else {}
        if not isinstance(options, dict):
            raise InvalidInput(f"model_options must be a dictionary, got {options!r}.")
        backend = resolve_backend(
            self.model,
            self._task,
            BackendSettings(
                n_estimators=positive("n_estimators", self.n_estimators),
                options=options,
                device=resolve_device(self.device),
                seed=seed,
                n_jobs=self.n_jobs,
                categorical_indices=encoder.categorical_indices,
                cache_bytes=cache_bytes(self.cache_size),
            ),
        )
        n_classes = pool.n_classes
        if n_classes and backend.max_classes and n_classes > backend.max_classes:
            raise InvalidInput(
                f"The table has {n_classes} classes, but the model {backend.name!r} takes at most "
                f"{backend.max_classes}; the embedded model and TabICL take any number."
            )
        return backend

    def _query(self, X: Any) -> tuple[Rows, np.ndarray]:
        """Queries as the PFN sees them, and as points of the selection space."""
        check_is_fitted(self)
        rows = to_rows(X)
        if isinstance(rows, pd.DataFrame) and not isinstance(self._pool.rows, pd.DataFrame):
            rows = to_rows(rows.to_numpy(dtype=object))
        elif isinstance(self._pool.rows, pd.DataFrame) and not hasattr(X, "columns"):  # no names: by position
            validate_data(self, rows, reset=False, skip_check_array=True)
            rows = pd.DataFrame(rows).set_axis(self._pool.rows.columns, axis=1)
        validate_data(self, rows, reset=False, skip_check_array=True)
        rows = self._encoder.transform(rows)
        return rows, self._space.transform(rows)

    def plan(self, X: Any) -> Plan:
        """Cluster the queries ``X`` and choose a context for each cluster, without running the PFN."""
        _, points = self._query(X)
        return self._plan(points)

    def _plan(self, points: np.ndarray, evidence: bool = True) -> Plan:
        if self._disk is not None:
            return self._disk.plan(points, self._affordable(len(points)), evidence)
        codes = self._pool.y if self._pool.n_classes is not None else None
        return make_plan(self._points, points, self._affordable(len(points)), self._fingerprint, codes, evidence)

    def _affordable(self, queries: int) -> PlanSettings:
        """The settings, with the K and n that fit into the budget if there is one."""
        if self._budget is None:
            return self._settings
        started = time.perf_counter()
        if self._pass_cost is None:
            self._pass_cost = measure(self._backend, self._pool, queries, self._seed)
        spent = time.perf_counter() - started
        window = self._backend.window
        return choose(self._budget, self._settings, self._pass_cost, queries, self._shape, window, spent)

    def _answer(self, X: Any, output: Output, plan: Plan | None) -> np.ndarray:
        rows, points = self._query(X)
        self._backend.check_output(output)
        if plan is None:
            plan = self._plan(points, evidence=False)
            labels, again = plan.labels, False
        else:
            if not isinstance(plan, Plan):
                raise InvalidInput(f"plan must be a Plan (Plan.load reads one from a file), got {plan!r}.")
            plan.check_pool(self._fingerprint)
            labels = plan.route(points)
            again = True
        pool = self._pool if self._disk is None else self._disk.hold(plan.contexts)
        return infer(self._backend, pool, plan.contexts, labels, rows, output, self.verbose, again)

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file without pickle; ``crumb.load`` reads it."""
        from crumb.persistence import save

        check_is_fitted(self)
        save(self, path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle may come from a machine with another GPU, or with one that this machine lacks."""
        super().__setstate__(state)
        self._pass_cost = None
        if self.device == "auto" and self.__sklearn_is_fitted__():
            device = resolve_device("auto")
            self._settings = replace(self._settings, device=device)
            self._backend.settings = replace(self._backend.settings, device=device)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_settings")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _labels(y: Any) -> np.ndarray:
    """The target as a 1-D array without missing values."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    labels = column_or_1d(y, warn=True)
    if labels.dtype == object:
        labels = pd.Series(labels).infer_objects().to_numpy()  # True and 1 as they are, not as objects
    missing = int(pd.isna(labels).sum())
    if missing == len(labels) and missing:
        raise InvalidInput("Input y contains NaN: all labels are missing.")
    if missing:
        raise InvalidInput(f"Input y contains NaN: {missing} of {len(labels)} labels are missing; drop these rows.")
    return labels


def _has_proba(estimator: _Crumb) -> bool:
    """Only a back-end without probabilities, known once it is fitted, has none."""
    backend = getattr(estimator, "_backend", None)
    return backend is None or "proba" in backend.outputs


class CrumbClassifier(ClassifierMixin, _Crumb):
    """A PFN that classifies with small contexts, each matched to a cluster of the queries.

    Answers depend on the batch in which the queries come, since clusters and contexts are chosen for that batch.
    Pass a frozen ``plan`` where each row's answer must depend on that row alone.

    Parameters
    ----------
    model : str, path or estimator, default="embedded"
        ``"embedded"``, ``"tabicl-v1"``, ``"tabicl-v1.1"``, ``"tabicl-v2"``, ``"tabpfn-v2"``; the path of a checkpoint
        of those packages; or any scikit-learn estimator of the right kind.
    strategy : str or Strategy, default="mmd"
        ``"mmd"`` (CRUMB), ``"uniform"``, ``"knn"``, ``"micp"``, ``"centroid"``, ``"voronoi"``, ``"full"``, or a
        configured object such as ``MICP(gamma=2.0)``.
    n_clusters : int, None or "auto", default="auto"
        K, the clusters of queries. ``"auto"``: 20, and 1 for ``"uniform"``. 1 or None: no clustering.
    context_size : int, float or "auto", default="auto"
        The context budget n: rows, or a share of the pool. ``"auto"``: 1,000.
    budget : str, float or None, default=None
        What a prediction may take, in the place of ``n_clusters`` and ``context_size`` where these are ``"auto"``:
        ``"30s"``, ``"2min"``, ``"4GB"``, ``"30s 4GB"``, or a number of seconds. Two small passes are timed first;
        ``plan.settings["budget"]`` says what the choice was expected to take. Times vary, and so may the choice.
    kernel : {"auto", "exact", "candidates", "certified", "rff"}, default="auto"
        How contexts are searched. ``"exact"``: the RBF kernel, every row a candidate at every choice. ``"candidates"``:
        the same among rows drawn where the queries of a cluster lie and the nearest ones of each query, twice as many
        as long as that helps (CPU).
        ``"certified"``: the same among few rows, with a proof that no other one would have been chosen (CPU, where the
        bound allows it). ``"rff"``: random Fourier features. ``"auto"``: exact or among candidates, by their cost;
        random features where the queries alone are too many for both. The plan says which.
    rff_dim : int, default=256
        D, the number of random features.
    herd_batch : int or "auto", default="auto"
        B, rows chosen per round. ``"auto"``: 1 with the exact kernel, 10 with random features.
    bandwidth : float or str, default="median"
        σ of the kernel in the selection space, the median heuristic, or a multiple of it such as ``"0.5 median"``.
    early_stopping : bool or EarlyStopping, default=False
        End a context when MMD² no longer falls.
    features : "embedding", transformer or None, default=None
        ``"embedding"`` adds the network's own row embeddings to the selection space (TabICL and the embedded model):
        better contexts for the price of one more look at every row of the pool at ``fit``. A transformer replaces the
        space: it gets the table, and the labels to fit, and gives a matrix. The PFN always sees the original columns.
    categorical_features : list or None, default=None
        Columns that hold categories although they look like numbers: names, positions or a mask.
    min_per_class : int, default=1
        Rows of each class that a context keeps where the pool has them; 0 turns the guard off.
    n_estimators : int, default=1
        Ensemble members of the PFN. The cost of a prediction is proportional to it.
    model_options : dict or None, default=None
        Further arguments for the estimator of the PFN's package.
    cache_size : float, default=500
        Megabytes of keys and values that may be kept of contexts (TabICL and the embedded model), on the device, when a
        frozen ``plan`` is passed, so that the next queries with that plan cost only themselves. 0 keeps nothing. Takes
        effect at fit.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
    random_state : int, RandomState, Generator or None, default=0
    n_jobs : int or None, default=None
        Threads (PFNs) or processes (scikit-learn back-ends, tables in files).
    engine : {"local", "ray"} or Engine, default="local"
        Who reads and scores a table in files and runs the passes: processes on this machine, or a Ray cluster (extra
        ``ray``): ``RayEngine(address=...)``.
    verbose : int, default=0
        1 shows progress bars.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CrumbClassifier(context_size=60, n_clusters=3).fit(X[::2], y[::2])
    >>> clf.predict_proba(X[1::2]).shape
    (75, 3)
    """

    _task = "classification"

    def fit(self, X: Any, y: Any, *, where: Any = None, columns: Sequence[str] | None = None) -> CrumbClassifier:
        """Hold the labelled table; all selection happens when queries come.

        ``X`` may also be a path or glob of Parquet files, or a pyarrow dataset, and ``y`` then the name of the target's
        column. ``where`` (a pyarrow expression, or tuples such as ``[("year", ">=", 2020)]``) leaves out rows, and
        ``columns`` says which columns are features: all but the target by default. A table that is too large for
        memory stays in its files; the queries must be in memory.
        """
        self._fit(X, y, where, columns)
        return self

    def _label_pool(self, rows: Rows, labels: np.ndarray) -> Pool:
        if labels.dtype == object and not all(isinstance(label, str) for label in labels):
            raise InvalidInput(
                "Labels must be all text, all whole numbers or all bools; these are mixed or something else."
            )
        try:
            check_classification_targets(labels)
            self.classes_, codes = np.unique(labels, return_inverse=True)
        except TypeError as error:
            raise InvalidInput("Labels of different types (text and numbers) cannot be mixed.") from error
        return Pool(rows, codes, len(self.classes_))

    @available_if(_has_proba)
    def predict_proba(self, X: Any, *, plan: Plan | None = None) -> np.ndarray:
        """Class probabilities (T, C), columns in the order of ``classes_``."""
        return self._answer(X, Output("proba"), plan)

    def predict(self, X: Any, *, plan: Plan | None = None) -> np.ndarray:
        """The most probable class of each query."""
        check_is_fitted(self)
        if "proba" in self._backend.outputs:
            return self.classes_[self.predict_proba(X, plan=plan).argmax(axis=1)]
        return self.classes_[self._answer(X, Output("label"), plan)]


class CrumbRegressor(RegressorMixin, _Crumb):
    """A PFN that predicts numbers with small contexts, each matched to a cluster of the queries.

    The parameters are those of :class:`CrumbClassifier`; ``min_per_class`` has no effect.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from crumb import CrumbRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = CrumbRegressor(context_size=100, n_clusters=2).fit(X[:300], y[:300])
    >>> reg.predict(X[300:], output_type="quantiles", quantiles=[0.1, 0.9]).shape
    (142, 2)
    """

    _task = "regression"

    def fit(self, X: Any, y: Any, *, where: Any = None, columns: Sequence[str] | None = None) -> CrumbRegressor:
        """Hold the labelled table; all selection happens when queries come.

        ``X`` may also be a path or glob of Parquet files, or a pyarrow dataset, and ``y`` then the name of the target's
        column. ``where`` (a pyarrow expression, or tuples such as ``[("year", ">=", 2020)]``) leaves out rows, and
        ``columns`` says which columns are features: all but the target by default. A table that is too large for
        memory stays in its files; the queries must be in memory.
        """
        self._fit(X, y, where, columns)
        return self

    def _label_pool(self, rows: Rows, labels: np.ndarray) -> Pool:
        try:
            numbers = np.asarray(labels, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput("Regression needs numbers as labels; for classes use CrumbClassifier.") from error
        if not np.isfinite(numbers).all():
            raise InvalidInput(
                "Input y contains infinity or a value too large for dtype('float64'): remove these rows."
            )
        return Pool(rows, numbers, None)

    def predict(
        self,
        X: Any,
        *,
        output_type: str = "mean",
        quantiles: Sequence[float] | None = None,
        plan: Plan | None = None,
    ) -> np.ndarray:
        """Means or medians (T,), or quantiles (T, Q) at the levels ``quantiles`` (0.1 … 0.9 by default)."""
        if output_type not in ("mean", "median", "quantiles"):
            raise InvalidInput(f"output_type must be 'mean', 'median' or 'quantiles', got {output_type!r}.")
        levels = quantile_levels(quantiles) if output_type == "quantiles" else ()
        return self._answer(X, Output(output_type, levels), plan)


def quantile_levels(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    """The levels that are asked for, checked; 0.1 … 0.9 by default."""
    levels = tuple(float(level) for level in (DEFAULT_QUANTILES if quantiles is None else quantiles))
    if not levels or not all(0 < level < 1 for level in levels):
        raise InvalidInput(f"quantiles must be levels between 0 and 1, got {quantiles!r}.")
    return levels
