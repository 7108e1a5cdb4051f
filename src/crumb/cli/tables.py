"""The tables of a command: read whole or left in Parquet files; their task; the estimator."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.compute as pc

import crumb
from crumb.cli.console import note, one_line
from crumb.cli.options import parameters
from crumb.errors import InvalidInput
from crumb.files import atomic_write
from crumb.rng import generator
from crumb.scale.engine import LocalEngine
from crumb.scale.reader import fetch_rows, to_frame, to_labels
from crumb.scale.source import Source, count_rows, open_source
from crumb.table.csv import csv_files, read_csv

TABLES = (".csv", ".csv.gz", ".parquet")
PICTURES = (".png", ".pdf", ".svg", ".jpg")
FEW_VALUES = 20  # whole numbers with at most this many values are taken as classes


class Tables(NamedTuple):
    """Training and test rows with the same columns, and their targets where there are any."""

    X_train: pd.DataFrame
    X_test: pd.DataFrame
    y_train: Any  # None: no target was named
    y_test: Any  # None: the test table has none
    kept: pd.DataFrame  # columns of the test table for the output


def load_tables(args: argparse.Namespace, test: str) -> Tables:
    """Read both files; the test table gives the columns of the training table, found by name."""
    keep = getattr(args, "keep", [])
    pool, y_train = load_training(args)
    # Codes such as "007" are text in a column that also holds "A12", even in a file of codes only.
    texts = [name for name, column in pool.items() if _is_text(column)]
    if y_train is not None and _is_text(y_train):
        texts.append(args.target)
    # An id such as "007" is copied as it stands.
    queries = read_table(test, [*texts, *(name for name in keep if name not in pool.columns)])
    check_kept(keep, test, list(queries.columns))
    kept = queries[keep]
    y_test = queries.pop(args.target) if args.target in queries.columns else None
    aligned = _aligned(queries, list(pool.columns), args.train, test, keep)
    return Tables(pool, aligned, y_train, y_test, kept)


def check_kept(keep: list[str], test: str, columns: list[str]) -> None:
    for name in keep:
        if name not in columns:
            raise InvalidInput(f"--keep: {test} has no column {name!r}{_suggestion(name, columns)}")


def load_training(args: argparse.Namespace) -> tuple[pd.DataFrame, Any]:
    """The training table without its target, and the target (None where no target is named)."""
    path, target = args.train, args.target
    pool = read_table(path)
    if target is None:
        return pool, None
    if target not in pool.columns:
        raise InvalidInput(f"{path} has no column {target!r}{_suggestion(target, list(pool))}")
    y = pool.pop(target)
    if not len(pool.columns):
        raise InvalidInput(f"{path} has no column besides the target {target!r}.")
    known, count = y.notna(), int(y.isna().sum())
    if count == len(y):
        raise InvalidInput(f"The target {target!r} is missing in all {count:,} rows of {path}.")
    if count and not args.drop_missing_target:
        raise InvalidInput(
            f"The target {target!r} is missing in {count:,} of {len(y):,} rows of {path}: "
            f"fill them in, or leave these rows out with --drop-missing-target."
        )
    if count:
        note(f"{count:,} rows of {path} without a target are left out.")
    return pool[known].reset_index(drop=True), y[known].reset_index(drop=True)


def _is_text(column: pd.Series) -> bool:
    """Text, and not bools that a missing value has turned into objects."""
    return pd.api.types.infer_dtype(column) in ("string", "empty")


def read_table(path: str, texts: Iterable[str] = ()) -> pd.DataFrame:
    """A table with at least one row; columns named in ``texts`` are read as text."""
    table = _read_parquet(path) if is_parquet(path) else read_csv(path, texts)
    if not len(table):
        raise InvalidInput(f"{path} has no rows.")
    table.columns = table.columns.map(str)
    return table


def _read_parquet(path: str) -> pd.DataFrame:
    check_suffix(path, TABLES)
    try:
        return pd.read_parquet(path)
    except Exception as error:  # it raises a dozen unrelated types with one meaning
        if isinstance(error, OSError) and error.errno:
            raise  # no such file, no permission
        reason = one_line(str(error))
        raise InvalidInput(f"{path} cannot be read as a .parquet table: {reason}") from error


def write_table(table: pd.DataFrame, path: str) -> None:
    """Write a table whole or not at all."""
    suffix = check_suffix(path, TABLES)
    with atomic_write(path) as file:
        if suffix == ".parquet":
            table.to_parquet(file, index=False)
        else:
            # Without the time of day in the header, equal tables are equal files.
            gzip: Any = {"method": "gzip", "mtime": 0} if suffix == ".csv.gz" else None
            table.to_csv(file, index=False, compression=gzip)


def _aligned(
    queries: pd.DataFrame, columns: list[str], train: str, test: str, keep: list[str]
) -> pd.DataFrame:
    missing = [name for name in columns if name not in queries.columns]
    if len(missing) == len(columns):
        said = f"{test} has no column in common with {train}; both need a line of names at the top."
        raise InvalidInput(said)
    if missing:
        said = f"{test} lacks {len(missing)} of the columns of {train}: {_listed(missing)}."
        raise InvalidInput(said)
    extra = [name for name in queries.columns if name not in [*columns, *keep]]
    if extra:
        note(f"columns of {test} that {train} does not have are ignored: {_listed(extra)}.")
    return queries[columns]


def _suggestion(name: str, known: list[str]) -> str:
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3)
    if close:
        return f"; did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"
    if len(known) == 1 and any(separator in known[0] for separator in ";\t|"):
        return f"; its only column is {known[0]!r}: columns must be separated by commas."
    return f"; it has {_listed(known)}."


def _listed(names: list[str], limit: int = 10) -> str:
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(repr(name) for name in names[:limit]) + more


def check_output(path: str | None, suffixes: Sequence[str], inputs: Sequence[str] = ()) -> None:
    """Refuse a file that cannot be written, before the long work instead of after it."""
    if path is None:
        return
    if suffixes:
        check_suffix(path, suffixes)
    if any(Path(path).resolve() == Path(other).resolve() for other in inputs):
        raise InvalidInput(f"The output {path} is one of the inputs: give it another name.")
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it.")
    folder = Path(path).resolve().parent
    while not folder.exists():  # missing folders are made when the file is written
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written: no permission to write in {folder}.")


def check_suffix(path: str, suffixes: Sequence[str]) -> str:
    for suffix in sorted(suffixes, key=len, reverse=True):
        if path.lower().endswith(suffix):
            return suffix
    raise InvalidInput(f"The name {path} must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}.")


def fit_table(args: argparse.Namespace, X: pd.DataFrame, y: pd.Series) -> Any:
    """A fitted estimator for the task that ``--task`` names or the target shows."""
    task, estimator = _chosen(args, y)
    return estimator.fit(X, as_classes(y) if task == "classification" else y)


def fit_files(args: argparse.Namespace) -> Any:
    """The same for a training table in Parquet, or in CSV files that are read whole."""
    if not is_parquet(args.train):
        return fit_table(args, *load_training(args))
    _, estimator = _chosen(args, target_values(args))
    return estimator.fit(args.train, args.target, where=known_target(args))


def _chosen(args: argparse.Namespace, y: pd.Series) -> tuple[str, Any]:
    """The task, which must suit the other options, and an estimator for it."""
    task = args.task or tell_task(args, y)
    if task == "classification" and getattr(args, "quantiles", None):
        raise InvalidInput("--quantiles are for regression, but this is classification.")
    if task == "regression" and getattr(args, "no_proba", False):
        raise InvalidInput("--no-proba is for classification, but this is regression.")
    kind = crumb.CrumbClassifier if task == "classification" else crumb.CrumbRegressor
    return task, kind(**parameters(args))


def tell_task(args: argparse.Namespace, y: pd.Series) -> str:
    task, reason = infer_task(y)
    note(f"the target {args.target!r} {reason}: {task} (--task overrides).")
    return task


def infer_task(y: pd.Series) -> tuple[str, str]:
    """Classification or regression, and the reason in words."""
    if pd.api.types.is_bool_dtype(y.dtype):
        return "classification", "is true or false"
    if not pd.api.types.is_numeric_dtype(y.dtype):
        return "classification", "holds text or categories"
    if y.nunique() <= FEW_VALUES and are_whole(y):
        return "classification", f"holds whole numbers with {y.nunique()} values"
    return "regression", "holds numbers"


def are_whole(y: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(y.dtype) and (y.dropna() % 1 == 0).all())


def as_classes(y: pd.Series) -> Any:
    """Class labels as an array; numbers that a gap had turned into 1.0, 2.0 are 1, 2 again."""
    if pd.api.types.is_bool_dtype(y.dtype):
        return y.to_numpy(dtype=bool)
    if are_whole(y):
        return y.to_numpy(dtype="int64")
    return y.to_numpy(dtype=None if pd.api.types.is_numeric_dtype(y.dtype) else object)


def is_large(args: argparse.Namespace) -> bool:
    """Whether a table is a folder, a glob or too large to read whole, or an option asks for it."""
    asked = args.chunk_rows is not None or hasattr(args, "engine") or getattr(args, "replan", False)
    return asked or _many_or_big(args.train) or _many_or_big(args.test)


def _many_or_big(path: str) -> bool:
    if not is_parquet(path):
        return False
    if Path(path).is_dir() or (has_magic(path) and not Path(path).exists()):
        return True
    if not path.lower().endswith(".parquet"):
        return False
    from crumb.scale.pool import fits_in_memory

    return not fits_in_memory(count_rows(open_source(path), LocalEngine(1)))


def is_parquet(path: str) -> bool:
    return not csv_files(path)


def target_values(args: argparse.Namespace) -> pd.Series:
    """Distinct values of a target in Parquet, read until there are enough to tell the task."""
    source = open_source(args.train, args.target, known_target(args))
    values = pd.Series(to_labels(source.view.schema.empty_table(), args.target))
    for block in (block for shard in source.shards for block in shard.blocks([args.target])):
        values = pd.concat([values, pd.Series(to_labels(block, args.target))]).drop_duplicates()
        if values.nunique() > FEW_VALUES:
            break
    return values


def open_queries(path: str, columns: Sequence[str]) -> Source:
    """The queries in Parquet files, with row numbers."""
    return count_rows(open_source(path, columns=columns), LocalEngine(1))


def read_rows(source: Source, ids: np.ndarray) -> pd.DataFrame:
    view = source.view
    return to_frame(fetch_rows(LocalEngine(1), source, ids), view.features, view)


def sample_rows(source: Source, most: int, seed: int) -> pd.DataFrame:
    """Queries that stand for all of them."""
    rows = min(most, source.rows)
    drawn = generator(seed, "queries").choice(source.rows, rows, replace=False)
    return read_rows(source, np.sort(drawn))


def known_target(args: argparse.Namespace) -> Any:
    """The filter that ``--drop-missing-target`` asks for, if any."""
    if not args.drop_missing_target or not args.target:
        return None
    return ~pc.field(args.target).is_null(nan_is_null=True)
