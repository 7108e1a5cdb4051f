"""online/window.py: the latest queries."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crumb.online.window import Window, latest


@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 20))
def test_the_window_holds_the_latest_rows(sizes: list[int], size: int) -> None:
    window, rows = Window(size), np.arange(sum(sizes))[:, None]
    for piece in np.split(rows, np.cumsum(sizes)[:-1]):
        window.add(piece)
    np.testing.assert_array_equal(latest(window.pieces(), len(window)), rows[-size:])
    assert len(window) == window.fresh == min(size, len(rows))
    assert sum(map(len, window.pieces())) < size + 12  # memory is bounded


def test_rows_from_before_the_plan_are_not_fresh() -> None:
    window = Window(5)
    window.add(np.zeros((4, 1)), fresh=False)
    window.add(np.ones((2, 1)))
    assert (len(window), window.fresh) == (5, 2)
