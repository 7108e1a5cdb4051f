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
from threadpoolctl import threadpool_limits

from crumb.machine import progress_bar
from crumb.scale.engine import Engine
from crumb.scale.reader import Reader
from crumb.scale.rules import Block, Rule
from crumb.scale.source import Shard

ROOM = 1 << 20  # entries, or rows, that may wait before they are sorted
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
        self.whole: Kept | None = None  # all parts, when nothing was added since
        self.sorted = self.used = 0  # entries, and rows, when they were sorted last

    def add(self, block: Block) -> None:
        """Take what the rules want of a block."""
        found = []
        for rule, start, end in self._rules():
            for lists, keys, rows in rule.entries(block, self.limits[start:end]):
                found.append((lists + start, keys, rows))
        lists, keys, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.counts += np.bincount(lists, minlength=len(self.counts))
        wanted, places = np.unique(rows, return_inverse=True)
        points, codes = block.some_points(wanted), block.some_codes(wanted)
        self._wait(Kept(self.counts, lists, keys, places, block.ids[wanted], points, codes))

    def join(self, other: Kept) -> None:
        """Take what the shortlist of a shard has kept."""
        self.counts += other.counts
        self._wait(other)

    def done(self) -> Kept:
        """Everything kept: entries by list and key, rows by number."""
        if self.whole is None:
            self._sort()
            self._drop_rows()
            self.whole = self.parts[0]
        return self.whole

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
        self.whole = None
        entries = sum(len(part.lists) for part in self.parts)
        if entries - self.sorted > max(ROOM, self.sorted):
            self._sort()
        if sum(len(part.ids) for part in self.parts) > max(ROOM, 2 * self.used):
            self._sort()
            self._drop_rows()

    def _sort(self) -> None:
        """Entries by list, key and place; those that have no room go, and limits come down."""
        whole = _concatenated(self.parts, self.counts)
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
        whole.lists, whole.keys, whole.places = lists[inside], keys[inside], places[inside]
        self.parts, self.sorted = [whole], len(whole.lists)

    def _drop_rows(self) -> None:
        """Rows that no entry names."""
        (whole,) = self.parts
        used = np.zeros(len(whole.ids), dtype=bool)
        used[whole.places] = True
        whole.places = (np.cumsum(used) - 1)[whole.places]
        whole.ids, whole.points = whole.ids[used], whole.points[used]
        whole.codes = None if whole.codes is None else whole.codes[used]
        self.used = len(whole.ids)


def _concatenated(parts: Sequence[Kept], counts: np.ndarray) -> Kept:
    firsts = np.cumsum([0, *(len(part.ids) for part in parts)])
    for part, first in zip(parts, firsts, strict=False):
        part.places = part.places + first
    columns = zip(*((p.lists, p.keys, p.places, p.ids, p.points) for p in parts), strict=True)
    codes = [part.codes for part in parts if part.codes is not None]
    lists, keys, places, ids, points = map(np.concatenate, columns)
    whole = np.concatenate(codes) if codes else None
    return Kept(counts, lists, keys, places, ids, points, whole)


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
        with threadpool_limits(1, "blas"):  # workers take shards, and do not split products
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
