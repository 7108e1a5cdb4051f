"""The rows that some rule wants: collected block by block, joined shard by shard.

A shortlist knows, for each bin, how many rows were counted, the entries kept so far and the key above which no other
row will do. What is kept at the end depends on the rows alone, not on how they were cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crumb.scale.rules import Look, Rule

ROOM = 200_000  # entries that may wait before they are sorted in


@dataclass
class Kept:
    """What a shard sends back."""

    counts: np.ndarray
    bins: np.ndarray
    keys: np.ndarray
    members: np.ndarray  # row numbers of the entries
    ids: np.ndarray  # rows, each once, in order
    points: np.ndarray
    codes: np.ndarray | None


class Shortlist:
    def __init__(self, rules: Sequence[Rule], columns: int, with_codes: bool, limits: np.ndarray | None = None):
        self.rules = rules
        self.starts = np.cumsum([0, *(rule.n_bins for rule in rules)])
        self.counts = np.zeros(self.starts[-1], dtype=np.int64)
        self.limits = np.full(self.starts[-1], np.inf) if limits is None else limits.copy()
        nothing = np.empty(0, dtype=np.int64)
        codes = nothing if with_codes else None
        self.kept = Kept(self.counts, nothing, np.empty(0), nothing, nothing, np.empty((0, columns)), codes)
        self.waiting: list[Kept] = []

    def look(self, look: Look) -> None:
        """Take what the rules want of a block."""
        found = []
        for rule, start, end in zip(self.rules, self.starts[:-1], self.starts[1:], strict=True):
            for bins, keys, rows in rule.find(look, self.limits[start:end], self.counts[start:end]):
                found.append((bins + start, keys, rows))
        bins, keys, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        used = np.unique(rows)
        codes = None if look.codes is None else look.codes[used]
        self._wait(Kept(self.counts, bins, keys, look.ids[rows], look.ids[used], look.points[used], codes))

    def join(self, other: Kept) -> None:
        """Take what another shortlist has kept."""
        self.counts += other.counts
        self._wait(other)

    def done(self) -> Kept:
        self._compact()
        return self.kept

    def _wait(self, more: Kept) -> None:
        self.waiting.append(more)
        if sum(len(some.bins) for some in self.waiting) > max(ROOM, len(self.kept.bins) // 2):
            self._compact()

    def _compact(self) -> None:
        """Sort what waits into what is kept, and let go of everything above the caps."""
        parts = [self.kept, *self.waiting]
        self.waiting = []
        bins, keys, members = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("bins", "keys", "members")
        )
        caps = self._caps()
        order = np.lexsort((members, keys, bins))
        bins, keys, members = bins[order], keys[order], members[order]
        first = np.searchsorted(bins, np.arange(len(caps)))
        inside = np.arange(len(bins)) - first[bins] < caps[bins]
        bins, keys, members = bins[inside], keys[inside], members[inside]
        held = np.bincount(bins, minlength=len(caps))
        full = (held >= caps) & (held > 0)
        last = np.searchsorted(bins, np.arange(len(caps)), side="right") - 1
        self.limits[full] = np.minimum(self.limits[full], keys[last[full]])
        self.limits[caps == 0] = -np.inf
        ids, where = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
        used = np.isin(ids, members)
        where = where[used]
        points = np.concatenate([part.points for part in parts])[where]
        codes = None
        if self.kept.codes is not None:
            codes = np.concatenate([part.codes for part in parts if part.codes is not None])[where]
        self.kept = Kept(self.counts, bins, keys, members, ids[used], points, codes)

    def _caps(self) -> np.ndarray:
        return np.concatenate(
            [
                rule.caps(self.counts[start:end])
                for rule, start, end in zip(self.rules, self.starts[:-1], self.starts[1:], strict=True)
            ]
        )

    def bins_of(self, number: int) -> list[np.ndarray]:
        """The entries of each bin of one rule, lowest key first, as positions in ``kept.ids``."""
        kept = self.done()
        places = np.searchsorted(kept.ids, kept.members)
        edges = np.searchsorted(kept.bins, np.arange(self.starts[number], self.starts[number + 1] + 1))
        return np.split(places[edges[0] : edges[-1]], (edges - edges[0])[1:-1])
