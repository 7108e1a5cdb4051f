"""Rows by number: only those that made it into some context are ever read as whole rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.scale.engine import Engine
from crumb.scale.source import Shard, Source


@dataclass(frozen=True)
class Fetch:
    """Some rows of a shard, in order; where no filter renumbers them, only the row groups that hold them are read."""

    columns: tuple[str, ...]

    def __call__(self, task: tuple[Shard, np.ndarray]) -> pa.Table:
        shard, wanted = task
        found, first, only = [], shard.first, None
        if shard.view.where is None and shard.sizes:
            starts = shard.first + np.cumsum([0, *(rows for _, rows in shard.sizes)])
            hit = np.unique(np.searchsorted(starts, wanted, side="right") - 1)
            only = [shard.sizes[i][0] for i in hit]
            # The rows of a group that is left out are not seen: numbers count within those that are read.
            skipped = np.cumsum(
                [
                    0,
                    *(
                        starts[i + 1] - starts[i] if i not in hit else 0
                        for i in range(len(starts) - 1)
                    ),
                ]
            )
            wanted = wanted - skipped[np.searchsorted(starts, wanted, side="right") - 1]
        for block in shard.blocks(self.columns, only):
            here = wanted[(wanted >= first) & (wanted < first + len(block))] - first
            if len(here):
                found.append(block.take(pa.array(here)))
            first += len(block)
        if sum(map(len, found)) != len(wanted):
            raise InvalidInput(f"{shard.path} has changed since it was fitted: fit again.")
        return pa.concat_tables(found)


def fetch_rows(engine: Engine, source: Source, ids: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """The rows with these numbers (each once, rising), as one table."""
    tasks = [
        (shard, ids[(ids >= shard.first) & (ids < shard.first + shard.rows)])
        for shard in source.shards
    ]
    tasks = [(shard, wanted) for shard, wanted in tasks if len(wanted)]
    return pa.concat_tables(engine.map(Fetch(tuple(columns)), tasks, len(tasks)))
