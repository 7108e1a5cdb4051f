"""neighbours.py: which rows of a pool in memory are candidates."""

from __future__ import annotations

import numpy as np

from crumb.herding import neighbours
from crumb.herding.neighbours import PoolCandidates, asking
from crumb.rng import row_numbers


def test_of_large_pools_a_random_share_is_looked_at(monkeypatch):
    """As many rows as distances are worth computing, but enough to choose from."""
    rng = np.random.default_rng(1)
    points, queries = rng.normal(size=(6_000, 4)), rng.normal(size=(10, 4))

    def candidates(n: int) -> PoolCandidates:
        return PoolCandidates(points, queries, np.zeros(10, dtype=int), n, 5)

    monkeypatch.setattr(neighbours, "PAIRS", 6_000)
    monkeypatch.setattr(neighbours, "PAIRS_A_ROW", 0)
    for count in (250, 5_000):
        (rows,) = candidates(10)([0], count)
        assert (row_numbers(rows, 5, "rows") < 0.1).all()
        assert len(rows) == min(count, len(candidates(10).rows))
    assert len(candidates(10)([0], 6_000)[0]) == 6_000
    assert 4 * 12 * 50 * 0.9 < len(candidates(50).rows) < 4 * 12 * 50 * 1.1
    monkeypatch.setattr(neighbours, "PAIRS_A_ROW", 1_500)  # the passes see 10 + 10 rows
    assert 0.45 * 6_000 < len(candidates(10).rows) < 0.55 * 6_000


def test_as_many_queries_ask_as_a_context_has_rows():
    labels = np.repeat([0, 1, 2], [5, 30, 12])
    found = asking(labels, 12, 0)
    assert [len(some) for some in found] == [5, 12, 12]
    for k, some in enumerate(found):
        assert (labels[some] == k).all()
        assert (np.diff(some) > 0).all()
    assert not np.array_equal(found[1], asking(labels, 12, 1)[1])
