"""The rows that some rule wants: collected block by block, joined shard by shard.

A shortlist knows, for each bin, how many rows were found, the entries kept so far and the key above which no other
row will do. What is kept at the end depends on the rows alone, not on how they were cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crumb.scale.look import Look
from crumb.scale.rules import Rule

ROOM = 1 << 20  # entries, or rows, that may wait before they are gone through


@dataclass
class Kept:
    """Rows, and the entries that name them: what a shard sends back."""

    counts: np.ndarray  # rows found for each bin, under the limits of the time
    bins: np.ndarray  # of the entries
    keys: np.ndarray
    places: np.ndarray  # of their rows among these:
    ids: np.ndarray  # row numbers in the pool, rising
    points: np.ndarray
    codes: np.ndarray | None


class Shortlist:
    """``look`` at blocks and ``join`` what others kept in the order of the pool, so that ties go to the first row."""

    def __init__(self, rules: Sequence[Rule], limits: np.ndarray | None = None):
        self.rules = rules
        self.starts = np.cumsum([0, *(rule.n_bins for rule in rules)])
        self.counts = np.zeros(self.starts[-1], dtype=np.int64)
        self.limits = np.full(self.starts[-1], np.inf) if limits is None else limits.copy()
        self.parts: list[Kept] = []
        self.sorted_in = self.used = (
            0  # entries and rows after the last time that they were gone through
        )

    def look(self, look: Look) -> None:
        """Take what the rules want of a block."""
        found = []
        for rule, start, end in zip(self.rules, self.starts[:-1], self.starts[1:], strict=True):
            for bins, keys, rows in rule.find(look, self.limits[start:end]):
                found.append((bins + start, keys, rows))
        bins, keys, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        self.counts += np.bincount(bins, minlength=len(self.counts))
        wanted, places = np.unique(rows, return_inverse=True)
        kept = look.ids[wanted], look.some_points(wanted), look.some_codes(wanted)
        self._wait(Kept(self.counts, bins, keys, places, *kept))

    def join(self, other: Kept) -> None:
        """Take what another shortlist has kept."""
        self.counts += other.counts
        self._wait(other)

    def done(self) -> Kept:
        """Everything kept: entries by bin and key, rows by number."""
        self._sort_in()
        self._let_go()
        return self.parts[0]

    def bins_of(self, number: int) -> list[np.ndarray]:
        """The places of each bin of one rule, lowest key first."""
        kept = self.done()
        edges = np.searchsorted(
            kept.bins, np.arange(self.starts[number], self.starts[number + 1] + 1)
        )
        return np.split(kept.places[edges[0] : edges[-1]], (edges - edges[0])[1:-1])

    def _wait(self, more: Kept) -> None:
        self.parts.append(more)
        if sum(len(part.bins) for part in self.parts) - self.sorted_in > max(ROOM, self.sorted_in):
            self._sort_in()
        if sum(len(part.ids) for part in self.parts) > max(ROOM, 2 * self.used):
            self._sort_in()
            self._let_go()

    def _sort_in(self) -> None:
        """All entries by bin, key and place; those above the caps go, and the limits come down."""
        whole = _concatenated(self.parts, self.counts)
        below = (
            whole.keys <= self.limits[whole.bins]
        )  # a limit may have come down while they waited
        bins, keys, places = whole.bins[below], whole.keys[below], whole.places[below]
        # Stable sorts leave equal keys in the order of the pool, in which they came. 16 bits sort by radix.
        order = np.argsort(keys, kind="stable")
        small = bins.astype(np.int16 if self.starts[-1] < 2**15 else np.int64)
        order = order[np.argsort(small[order], kind="stable")]
        bins, keys, places = bins[order], keys[order], places[order]
        caps = np.concatenate(
            [
                rule.caps(self.counts[start:end])
                for rule, start, end in zip(
                    self.rules, self.starts[:-1], self.starts[1:], strict=True
                )
            ]
        )
        edges = np.searchsorted(bins, np.arange(len(caps) + 1))
        inside = np.arange(len(bins)) - edges[bins] < caps[bins]
        full = (np.diff(edges) >= caps) & (caps > 0)
        self.limits[full] = np.minimum(self.limits[full], keys[(edges[:-1] + caps - 1)[full]])
        self.limits[caps == 0] = -np.inf
        whole.bins, whole.keys, whole.places = bins[inside], keys[inside], places[inside]
        self.parts, self.sorted_in = [whole], len(whole.bins)

    def _let_go(self) -> None:
        """Of the rows only those that some entry names."""
        (whole,) = self.parts
        used = np.zeros(len(whole.ids), dtype=bool)
        used[whole.places] = True
        whole.places = (np.cumsum(used) - 1)[whole.places]
        whole.ids, whole.points = whole.ids[used], whole.points[used]
        whole.codes = None if whole.codes is None else whole.codes[used]
        self.used = len(whole.ids)


def _concatenated(parts: Sequence[Kept], counts: np.ndarray) -> Kept:
    firsts = np.cumsum([0, *(len(part.ids) for part in parts)])
    codes = [part.codes for part in parts if part.codes is not None]
    return Kept(
        counts,
        np.concatenate([part.bins for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate(
            [part.places + first for part, first in zip(parts, firsts[:-1], strict=True)]
        ),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.points for part in parts]),
        np.concatenate(codes) if codes else None,
    )
