"""A table in files: a path, a glob or a pyarrow dataset, cut into shards that are read one by one.

Files may differ in the order of their columns, in number types and in dictionaries. Folders named
``key=value`` are columns. Every footer is read first, so a corrupt or half-written file is named
before any work begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from glob import has_magic
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from crumb.errors import InvalidInput
from crumb.scale.engine import Engine
from crumb.table.csv import PARQUET, files_at

SHARD_ROWS = 1 << 20  # rows of a shard, about: whole row groups of one file
BLOCK_ROWS = 1 << 16  # rows that are looked at together


@dataclass(frozen=True)
class View:
    """Which columns and rows of a file are seen, and as which types."""

    schema: pa.Schema  # of all files together; dictionaries as the values that they stand for
    features: tuple[str, ...]
    target: str | None
    where: pc.Expression | None
    dictionaries: frozenset[str]  # columns that some file holds as a dictionary: categories
    block_rows: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Features and target."""
        return self.features if self.target is None else (*self.features, self.target)


@dataclass(frozen=True)
class Shard:
    """Some row groups of one file."""

    view: View
    path: str
    fragment: ds.Fragment
    first: int = 0  # number of its first row in the whole table
    rows: int = 0

    def blocks(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows in order, some ten thousand at a time."""
        with named(self.path):
            waiting: list[pa.RecordBatch] = []
            for batch in self._scanner(list(columns)).to_batches():
                waiting.append(batch)
                # A block of one batch need not be copied.
                if sum(map(len, waiting)) > self.view.block_rows // 2:
                    yield pa.Table.from_batches(waiting)
                    waiting = []
            if any(map(len, waiting)):
                yield pa.Table.from_batches(waiting)

    def numbered_blocks(self, with_target: bool = True) -> Iterator[tuple[int, pa.Table]]:
        """The same, each with the number of its first row."""
        first = self.first
        for block in self.blocks(self.view.columns if with_target else self.view.features):
            yield first, block
            first += len(block)
        if first != self.first + self.rows:
            raise InvalidInput(f"{self.path} has changed since it was opened: fit again.")

    def count(self) -> int:
        """Its rows: from the footer, or from the columns of the filter."""
        with named(self.path):
            if self.view.where is None and isinstance(self.fragment, ds.ParquetFileFragment):
                return sum(group.num_rows for group in self.fragment.row_groups)
            # Not ``count_rows``: it counts the whole file where folders alone decide the filter.
            return sum(map(len, self._scanner([]).to_batches()))

    def groups(self) -> list[Shard]:
        """Its row groups. With a filter their rows are not known: then it stays whole."""
        if self.view.where is not None or not isinstance(self.fragment, ds.ParquetFileFragment):
            return [self]
        groups = [replace(self, fragment=group) for group in self.fragment.split_by_row_group()]
        return _numbered(groups, [group.count() for group in groups], self.first)

    def _scanner(self, columns: list[str]) -> ds.Scanner:
        # Without buffers ahead of the reader, memory stays that of a row group.
        is_parquet = isinstance(self.fragment, ds.ParquetFileFragment)
        reading = ds.ParquetFragmentScanOptions(pre_buffer=False) if is_parquet else None
        return self.fragment.scanner(
            schema=self.view.schema,
            columns=columns,
            filter=self.view.where,
            batch_size=self.view.block_rows,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=reading,
            use_threads=False,
        )


@dataclass(frozen=True)
class Source:
    """All files of a table, seen through one view."""

    view: View
    shards: tuple[Shard, ...]

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def open_source(
    table: Any, target: str | None = None, where: Any = None, columns: Sequence[str] | None = None
) -> Source:
    """Find the files and the columns; nothing but footers is read."""
    dataset = table if isinstance(table, ds.Dataset) else _dataset(os.fspath(table))
    if not isinstance(dataset, (ds.FileSystemDataset, ds.UnionDataset)):
        raise InvalidInput("This dataset is in memory, not in files: pass the table itself.")
    schema, dictionaries = _unified(dataset)
    features, condition = _features(schema, target, columns), _condition(where, schema)
    view = View(schema, features, target, condition, dictionaries, BLOCK_ROWS)
    # Folders that the filter rules out are not opened.
    fragments = dataset.get_fragments(filter=condition)
    return Source(view, tuple(shard for fragment in fragments for shard in _shards(view, fragment)))


def count_rows(source: Source, engine: Engine) -> Source:
    """The source with row numbers. Only a filter makes work for the engine."""
    count = map if source.view.where is None else partial(engine.map, total=len(source.shards))
    shards = _numbered(source.shards, list(count(Shard.count, source.shards)))
    if not shards:
        raise InvalidInput("The files have no rows, or where= leaves none.")
    return replace(source, shards=tuple(shards))


def _numbered(shards: Sequence[Shard], counts: list[int], first: int = 0) -> list[Shard]:
    firsts = accumulate(counts, initial=first)
    numbered = zip(shards, firsts, counts, strict=False)
    return [replace(shard, first=first, rows=rows) for shard, first, rows in numbered if rows]


def among(ids: np.ndarray, first: int, rows: int) -> np.ndarray:
    """Those of some row numbers that are within ``rows`` rows."""
    return ids[(ids >= first) & (ids < first + rows)]


def _condition(where: Any, schema: pa.Schema) -> pc.Expression | None:
    """A filter as pyarrow has it: an expression, or tuples such as ``[("year", ">=", 2020)]``."""
    if where is None:
        return None
    try:
        found = where if isinstance(where, pc.Expression) else pq.filters_to_expression(where)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "where must be a pyarrow expression or tuples such as [('year', '>=', 2020)], "
            f"got {where!r}."
        ) from error
    try:
        schema.empty_table().filter(found)
    except (pa.ArrowException, KeyError) as error:
        raise InvalidInput(f"where does not fit the columns of the files: {error}") from error
    return found


@contextmanager
def named(path: str) -> Iterator[None]:
    """An error of the reader with the file in which it happened."""
    try:
        yield
    except InvalidInput:
        raise
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} is gone: it was there when the table was opened.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(
            f"{path} cannot be read: it is damaged, half-written or of another kind ({reason}); "
            "replace or remove it."
        ) from error


def _dataset(path: str) -> ds.Dataset:
    if "://" in path:
        with named(path):
            return ds.dataset(path, format="parquet", partitioning="hive")
    files = list_files(path)
    with named(files[0]):
        return ds.dataset(files, format="parquet", partitioning="hive")


def list_files(path: str) -> list[str]:
    """The Parquet files that a path, a folder or a glob stands for."""
    if not has_magic(path) and not os.path.exists(path):
        raise InvalidInput(f"There is no file or folder {path}.")
    found = files_at(path, PARQUET)
    if not found:
        raise InvalidInput(f"{path} has no Parquet file ({' or '.join(PARQUET)}).")
    return found


def _unified(dataset: ds.Dataset) -> tuple[pa.Schema, frozenset[str]]:
    """One schema for all files: the widest number types, dictionaries as their values."""
    schema, dictionaries = _plain(dataset.schema)
    for fragment in dataset.get_fragments():
        path = getattr(fragment, "path", "a part of the dataset")
        with named(path):
            more, also = _plain(fragment.physical_schema)
        try:
            schema = pa.unify_schemas([schema, more], promote_options="permissive")
        except pa.ArrowException as error:
            said = f"The columns of {path} do not fit those of the files before it: {error}"
            raise InvalidInput(said) from error
        dictionaries |= also
    return schema, dictionaries


def _plain(schema: pa.Schema) -> tuple[pa.Schema, frozenset[str]]:
    """The schema with values for dictionaries, and the names of these."""
    kinds = {field.name: field.type for field in schema}
    names = frozenset(name for name, kind in kinds.items() if pa.types.is_dictionary(kind))
    fields = [(f.name, f.type.value_type if f.name in names else f.type) for f in schema]
    return pa.schema(fields), names


def _features(
    schema: pa.Schema, target: str | None, columns: Sequence[str] | None
) -> tuple[str, ...]:
    if target is not None and target not in schema.names:
        raise InvalidInput(
            f"The files have no column {target!r}; they have {', '.join(map(repr, schema.names))}."
        )
    unknown = [name for name in columns or () if name not in schema.names]
    if unknown:
        said = f"columns names what the files do not have: {', '.join(map(repr, unknown))}."
        raise InvalidInput(said)
    chosen = schema.names if columns is None else columns
    features = tuple(name for name in chosen if name != target)
    if not features:
        raise InvalidInput("The files have no column besides the target.")
    return features


def _shards(view: View, fragment: ds.Fragment) -> Iterator[Shard]:
    path = getattr(fragment, "path", "the dataset")
    if not isinstance(fragment, ds.ParquetFileFragment):
        yield Shard(view, path, fragment)
        return
    with named(path):
        groups = [(group.id, group.num_rows) for group in fragment.row_groups]
    while groups:
        ends = np.cumsum([rows for _, rows in groups])
        count = max(1, int((ends <= SHARD_ROWS).sum()))
        some, groups = groups[:count], groups[count:]
        yield Shard(view, path, fragment.subset(row_group_ids=[number for number, _ in some]))
