"""A folder of Parquet files with an index.json: a list of {name, file, task, target}.

How many rows and columns a table has is read from the file itself, whatever the index says.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.errors import InvalidInput
from experiments.dataset import Dataset, DatasetMissing, known_task, no_target, with_target

INDEX = "index.json"


@dataclass(frozen=True)
class ParquetTable:
    """One table of a folder."""

    name: str
    task: str
    target: str
    path: Path

    @property
    def origin(self) -> str:
        return self.path.name

    @property
    def rows(self) -> int | None:
        return self._facts[0]

    @property
    def columns(self) -> int | None:
        return self._facts[1]

    @property
    def problem(self) -> str | None:
        return self._facts[2]

    @cached_property
    def _facts(self) -> tuple[int | None, int | None, str | None]:
        """Rows with a target, features, and what is wrong; only the target is read."""
        try:
            names = self._names()
            if self.target not in names:
                raise no_target(self.name, self.target)
            target = pd.read_parquet(self.path, columns=[self.target]).assign(_=0)
            rows = len(with_target(self.name, self.task, target, self.target, "").y)
        except Exception as error:  # Parquet has many ways to complain about a damaged file
            return None, None, _message(error, self.path)
        return rows, len(names) - 1, None

    def load(self) -> Dataset:
        try:
            self._names()
            table = pd.read_parquet(self.path)
            return with_target(self.name, self.task, table, self.target, self.origin)
        except (InvalidInput, DatasetMissing):
            raise
        except Exception as error:
            raise InvalidInput(_message(error, self.path)) from error

    def fetch(self) -> None:
        """It is already here."""

    def _names(self) -> list[str]:
        import pyarrow.parquet as parquet

        if not self.path.is_file():
            raise DatasetMissing(f"The table {self.name} is not there: no file {self.path}.")
        return list(parquet.read_schema(self.path).names)


def _message(error: Exception, path: Path) -> str:
    if isinstance(error, (InvalidInput, DatasetMissing)):
        return str(error)
    text = " ".join(str(error).split()) or type(error).__name__
    return f"{path.name} cannot be read as Parquet: {text}"


def sources(folder: Path) -> list[ParquetTable]:
    """The tables of the folder, as its index lists them."""
    index = folder / INDEX
    if not index.is_file():
        raise InvalidInput(
            f"{folder} is no folder of tables: it needs an {INDEX} with the name, file, task and "
            "target of each."
        )
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{index} is not JSON: {error}.") from error
    if not isinstance(entries, list):
        raise InvalidInput(f"{index} must be a list of tables.")
    tables = [_table(one, folder, f"{index}, entry {i}") for i, one in enumerate(entries, start=1)]
    names = pd.Series([table.name for table in tables], dtype=object)
    if names.duplicated().any():
        twice = ", ".join(sorted(set(names[names.duplicated()])))
        raise InvalidInput(f"{index} lists {twice} more than once.")
    return tables


def _table(entry: Any, folder: Path, where: str) -> ParquetTable:
    texts = ("name", "file", "target")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in texts):
        raise InvalidInput(f"{where}: a table needs name, file, task and target.")
    task = known_task(entry.get("task"), where)
    return ParquetTable(entry["name"], task, entry["target"], folder / entry["file"])
