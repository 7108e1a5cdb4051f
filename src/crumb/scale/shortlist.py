"""The pass over the pool: the rows that some rule wants, collected shard by shard.

    driver                                  workers
    ──────                                  ───────
    rules, limits ────── task ──────▶ shard ─▶ blocks ─▶ rules ─▶ entries (list, key, row)
      ▲                                                                │ key below the limit?
      │ full lists have lower limits:                                  ▼
      │ later shards send fewer rows        Shortlist of the shard: each list keeps the rows
      │                                     of lowest key
    Shortlist of the pool ◀── Kept ────────────────────────────────────┘
      (joined in the order of the shards)

The first limits come from a random sample of the pool. What is kept at the end depends on the rows
alone: not on shards, workers, or the time at which a limit became known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crumb.machine import blas_in_one_thread, progress_bar
from crumb.scale.engine import Engine
from crumb.scale.reader import Reader
from crumb.scale.rules import Block, Rule
from crumb.scale.source import Shard

ROOM = 1 << 20  # entries that may wait before they are sorted
BLOCK_CELLS = 1 << 22  # distances (clusters × rows) that a block needs at once: 32 MB


@dataclass
class Kept:
    """Rows, and the entries that name them: what a shard sends back."""

    counts: np.ndarray  # rows found for each list, under the limits of the time
    lists: np.ndarray  # of the entries
    keys: np.ndarray
    places: np.ndarray  # of their rows among these:
    ids: np.ndarray  # row numbers in the pool, rising
    points: np.ndarray
    codes: np.ndarray | None


class Shortlist:
    """Blocks and shards come in the order of the pool, so that of equal keys the first row wins."""

    def __init__(self, rules: Sequence[Rule], limits: np.ndarray | None = None):
        self.rules = rules
        self.starts = np.cumsum([0, *(rule.n_lists for rule in rules)])
        self.counts = np.zeros(self.starts[-1], dtype=np.int64)
        self.limits = np.full(self.starts[-1], np.inf) if limits is None else limits.copy()
        self.parts: list[Kept] = []
        self.waiting = 0  # entries that came since the last sort

    def add(self, block: Block) -> None:
        """Take what the rules want of a block."""
        found = []
        for rule, start, end in self._rules():
            for lists, keys, rows in rule.entries(block, self.limits[start:end]):
                found.append((lists + start, keys, rows))
        lists, keys, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.counts += np.bincount(lists, minlength=len(self.counts))
        wanted, places = np.unique(rows, return_inverse=True)
        points = block.some_points(wanted)
        codes = block.reader.codes(block.table, wanted) if block.with_codes else None
        self._wait(Kept(self.counts, lists, keys, places, block.ids[wanted], points, codes))

    def join(self, other: Kept) -> None:
        """Take what the shortlist of a shard has kept."""
        self.counts += other.counts
        self._wait(other)

    def done(self) -> Kept:
        """Everything kept: entries by list and key, rows by number."""
        if self.waiting:
            self._sort()
        return self.parts[0]

    def lists_of(self, number: int) -> list[np.ndarray]:
        """The places of the rows in each list of a rule, lowest key first."""
        kept = self.done()
        lists = np.arange(self.starts[number], self.starts[number + 1] + 1)
        edges = np.searchsorted(kept.lists, lists)
        return np.split(kept.places[edges[0] : edges[-1]], (edges - edges[0])[1:-1])

    def counts_of(self, number: int) -> np.ndarray:
        return self.counts[self.starts[number] : self.starts[number + 1]]

    def _rules(self) -> zip[tuple[Rule, int, int]]:
        return zip(self.rules, self.starts[:-1], self.starts[1:], strict=True)

    def _wait(self, more: Kept) -> None:
        self.parts.append(more)
        self.waiting += len(more.lists)
        if self.waiting > max(ROOM, len(self.parts[0].lists)):
            self._sort()

    def _sort(self) -> None:
        """Entries by list, key and place. Those that have no room go, then rows that none names.

        The limits of full lists come down.
        """
        whole = _concatenated(self.parts)
        below = whole.keys <= self.limits[whole.lists]  # limits may have come down meanwhile
        lists, keys, places = whole.lists[below], whole.keys[below], whole.places[below]
        # Stable sorts leave equal keys in the order of the pool. 16 bits are sorted by radix.
        order = np.argsort(keys, kind="stable")
        small = lists.astype(np.int16 if self.starts[-1] < 2**15 else np.int64)
        order = order[np.argsort(small[order], kind="stable")]
        lists, keys, places = lists[order], keys[order], places[order]
        room = np.concatenate([rule.room(self.counts[a:b]) for rule, a, b in self._rules()])
        edges = np.searchsorted(lists, np.arange(len(room) + 1))
        inside = np.arange(len(lists)) - edges[lists] < room[lists]
        full = (np.diff(edges) >= room) & (room > 0)
        last = keys[(edges[:-1] + room - 1)[full]]
        self.limits[full] = np.minimum(self.limits[full], last)
        self.limits[room == 0] = -np.inf
        used = np.zeros(len(whole.ids), dtype=bool)
        used[places[inside]] = True
        places, codes = (np.cumsum(used) - 1)[places[inside]], whole.codes
        rows = whole.ids[used], whole.points[used], None if codes is None else codes[used]
        self.parts = [Kept(self.counts, lists[inside], keys[inside], places, *rows)]
        self.waiting = 0


def _concatenated(parts: Sequence[Kept]) -> Kept:
    firsts = np.cumsum([0, *(len(part.ids) for part in parts)])
    places = [part.places + first for part, first in zip(parts, firsts, strict=False)]
    columns = zip(*((part.lists, part.keys, part.ids, part.points) for part in parts), strict=True)
    lists, keys, ids, points = map(np.concatenate, columns)
    known = [part.codes for part in parts if part.codes is not None]
    codes = np.concatenate(known) if known else None
    return Kept(parts[0].counts, lists, keys, np.concatenate(places), ids, points, codes)


@dataclass(frozen=True)
class Score:
    """The shortlist of one shard; a task is the shard and the limits known when it starts."""

    reader: Reader
    rules: Sequence[Rule]
    n_clusters: int
    with_codes: bool

    def __call__(self, task: tuple[Shard, np.ndarray]) -> Kept:
        shard, limits = task
        found, step = Shortlist(self.rules, limits), max(256, BLOCK_CELLS // self.n_clusters)
        with blas_in_one_thread():  # workers take shards, and do not split products
            for first, table in shard.numbered_blocks(self.with_codes):
                for start in range(0, len(table), step):
                    part = table.slice(start, step)
                    ids = np.arange(first + start, first + start + len(part))
                    found.add(Block(ids, self.reader, part, self.with_codes))
        return found.done()


def score_shards(
    engine: Engine, shards: Sequence[Shard], score: Score, sample: Block, verbose: int
) -> Shortlist:
    """One pass over the pool. ``sample``: random rows of it."""
    rows = sum(shard.rows for shard in shards)
    limits = [rule.expected_limits(sample, rows) for rule in score.rules]
    found = Shortlist(score.rules, np.concatenate(limits))
    # The generator runs as tasks are started: late shards know the limits that early ones set.
    tasks = ((shard, found.limits.copy()) for shard in shards)
    with progress_bar(len(shards), "scoring", verbose) as advance:
        for kept in engine.map(score, tasks, len(shards)):
            found.join(kept)
            advance(1)
    return found
