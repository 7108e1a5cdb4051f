"""What ``fit`` learns: the pool, the model's back-end, the classes, a guide, perhaps a plan.

``asked`` is the estimator: its parameters say what is learned. Nothing is stored in it but what
scikit-learn's ``validate_data`` notes of the columns.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from crumb.budget import LADDER
from crumb.errors import InvalidInput
from crumb.machine import resolve_jobs
from crumb.options import DEFAULTS, PLANNED_ROWS, Options, megabytes, positive
from crumb.pfn import Backend, BackendSettings, resolve_backend
from crumb.pool import Pool, TablePool
from crumb.scale.engine import resolve_engine
from crumb.table.csv import csv_files, read_csv
from crumb.table.embedding import RowEmbedding
from crumb.table.encoder import Rows, TableEncoder, column, in_files, split_target, to_rows
from crumb.table.space import EMBEDDING, check_features

if TYPE_CHECKING:
    from crumb.guide import Guide
    from crumb.plan import Plan
    from crumb.scale.source import Source

FEW_ROWS = 20  # with fewer, a column may agree with the target by chance


class Whole(NamedTuple):
    """A table in memory, its labels, and what plans should say of where it was."""

    X: Any
    y: Any
    facts: dict[str, Any]


def learn(
    asked: Any, X: Any, y: Any, where: Any, columns: Any, groups: Any
) -> tuple[Pool, Options, Backend, np.ndarray | None, Plan | None]:
    """Options are resolved for the pool; no classes: regression; a plan with ``plan_at="fit"``."""
    if y is None:
        name = type(asked).__name__
        said = f"This {name} estimator requires y to be passed, but the target y is None."
        raise InvalidInput(said)
    # Mistakes in the parameters show before the table is read.
    options = Options.of(**{name: getattr(asked, name) for name in DEFAULTS})
    check_features(asked.features)
    check_plan_at(asked.plan_at, options)
    _check_guide(asked, X, groups)
    table, engine = open_table(X, y, where, columns, asked.engine, asked.n_jobs)
    if isinstance(table, Whole):
        pool, backend, classes = _learn_table(asked, table, options)
    else:
        pool, backend, classes = _learn_files(asked, table, engine, options)
    _warn_of_nothing(pool)
    _warn_of_copies(pool)
    options = options.resolve(pool, backend.window)
    if not pool.on_disk:  # files are read when queries come
        n = options.context_size
        if options.budget is not None and not options.fixed_size:  # fewest clusters: for short ones
            n = min(LADDER[-1], pool.size, backend.window or pool.size)
        options.strategy.learn(pool.finder(options), n)
    if not _room_for_means(asked, pool, backend):
        pool.means = None
        _warn_of_codes(pool.encoder, backend.most_categories)
    pool.guide = _learn_guide(asked, pool, groups, options, backend)
    if not pool.on_disk:
        _ = pool.hold(()).numbers.columns  # made now, and not at the first prediction
    plan = None
    if asked.plan_at == "fit":
        points = pool.drawn(PLANNED_ROWS, options.seed)[1]
        plan = pool.plan(points, options, evidence=False)
    return pool, options, engine.backend(backend) if engine else backend, classes, plan


def open_table(
    X: Any, y: Any, where: Any, columns: Any, engine: Any, n_jobs: int | None
) -> tuple[Whole | Source, Any]:
    """A table in memory, where files that are small are read whole, or the files themselves.

    And the engine that reads files and runs passes; None: this process, for a table in memory.
    """
    if in_files(X) and csv_files(X):
        X = read_csv(X)
    engine = resolve_engine(engine, n_jobs) if in_files(X) or engine != "local" else None
    if not in_files(X):
        if where is not None or columns is not None:
            said = "where= and columns= are for tables in files: filter this one yourself."
            raise InvalidInput(said)
        return Whole(X, y, {}), engine
    from crumb.scale.pool import fits_in_memory, read_whole
    from crumb.scale.source import count_rows, open_source

    if not isinstance(y, (str, type(None))):
        raise InvalidInput("For a table in files y is the name of the target's column.")
    source = count_rows(open_source(X, y, where, columns), engine)
    facts = {"pool": {"rows": source.rows, "on_disk": False, "covered": True}}
    return Whole(*read_whole(source), facts) if fits_in_memory(source) else source, engine


def _learn_table(
    asked: Any, table: Whole, options: Options
) -> tuple[Pool, Backend, np.ndarray | None]:
    X, y = split_target(table.X, table.y) if isinstance(table.y, str) else (table.X, table.y)
    rows, labels = to_rows(X, min_rows=2, learning=True), check_labels(y)
    validate_data(asked, rows, skip_check_array=True)  # sets n_features_in_, feature_names_in_
    check_consistent_length(rows, labels)
    encoder = TableEncoder(asked.categorical_features)
    rows = encoder.fit_transform(rows)
    y, classes = encode_labels(labels, asked.task)
    n_classes = None if classes is None else len(classes)
    backend, embed = _resolve_backend(asked, encoder, n_classes, options), None
    if isinstance(asked.features, str) and asked.features == EMBEDDING:
        embed = RowEmbedding(backend, rows, y, n_classes, options.seed, options.verbose)
    how = options.seed, resolve_jobs(options.n_jobs), _may_use_means(asked)
    pool = TablePool.learn(rows, encoder, y, n_classes, asked.features, embed, *how)
    pool.facts |= table.facts
    return pool, backend, classes


def _learn_files(
    asked: Any, source: Source, engine: Any, options: Options
) -> tuple[Pool, Backend, np.ndarray | None]:
    """A table that stays in its files is learned in one pass."""
    from crumb.scale.pool import FilePool

    about = {name: getattr(asked, name) for name in ("features", "categorical_features")}
    about |= {"classify": asked.task == "classification", "with_means": _may_use_means(asked)}
    pool = FilePool(source, engine, options, **about)
    validate_data(asked, pool.sample.rows, skip_check_array=True)
    _, classes = encode_labels(pool.distinct_labels, asked.task)
    return pool, _resolve_backend(asked, pool.encoder, pool.n_classes, options), classes


def _check_guide(asked: Any, X: Any, groups: Any) -> None:
    """The guide, its folds and ``groups``; without any of these there is nothing to check."""
    if asked.guide is None and asked.guide_folds is None and groups is None:
        return
    from crumb.guide import check_guide

    check_guide(asked.guide, asked.guide_folds, groups, asked.task)
    if groups is not None and in_files(X) and not csv_files(X):
        raise InvalidInput("groups= is for tables in memory: read this one, and pass it.")


def _learn_guide(
    asked: Any, pool: Pool, groups: Any, options: Options, backend: Backend
) -> Guide | None:
    if asked.guide is None:
        return None
    from crumb.guide import Guide, learn_guide, weigh

    if isinstance(asked.guide, Guide):  # one that was saved
        return asked.guide
    if groups is not None:
        check_consistent_length(pool.guide_rows.rows, groups)
    folds, auto = asked.guide_folds, isinstance(asked.guide, str) and asked.guide == "auto"
    guide = learn_guide(asked.guide, folds, groups, pool, options)
    return weigh(guide, folds, groups, pool, backend, options) if auto else guide


def _may_use_means(asked: Any) -> bool:
    """Not with folds of the user's own: mean targets have random ones, which then tell too much."""
    return asked.guide_folds is None


def _room_for_means(asked: Any, pool: Pool, backend: Backend) -> bool:
    """Whether the model takes the columns of mean targets as well."""
    if pool.means is None or not backend.takes_means:
        return False
    columns = _columns_with_guide(asked, pool.encoder, pool.n_classes) + pool.means.width
    return not backend.max_columns or columns <= backend.max_columns


def _columns_with_guide(asked: Any, encoder: TableEncoder, n_classes: int | None) -> int:
    if asked.guide is None:
        return len(encoder.columns_)
    from crumb.guide import guide_columns

    return len(encoder.columns_) + guide_columns(n_classes)


def _resolve_backend(
    asked: Any, encoder: TableEncoder, n_classes: int | None, options: Options
) -> Backend:
    more = {} if asked.model_options is None else asked.model_options
    if not isinstance(more, dict):
        raise InvalidInput(f"model_options must be a dictionary, got {more!r}.")
    settings = BackendSettings(
        n_estimators=positive("n_estimators", asked.n_estimators),
        options=more,
        device=options.device,
        seed=options.seed,
        n_jobs=options.n_jobs,
        categorical_indices=encoder.categorical_indices,
        cache_bytes=megabytes("cache_size", asked.cache_size),
    )
    backend = resolve_backend(asked.model, asked.task, settings)
    columns = _columns_with_guide(asked, encoder, n_classes)
    named = "columns" if asked.guide is None else "columns with those of the guide"
    for count, most, what in (
        (n_classes, backend.max_classes, "classes"),
        (columns, backend.max_columns, named),
    ):
        if count and most and count > most:
            raise InvalidInput(
                f"The table has {count} {what}, but the model {backend.name!r} takes at most "
                f"{most}; the embedded model and TabICL take any number."
            )
    return backend


def check_plan_at(plan_at: Any, options: Options) -> None:
    """When contexts are chosen. At ``fit``, what depends on the queries has no meaning."""
    if plan_at not in ("predict", "fit"):
        raise InvalidInput(f"plan_at must be 'predict' or 'fit', got {plan_at!r}.")
    if plan_at == "predict":
        return
    if options.budget is not None:
        raise InvalidInput(
            "A budget is for plan_at='predict', where it sees the queries: with plan_at='fit' give "
            "n_clusters and context_size."
        )
    if not options.strategy.shares:
        raise InvalidInput(
            f"strategy={options.strategy.name!r} chooses a context for every query, whatever else "
            "is asked: leave plan_at='predict'."
        )


def check_labels(y: Any) -> np.ndarray:
    """The target as a 1-D array without missing values."""
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    labels = column_or_1d(y, warn=True)
    if labels.dtype == object:
        labels = pd.Series(labels).infer_objects().to_numpy()  # True and 1 as they are
    missing = int(pd.isna(labels).sum())
    if missing and missing == len(labels):
        raise InvalidInput("Input y contains NaN: all labels are missing.")
    if missing:
        raise InvalidInput(
            f"Input y contains NaN: {missing} of {len(labels)} labels are missing; drop these rows."
        )
    return labels


def encode_labels(labels: np.ndarray, task: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Class codes and classes, or numbers and None."""
    if task == "regression":
        return target_numbers(labels), None
    if labels.dtype == object and not all(isinstance(label, str) for label in labels):
        raise InvalidInput(
            "Labels must be all text, all whole numbers or all bools; these are mixed or "
            "something else."
        )
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    return codes, classes


def target_numbers(labels: np.ndarray) -> np.ndarray:
    try:
        numbers = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        said = "Regression needs numbers as labels; for classes use CrumbClassifier."
        raise InvalidInput(said) from error
    if not np.isfinite(numbers).all():
        raise InvalidInput("Input y contains infinity: remove these rows.")
    return numbers


def _warn_of_codes(encoder: TableEncoder, most: int) -> None:
    words = zip(encoder.columns_, encoder.words_, strict=True)
    many = [repr(name) for name, one in words if one is not None and len(one.cells) > most]
    if many:
        warnings.warn(
            f"Columns with more than {most} categories: {', '.join(many)}. The model sees the "
            "categories of a column as numbers in sorted order, which says little where there are "
            "that many. Leave such a column out, or give its meaning as numbers.",
            stacklevel=4,
        )


def _warn_of_nothing(pool: Pool) -> None:
    rows, empty = pool.sample.rows, set(pool.encoder.kinds_) == {"empty"}
    if isinstance(rows, np.ndarray):
        empty = all(np.isnan(one).all() for one in rows.T)
    if empty:
        said = "All cells of the table are missing: every query will get the same answer."
        warnings.warn(said, stacklevel=4)


def warn_of_new_words(encoder: TableEncoder, rows: Rows) -> None:
    """Of columns in which none of several queries has a value of the pool."""
    new = [repr(name) for name in encoder.unseen(rows)] if len(rows) > 1 else []
    if new:
        said = f"The pool has none of the values that the queries hold in {', '.join(new)}"
        warnings.warn(f"{said}: they may be written in another way.", stacklevel=5)


def _warn_of_copies(pool: Pool) -> None:
    """Of columns that tell the target, which queries will hardly have."""
    rows, y, classes = pool.sample.rows, pool.sample.y, pool.n_classes is not None
    if len(y) < FEW_ROWS:
        return
    names = enumerate(pool.encoder.columns_)
    found = [repr(name) for j, name in names if _is_copy(column(rows, j), y, classes)]
    if found:
        warnings.warn(
            "Columns that are exact, rescaled or renamed copies of the target: "
            f"{', '.join(found)}. If new rows do not have them, leave them out: the scores mean "
            "nothing with them.",
            stacklevel=4,
        )


def _is_copy(cells: pd.Series, y: np.ndarray, classes: bool) -> bool:
    """Whether a column is a·y + b, or names the classes one by one."""
    for some in (slice(FEW_ROWS), slice(1_000), slice(None)):  # most are told by their first rows
        values, mine = cells.iloc[some], y[some]
        if classes:
            codes = pd.factorize(values)[0]
            pairs = codes * (y.max() + 1) + mine
            same = len({len(np.unique(one)) for one in (codes, mine, pairs)}) == 1
        else:
            numbers = pd.api.types.is_numeric_dtype(values.dtype)
            same = numbers and _are_in_line(values.to_numpy(dtype=np.float64), mine)
        if not same:
            return False
    return bool((y != y[0]).any())


def _are_in_line(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether |correlation| is 1 up to rounding, or both are constant."""
    with np.errstate(all="ignore"):  # cells that are missing or infinite, and constants
        if not (np.ptp(x) and np.ptp(y)):
            return not (np.ptp(x) or np.ptp(y))
        return bool(abs(np.corrcoef(x, y)[0, 1]) > 1 - 1e-9)
