"""Tables in CSV files, which are read whole; the files that a path, a folder or a glob names."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.errors import InvalidInput

CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")


def files_at(path: str, suffixes: tuple[str, ...]) -> list[str]:
    """The file of a path, or those of a folder or a glob, in the order of their names."""
    if os.path.isdir(path):
        # Files that writers leave beside the data, as Spark's ``_temporary``, do not count.
        inside = (file.relative_to(path) for file in Path(path).rglob("*"))
        files = (file for file in inside if not any(name[0] in "._" for name in file.parts))
        kept = (file for file in files if file.name.lower().endswith(suffixes))
        return sorted(os.path.join(path, file) for file in kept)
    if has_magic(path) and not os.path.isfile(path):
        return sorted(file for file in glob(path, recursive=True) if os.path.isfile(file))
    return [path]


def csv_files(X: Any) -> list[str]:
    """The CSV files of a path, a folder or a glob; none where there are others too."""
    files = files_at(os.fspath(X), CSV + PARQUET) if isinstance(X, (str, os.PathLike)) else []
    return files if all(file.lower().endswith(CSV) for file in files) else []


def read_csv(X: Any, texts: Iterable[str] = ()) -> pd.DataFrame:
    """The rows of all files. Columns in ``texts`` are text; folders ``key=value`` are columns."""
    files = csv_files(X)
    tables = [_read_csv(file, texts) for file in files]
    # A code such as 007 is text where another file has A12.
    names = dict.fromkeys(name for table in tables for name in table.columns)
    if unlike := [name for name in names if _is_unlike(tables, name)]:
        tables = [_read_csv(file, [*texts, *unlike]) for file in files]
    keys = [_keys(os.path.relpath(file, os.path.commonpath(files))) for file in files]
    tables = [table.assign(**here) for table, here in zip(tables, keys, strict=True)]
    return pd.concat(tables, ignore_index=True)


def _keys(path: str) -> dict[str, Any]:
    """The columns that the names of its folders tell: ``year=2020/part.csv`` is of 2020."""
    words = dict(name.split("=", 1) for name in Path(path).parts[:-1] if "=" in name)
    return {key: int(word) if word.isdecimal() else word for key, word in words.items()}


def _read_csv(path: str, texts: Iterable[str]) -> pd.DataFrame:
    try:
        return pd.read_csv(path, low_memory=False, dtype=dict.fromkeys(texts, "str"))
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:  # it is no table
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path} cannot be read as a .csv table: {reason}") from error


def _is_unlike(tables: list[pd.DataFrame], name: str) -> bool:
    """Whether a column is text in some tables, and read as something else in others."""
    columns = [table[name] for table in tables if name in table]
    if len({column.dtype for column in columns}) == 1:
        return False
    kinds = {pd.api.types.infer_dtype(column.dropna()) for column in columns} - {"empty"}
    return not (kinds <= {"integer", "floating"} or kinds == {"boolean"})
