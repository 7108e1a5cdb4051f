"""A folder of Parquet files with an index.json: a list of {name, file, task, target}, one entry a table.

How many rows and columns a table has is read from the file itself, not from the index: whatever else the index says,
the sizes of the runs must be true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.bench.dataset import Dataset, known_task, with_target
from crumb.errors import DatasetMissing, InvalidInput

INDEX = "index.json"


@dataclass(frozen=True)
class ParquetTable:
    """One table of a folder."""

    name: str
    task: str
    target: str
    path: Path
    tabarena: bool = False

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
        import pyarrow.parquet as parquet

        try:
            columns = len(parquet.read_schema(self._found()).names) - 1
            target = with_target(self.name, self.task, self._read([self.target]).assign(_=0), self.target, "").y
        except Exception as error:  # whatever Parquet makes of a damaged file: the table cannot be used
            return None, None, _said(error, self.path)
        return len(target), columns, None

    def load(self) -> Dataset:
        try:
            return with_target(self.name, self.task, self._read(), self.target, self.origin)
        except (InvalidInput, DatasetMissing):
            raise
        except Exception as error:
            raise InvalidInput(_said(error, self.path)) from error

    def fetch(self) -> None:
        """It is where it is."""

    def _read(self, columns: list[str] | None = None) -> pd.DataFrame:
        import pyarrow.parquet as parquet

        if columns is not None and (lacking := set(columns) - set(parquet.read_schema(self._found()).names)):
            raise InvalidInput(f"The table {self.name} has no column {lacking.pop()!r}, which should be its target.")
        return pd.read_parquet(self._found(), columns=columns)

    def _found(self) -> Path:
        if not self.path.is_file():
            raise DatasetMissing(f"The table {self.name} is not there: no file {self.path}.")
        return self.path


def _said(error: Exception, path: Path) -> str:
    if isinstance(error, (InvalidInput, DatasetMissing)):
        return str(error)
    return f"{path.name} cannot be read as Parquet: {' '.join(str(error).split()) or type(error).__name__}"


def sources(folder: Path) -> list[ParquetTable]:
    """The tables of the folder, as its index lists them."""
    index = folder / INDEX
    if not index.is_file():
        raise InvalidInput(
            f"{folder} is no folder of tables: it needs an {INDEX} that gives name, file, task and target of each."
        )
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidInput(f"{index} is not JSON: {error}.") from error
    if not isinstance(entries, list):
        raise InvalidInput(f"{index} must be a list of tables.")
    found = [_table(entry, folder, f"{index}, entry {number}") for number, entry in enumerate(entries, start=1)]
    twice = {one.name for number, one in enumerate(found) if one.name in {other.name for other in found[:number]}}
    if twice:
        raise InvalidInput(f"{index} lists {', '.join(sorted(twice))} more than once.")
    return found


def _table(entry: Any, folder: Path, where: str) -> ParquetTable:
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "file", "target")):
        raise InvalidInput(f"{where}: a table needs name, file, task and target.")
    task = known_task(entry.get("task"), where)
    return ParquetTable(entry["name"], task, entry["target"], folder / entry["file"], bool(entry.get("tabarena")))
