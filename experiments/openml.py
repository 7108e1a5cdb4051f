"""TabArena's 51 tables and Higgs from OpenML, through its own client (extra ``experiments``).

Only the tables are taken, not TabArena's folds: the paper draws its own splits from seeds.
A fetched table is kept as Parquet in ``CRUMB_DATA_DIR``, or in a folder of the user's cache, so
that it can be carried to a machine without a network.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from crumb.files import atomic_write
from experiments.dataset import Dataset, DatasetMissing
from experiments.folder import ParquetTable

INSTALL = "the openml package is not installed (pip install 'crumb-pfn[experiments]')"
# The ids, targets and sizes that TabArena publishes (github.com/autogluon/tabarena,
# curated_tabarena_dataset_metadata.csv; its counts of features include the target).
# 38 classification tasks and 13 regression tasks, as in the paper.
TABARENA = tuple(pd.read_csv(Path(__file__).with_name("tabarena.csv")).itertuples(index=False))
# OpenML has several copies of the Higgs data. This is the one of 98,050 rows that many studies use;
# the paper does not say which it took, and cuts it to about 50,000.
HIGGS = ("higgs", 23512, "classification", "class", 98_050, 28)


def data_dir() -> Path:
    """Where fetched tables are kept."""
    if folder := os.environ.get("CRUMB_DATA_DIR"):
        return Path(folder).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    return cache / "crumb" / "datasets"


@dataclass(frozen=True)
class OpenMLTable:
    """One table by its OpenML id."""

    name: str
    openml_id: int
    task: str
    target: str
    published_rows: int
    published_columns: int

    @property
    def path(self) -> Path:
        return data_dir() / f"openml-{self.openml_id}.parquet"

    @property
    def origin(self) -> str:
        return f"OpenML {self.openml_id}"

    @property
    def rows(self) -> int | None:
        return self._kept.rows if self.path.is_file() else self.published_rows

    @property
    def columns(self) -> int | None:
        return self._kept.columns if self.path.is_file() else self.published_columns

    @property
    def problem(self) -> str | None:
        if self.path.is_file():
            return self._kept.problem
        return "not fetched yet" if find_spec("openml") else f"not fetched, and {INSTALL}"

    @cached_property
    def _kept(self) -> ParquetTable:
        return ParquetTable(self.name, self.task, self.target, self.path)

    def load(self) -> Dataset:
        self.fetch()
        return self._kept.load()

    def fetch(self) -> None:
        """Download the table unless it is here; not in two processes, for the client's cache."""
        if not self.path.is_file():
            table = self._download()
            with atomic_write(self.path) as file:
                table.to_parquet(file, index=False)

    def _download(self) -> Any:
        if find_spec("openml") is None:
            raise DatasetMissing(f"The table {self.name} is not in {data_dir()}, and {INSTALL}.")
        import openml

        try:
            table = openml.datasets.get_dataset(self.openml_id, download_data=True).get_data()[0]
        except Exception as error:  # no network, no such id, a broken server: a type for each
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DatasetMissing(
                f"OpenML did not give the table {self.name} (id {self.openml_id}): {reason}"
            ) from error
        if self.target not in table.columns:
            raise DatasetMissing(
                f"What OpenML has as {self.openml_id} is not the table {self.name}: "
                f"it lacks {self.target!r}."
            )
        return table


def sources() -> list[OpenMLTable]:
    return [OpenMLTable(*entry) for entry in (*TABARENA, HIGGS)]
