"""``CrumbClassifier`` and ``CrumbRegressor``: scikit-learn's contract around the three stages."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from crumb.answering import answering
from crumb.budget import Clock, PassCost, choose, measure, slowness
from crumb.errors import InvalidInput
from crumb.herding.greedy import EarlyStopping
from crumb.infer import answer
from crumb.learning import learn, warn_of_new_words
from crumb.machine import resolve_device
from crumb.options import Options
from crumb.pfn import Output
from crumb.plan import Plan, route_plan
from crumb.selection import Strategy
from crumb.selection.base import value_order
from crumb.table.encoder import Rows, stacked, take, to_rows
from crumb.table.row import Piece, one_row

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(kw_only=True, eq=False, repr=False)
class _Crumb(BaseEstimator):
    """What classifier and regressor share."""

    task: ClassVar[str]
    model: Any = "embedded"
    strategy: str | Strategy = "mmd"
    n_clusters: str | int | None = "auto"
    context_size: str | float = "auto"
    contexts_per_query: str | int = "auto"
    budget: str | float | None = None
    plan_at: str = "predict"
    kernel: str = "auto"
    rff_dim: int = 256
    herd_batch: str | int = "auto"
    bandwidth: str | float = "median"
    early_stopping: bool | EarlyStopping = False
    features: Any = "auto"
    guide: Any = None
    guide_folds: Any = None
    categorical_features: Sequence[Any] | None = None
    min_per_class: int = 1
    n_estimators: int = 1
    model_options: dict[str, Any] | None = None
    cache_size: float = 500
    device: str = "auto"
    random_state: Any = 0
    n_jobs: int | None = None
    engine: Any = "local"
    verbose: int = 0

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        where: Any = None,
        columns: Sequence[str] | None = None,
        groups: Any = None,
    ) -> Self:
        """Hold the labelled table, and with ``plan_at="fit"`` choose the contexts for it.

        Parameters
        ----------
        X : table, path or pyarrow dataset
            The training rows: numpy, pandas, polars, Arrow, or lists; or a file, a folder or a glob
            of CSV or Parquet. CSV is read whole. A table in Parquet that is too large for memory
            stays in its files. Queries must be in memory.
        y : array (N,) or str
            The labels, or the name of their column in ``X``.
        where : pyarrow expression, list of tuples or None, default=None
            Parquet only: the rows to use, such as ``[("year", ">=", 2020)]``.
        columns : list of str or None, default=None
            Parquet only: the features. None: all columns but the target.
        groups : array (N,) or None, default=None
            The group of each row, which the folds of a guide do not part (``guide_folds``).

        Returns
        -------
        self : the fitted estimator

        Notes
        -----
        There is no ``sample_weight``: to a PFN a context is a set of rows that all count alike, and
        it was trained on such sets. A row that should count more can be in the table more than
        once; rows that should not count are best left out.
        """
        before = dict(vars(self))
        try:
            learned = learn(self, X, y, where, columns, groups)
        except BaseException:  # a fit that fails leaves the estimator as it was
            self.__dict__ = before
            raise
        self.pool_, self.options_, self.backend_, classes, self.plan_ = learned
        self.bandwidth_, self.context_size_ = self.options_.bandwidth, self.options_.context_size
        if classes is not None:
            self.classes_ = classes
        self._pass_cost: PassCost | None = None  # measured when the first queries come
        return self

    def encode(self, X: Any) -> tuple[Rows, np.ndarray]:
        """Queries as the PFN sees them, and as points of the selection space.

        Parameters
        ----------
        X : table of T rows

        Returns
        -------
        rows : table of T rows
            With the columns of the pool, encoded.
        points : array (T, d)
        """
        check_is_fitted(self)
        return self.pool_.encode(self._aligned(X))

    def rows_to_join(self, X: Any) -> Rows:
        """Rows for a later pool, encoded: with what they hold where this pool holds nothing.

        Parameters
        ----------
        X : table of rows that will get labels

        Returns
        -------
        rows : table
        """
        return self.pool_.encoder.transform(self._aligned(X), joining=True)

    def _aligned(self, X: Any) -> Rows:
        """Rows with the columns of the pool, not encoded yet; names decide where both have them."""
        rows, names = to_rows(X), self.pool_.columns
        if isinstance(rows, pd.DataFrame) and names is None:
            rows = stacked(rows)
        elif names is not None and not hasattr(X, "columns"):  # no names: by position
            validate_data(self, rows, reset=False, skip_check_array=True)
            rows = pd.DataFrame(rows).set_axis(names, axis=1)
        validate_data(self, rows, reset=False, skip_check_array=True)
        return rows

    def encode_row(self, row: Any) -> tuple[Piece, np.ndarray]:
        """``encode`` for one row.

        Parameters
        ----------
        row : sequence, Series or mapping of column names

        Returns
        -------
        row : the row as the PFN sees it
        point : array (1, d)
        """
        read = self.pool_.encode_row(row)
        return self.encode(one_row(row, self.pool_.columns)) if read is None else read

    def plan(self, X: Any) -> Plan:
        """Which context each query gets, and why, without the PFN.

        Parameters
        ----------
        X : table of T rows

        Returns
        -------
        plan : Plan
            Give it to ``predict`` to freeze it. With ``plan_at="fit"`` it is the plan made at
            ``fit``: clusters may have no queries.
        """
        return self.plan_points(self._queries(X)[1])

    def _queries(self, X: Any) -> tuple[Rows, np.ndarray]:
        """``encode`` for a batch, of which more may be odd than of a row."""
        rows, points = self.encode(X)
        warn_of_new_words(self.pool_.encoder, rows)
        return rows, points

    def plan_points(self, points: np.ndarray, evidence: bool = True) -> Plan:
        """``plan`` for queries that are points of the selection space already.

        Parameters
        ----------
        points : array (T, d)
        evidence : bool, default=True
            False leaves out what is measured only to be looked at.

        Returns
        -------
        plan : Plan
        """
        if self.plan_ is not None:
            return route_plan(self.plan_, self.pool_, points, self.options_, evidence)
        options, _ = self._affordable(len(points), time.perf_counter())
        return self.pool_.plan(points, options, evidence)

    def _affordable(self, queries: int, started: float) -> tuple[Options, Clock | None]:
        """The options, with the K and n that fit into the budget if there is one, and a clock."""
        options = self.options_
        if options.budget is None:
            return options, None
        # Each time: an hour later the machine may be busy.
        about = self.pool_.sample, queries, options.seed, options.budget, self._pass_cost
        self._pass_cost = cost = measure(self.backend_, *about)
        if self.pool_.guide is not None and self.pool_.guide.shown:
            from crumb.guide import guide_columns

            cost = replace(cost, columns=cost.columns + guide_columns(self.pool_.n_classes))
        if self.pool_.means is not None:
            cost = replace(cost, columns=cost.columns + self.pool_.means.width)
        slow = slowness(options.device, options.n_jobs)
        spent = time.perf_counter() - started
        known = [clusters for clusters, _ in self.pool_.known_centroids]
        load = queries, self.pool_.shape, self.backend_.window, spent, slow, known
        seconds = options.budget.seconds
        clock = None if seconds is None else Clock(started + seconds, cost)
        return choose(options, cost, *load), clock

    def _answer(self, X: Any, output: Output, plan: Plan | None) -> np.ndarray:
        started, clock = time.perf_counter(), None
        rows, points = self._queries(X)
        self.backend_.check_output(output)
        plan = self.plan_ if plan is None else plan
        frozen = plan is not None
        if plan is None:
            options, clock = self._affordable(len(points), started)
            plan = self.pool_.plan(points, options, evidence=False)
            if clock is not None:  # it keeps the first rows: those of rare classes among them
                pairs = zip(plan.contexts, plan.swapped.tolist(), strict=True)
                plan.contexts = [np.roll(context, swapped) for context, swapped in pairs]
        elif not isinstance(plan, Plan):
            raise InvalidInput(f"plan must be a Plan (Plan.load reads one), got {plan!r}.")
        plan.check_pool(self.pool_.fingerprint)
        labels, weights = answering(plan, self.pool_, points, self.options_, own=not frozen)
        # Products of float32 round a row by its place among others: an order of their values, not
        # of their coming, gives the same answers to the last bit.
        order = value_order(points)
        weights = None if weights is None else weights[order]
        asked = self.backend_, self.pool_, plan.contexts, labels[order], take(rows, order), output
        how: dict[str, Any] = {"verbose": self.verbose, "again": frozen, "clock": clock}
        return answer(*asked, **how, weights=weights)[np.argsort(order)]

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file without pickle; ``crumb.load`` reads it.

        Parameters
        ----------
        path : str or path
        """
        from crumb.persistence import save

        check_is_fitted(self)
        save(self, path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A pickle may come from a machine with another GPU, or with none."""
        super().__setstate__(state)
        self._pass_cost = None
        if self.device == "auto" and self.__sklearn_is_fitted__():
            device = resolve_device("auto")
            self.options_ = replace(self.options_, device=device)
            self.backend_.settings = replace(self.backend_.settings, device=device)

    def _repr_html_(self) -> str:
        """For notebooks: what was fitted, and the parameters that are not the defaults."""
        from crumb.markup import facts

        about = {}
        if self.__sklearn_is_fitted__():
            pool, options = self.pool_, self.options_
            about = {
                "pool": f"{pool.size:,} rows, {self.n_features_in_:,} columns",
                "classes": pool.n_classes,
                "model": self.backend_.name,
                "strategy": options.strategy.name,
                "context size": self.context_size_,
                "contexts": None if self.plan_ is None else self.plan_.n_clusters,
                "device": options.device,
            }
        return facts(repr(self), about)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "options_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = tags.input_tags
        inputs.allow_nan = inputs.categorical = inputs.string = True
        return tags


def _has_proba(estimator: _Crumb) -> bool:
    """Only a back-end without probabilities, known once it is fitted, has none."""
    backend = getattr(estimator, "backend_", None)
    return backend is None or "proba" in backend.outputs


@dataclass(kw_only=True, eq=False, repr=False)
class CrumbClassifier(ClassifierMixin, _Crumb):
    """A PFN that classifies with small contexts, each matched to a cluster of the queries.

    Clusters and contexts are chosen for the batch of queries, so answers depend on that batch. With
    ``plan_at="fit"``, or with a frozen ``plan``, each answer depends on its row alone.

    Parameters
    ----------
    model : str, path or estimator, default="embedded"
        ``"embedded"``, ``"embedded-0.1"`` (the networks of that version, for good),
        ``"tabicl-v1"``, ``"tabicl-v1.1"``, ``"tabicl-v2"``, ``"tabpfn-v1"``, ``"tabpfn-v2"``,
        ``"tabpfn-v2.5"``, ``"tabpfn-v2.6"``, ``"tabpfn-v3"``, ``"tabpfn-v3.5"``,
        ``"tabpfn-v3.5-fast"``; the path of a checkpoint; or any scikit-learn estimator of the right
        kind. ``crumb models`` shows windows, licences and costs.
    strategy : str or Strategy, default="mmd"
        ``"mmd"`` (CRUMB), ``"uniform"``, ``"knn"``, ``"micp"``, ``"centroid"``, ``"voronoi"``,
        ``"full"``, or a configured object such as ``MICP(gamma=2.0)``.
    n_clusters : int, None or "auto", default="auto"
        K, the number of query clusters. ``"auto"``: one for every two queries, as far as the
        device allows (docs/defaults.md), and 1 for ``"uniform"``. 1 or None: no clustering.
    context_size : int, float or "auto", default="auto"
        n, the rows of a context: a count, or a share of the pool. ``"auto"``: 500 to 1,000 on a
        CPU, to 3,000 on a GPU, by K; all rows where the pool is small (docs/defaults.md).
    contexts_per_query : int or "auto", default="auto"
        How many contexts answer a query, at most: that of its own cluster, and those of the next
        clusters whose rows are about as near to it. Answers are mixed: means of numbers, geometric
        means of probabilities. ``"auto"``: 4 with ``"mmd"``, for some per cent of the time of a
        prediction (docs/defaults.md), and 1 with other strategies. 1 is faster where a frozen plan
        has kept its contexts. In streams and in explanations, and with ``"knn"``, it is always 1.
    budget : str, float or None, default=None
        What a prediction may take: ``"30s"``, ``"2min"``, ``"4GB"``, ``"30s 4GB"``, or a number of
        seconds. It chooses ``n_clusters`` and ``context_size`` where these are ``"auto"``. Two
        small passes are timed first; ``plan.settings["budget"]`` says what the choice should take.
        Times vary, and so may the choice. ``predict`` cuts contexts when it runs late.
    plan_at : {"predict", "fit"}, default="predict"
        When contexts are chosen. ``"predict"``: for the queries of each call, so an answer depends
        on the rows that are asked with it. ``"fit"``: once, for a sample of the pool in the place
        of queries (``plan_``); a query is answered by the contexts of the nearest clusters, and
        its answer depends on its row alone. For cross-validation, grid search and permutation
        importance (docs/batches.md). Takes effect at fit.
    kernel : {"auto", "exact", "candidates", "rff"}, default="auto"
        How contexts are searched. ``"exact"``: the RBF kernel, with every row of the pool a
        candidate for every choice. ``"candidates"``: the same among fewer rows (CPU): rows drawn
        where the queries of a cluster lie and the nearest rows of each query, doubled as long as
        that helps. ``"rff"``: random Fourier features. ``"auto"`` takes exact or candidates by
        their cost, and random features where both cost too much. The plan says which.
    rff_dim : int, default=256
        D, the number of random features.
    herd_batch : int or "auto", default="auto"
        B, rows chosen per round. ``"auto"``: 1 with the exact kernel, 10 with random features.
    bandwidth : float or str, default="median"
        σ of the kernel in the selection space, the median heuristic, or a multiple of it such as
        ``"0.5 median"``.
    early_stopping : bool or EarlyStopping, default=False
        End a context when MMD² no longer falls.
    features : {"auto", "embedding"}, array, transformer or None, default="auto"
        The selection space. None: all columns, standardised, count alike (the paper). ``"auto"``:
        columns count by how much they tell about the target; a forest learns that at ``fit`` from
        at most 20,000 rows (pools of up to 2,000 rows: as None). For classification, columns of
        more than 40 categories then count by the mean targets of these as well, and the PFN sees
        them as further columns. An array: your own weights, one a column. ``"embedding"``: as None,
        and the network's own row embeddings beside it (TabICL and the embedded model); ``fit``
        takes longer. A transformer: it is fitted on the table and the labels, and gives a matrix.
        The PFN always sees the original columns.
    guide : {"trees", "auto"}, estimator or None, default=None
        A model of the whole pool, whose out-of-fold predictions are one more column for the network
        (docs/guide.md). ``"trees"``: LightGBM with early stopping, and an additive model (extra
        ``guide``). An estimator: any scikit-learn classifier with probabilities, or regressor.
        ``"auto"``: trees that are shown to the network, averaged with it, or left out, by what
        held-out rows of the pool say.
    guide_folds : {"time", "groups"}, splitter or None, default=None
        How the pool is cut for out-of-fold predictions. None: five random folds. ``"time"``: rows
        stand in the order of time, and models answer later rows. ``"groups"``: folds do not part
        the ``groups`` given to ``fit``. Or a splitter of scikit-learn.
    categorical_features : list or None, default=None
        Columns that hold categories although they look like numbers: names, positions or a mask.
    min_per_class : int, default=1
        Rows of each class that a context keeps where the pool has them; 0 turns this off. With more
        than ten classes at most a tenth of a context is swapped for that.
    n_estimators : int, default=1
        Ensemble members of the PFN. The cost of a prediction is proportional to it.
    model_options : dict or None, default=None
        Further arguments for the estimator of the PFN's package.
    cache_size : float, default=500
        Megabytes of keys and values to keep on the device for the contexts of a frozen ``plan``
        (TabICL, TabPFN v1 and the embedded model), so that later queries cost only themselves. 0
        keeps nothing. Takes effect at fit.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        ``"auto"``: a GPU that torch can see, else the CPU.
    random_state : int, RandomState, Generator or None, default=0
        The seed. None draws a new one at each ``fit``.
    n_jobs : int or None, default=None
        Threads (PFNs) or processes (scikit-learn back-ends, tables in files).
    engine : {"local", "ray"} or Engine, default="local"
        What reads and scores a table in files and runs the passes: processes on this machine, or a
        Ray cluster (extra ``ray``): ``RayEngine(address=...)``.
    verbose : int, default=0
        1 shows progress bars.

    Attributes
    ----------
    classes_ : array (C,)
        The classes, sorted (``CrumbClassifier``).
    context_size_, bandwidth_ : int, float
        n and σ as resolved at ``fit``; the policy may choose n by the queries later.
    plan_ : Plan or None
        The plan made at ``fit`` (``plan_at="fit"``).
    n_features_in_, feature_names_in_ : int, array
        As in scikit-learn.
    pool_, options_, backend_
        The pool, the options and the model's back-end, for tools that build on CRUMB.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from crumb import CrumbClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = CrumbClassifier(context_size=60, n_clusters=3).fit(X[::2], y[::2])
    >>> clf.predict_proba(X[1::2]).shape
    (75, 3)
    >>> plan = clf.plan(X[1::2])
    >>> plan.n_clusters, plan.sizes.tolist()
    (3, [60, 60, 60])
    >>> clf.predict(X[1:2], plan=plan)  # a frozen plan: the answer depends on this row alone
    array([0])
    """

    task = "classification"

    @available_if(_has_proba)
    def predict_proba(self, X: Any, *, plan: Plan | None = None) -> np.ndarray:
        """The probability of each class, for each query.

        Parameters
        ----------
        X : table of T rows
        plan : Plan or None, default=None
            A plan to answer with: each answer then depends on its row alone. None: contexts are
            chosen for ``X``.

        Returns
        -------
        proba : array (T, C)
            Columns in the order of ``classes_``.
        """
        return self._answer(X, Output("proba"), plan)

    def predict(self, X: Any, *, plan: Plan | None = None) -> np.ndarray:
        """The most probable class of each query.

        Parameters
        ----------
        X : table of T rows
        plan : Plan or None, default=None
            A plan to answer with. None: contexts are chosen for ``X``.

        Returns
        -------
        labels : array (T,)
        """
        check_is_fitted(self)
        if "proba" in self.backend_.outputs:
            return self.classes_[self.predict_proba(X, plan=plan).argmax(axis=1)]
        return self.classes_[self._answer(X, Output("label"), plan)]


@dataclass(kw_only=True, eq=False, repr=False)
class CrumbRegressor(RegressorMixin, _Crumb):
    """A PFN that predicts numbers with small contexts, each matched to a cluster of the queries.

    The parameters are those of ``CrumbClassifier``; ``min_per_class`` has no effect.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from crumb import CrumbRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = CrumbRegressor(context_size=100, n_clusters=2).fit(X[:300], y[:300])
    >>> reg.predict(X[300:]).shape
    (142,)
    >>> reg.predict(X[300:], quantiles=[0.1, 0.9]).shape
    (142, 2)
    """

    task = "regression"

    def predict(
        self,
        X: Any,
        *,
        output_type: str | None = None,
        quantiles: Sequence[float] | None = None,
        plan: Plan | None = None,
    ) -> np.ndarray:
        """A number for each query, or quantiles.

        Parameters
        ----------
        X : table of T rows
        output_type : {"mean", "median", "quantiles"} or None, default=None
            None: quantiles where they are named, means otherwise.
        quantiles : list of float or None, default=None
            Levels between 0 and 1. None: 0.1, 0.2, … 0.9.
        plan : Plan or None, default=None
            A plan to answer with. None: contexts are chosen for ``X``.

        Returns
        -------
        answers : array (T,), or (T, Q) for quantiles
        """
        if output_type is None:
            output_type = "mean" if quantiles is None else "quantiles"
        if quantiles is not None and output_type != "quantiles":
            raise InvalidInput(f"quantiles= needs output_type='quantiles', got {output_type!r}.")
        if output_type not in ("mean", "median", "quantiles"):
            known = "'mean', 'median' or 'quantiles'"
            raise InvalidInput(f"output_type must be {known}, got {output_type!r}.")
        levels = quantile_levels(quantiles) if output_type == "quantiles" else ()
        return self._answer(X, Output(output_type, levels), plan)


if CrumbClassifier.__doc__ and CrumbRegressor.__doc__:  # python -OO has neither
    # From Python 3.13 on docstrings have no indentation.
    _theirs, _own = map(inspect.cleandoc, (CrumbClassifier.__doc__, CrumbRegressor.__doc__))
    _shared = _theirs[_theirs.index("Parameters\n") : _theirs.index("Examples\n")]
    CrumbRegressor.__doc__ = _own.replace("Examples\n", f"{_shared}Examples\n")


def quantile_levels(quantiles: Sequence[float] | None) -> tuple[float, ...]:
    """The levels that are asked for, checked; 0.1 … 0.9 by default."""
    levels = tuple(map(float, DEFAULT_QUANTILES if quantiles is None else quantiles))
    if not levels or not all(0 < level < 1 for level in levels):
        raise InvalidInput(f"quantiles must be levels between 0 and 1, got {quantiles!r}.")
    return levels
