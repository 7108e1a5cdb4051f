"""online/recent.py: the latest queries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crumb.online.recent import Recent, latest


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 20))
def test_the_recent_holds_the_latest_rows(sizes: list[int], size: int) -> None:
    recent, rows = Recent(size), np.arange(sum(sizes))[:, None]
    for piece in np.split(rows, np.cumsum(sizes)[:-1]):
        recent.add(piece)
    np.testing.assert_array_equal(latest(recent.pieces(), len(recent)), rows[-size:])
    assert len(recent) == recent.fresh == min(size, len(rows))
    assert sum(map(len, recent.pieces())) < size + 12  # memory is bounded


def test_rows_from_before_the_plan_are_not_fresh() -> None:
    recent = Recent(5)
    recent.add(np.zeros((4, 1)), fresh=False)
    recent.add(np.ones((2, 1)))
    assert (len(recent), recent.fresh) == (5, 2)
