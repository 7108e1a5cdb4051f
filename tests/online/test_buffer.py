"""online/worker.py, the buffers: what is due when, with a time that the tests say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb.errors import StreamFull
from crumb.online.worker import Buffers


def buffers(b_min: int = 3, timeout: float = 10.0, max_pending: int = 100) -> Buffers[str]:
    return Buffers(b_min, timeout, max_pending)


def test_a_buffer_is_due_when_it_holds_b_min() -> None:
    waiting = buffers()
    waiting.add([((1, 0), "a"), ((1, 0), "b"), ((1, 1), "x")], now=0.0)
    assert waiting.due(0.0) is None
    waiting.add([((1, 0), "c")], now=1.0)
    assert waiting.due(1.0) == (1, 0)
    assert waiting.take((1, 0)) == ["a", "b", "c"]
    assert waiting.due(1.0) is None
    assert waiting.fill(1) == {1: 1}


def test_a_buffer_is_due_when_its_oldest_query_is() -> None:
    waiting = buffers()
    waiting.add([((1, 0), "a")], now=0.0)
    waiting.add([((1, 0), "b"), ((1, 1), "x")], now=4.0)
    assert waiting.next_due() == 10.0
    assert waiting.due(9.9) is None
    assert waiting.due(10.0) == (1, 0)
    assert waiting.take((1, 0)) == ["a", "b"]
    assert waiting.next_due() == 14.0
    assert waiting.due(14.0) == (1, 1)
    assert waiting.take((1, 1)) == ["x"]
    assert waiting.next_due() == math.inf


def test_the_buffer_whose_oldest_came_first_goes_first() -> None:
    waiting = buffers(b_min=1)
    waiting.add([((2, 1), "late")], now=5.0)
    waiting.add([((1, 7), "early")], now=1.0)
    assert waiting.due(5.0) == (1, 7)


def test_more_than_max_pending_is_refused_whole() -> None:
    waiting = buffers(max_pending=3)
    waiting.add([((1, 0), "a"), ((1, 0), "b")], now=0.0)
    with pytest.raises(StreamFull, match="max_pending=3"):
        waiting.add([((1, 0), "c"), ((1, 0), "d")], now=0.0)
    assert waiting.waiting() == ["a", "b"]
    waiting.take((1, 0))
    with pytest.raises(StreamFull):  # taken is not yet answered
        waiting.add([((1, 0), "c"), ((1, 0), "d")], now=0.0)
    waiting.done(2)
    waiting.add([((1, 0), "c"), ((1, 0), "d")], now=0.0)
    assert waiting.pending == 2


def test_who_gives_up_frees_his_place() -> None:
    waiting = buffers(max_pending=1)
    waiting.add([((1, 0), "a")], now=0.0)
    assert waiting.discard((1, 0), "a")
    assert not waiting.discard((1, 0), "a")
    assert waiting.pending == 0
    assert waiting.next_due() == math.inf
    waiting.add([((1, 0), "b")], now=0.0)


def test_hurry_is_for_those_who_wait_now() -> None:
    waiting = buffers()
    waiting.add([((1, 0), "a"), ((1, 1), "b")], now=0.0)
    waiting.hurry()
    assert waiting.take(waiting.due(0.0)) == ["a"]
    assert waiting.take(waiting.due(0.0)) == ["b"]
    waiting.add([((1, 0), "c")], now=0.0)
    assert waiting.due(0.0) is None
    assert waiting.take_all() == ["c"]


def test_adding_says_when_somebody_has_to_look() -> None:
    waiting = buffers()
    assert waiting.add([((1, 0), "a")], now=0.0) == 10.0
    assert waiting.add([((1, 0), "b")], now=1.0) == 11.0
    assert waiting.next_due() == 10.0
    assert waiting.add([((1, 0), "c"), ((1, 1), "d")], now=2.0) == 2.0  # full


def test_who_gives_up_leaves_nothing_behind() -> None:
    waiting = buffers()
    waiting.add([((1, 0), "a")], now=0.0)
    waiting.add([((1, 0), "b")], now=2.0)
    waiting.discard((1, 0), "a")
    assert waiting.next_due() == 12.0
    assert waiting.take((1, 0)) == ["b"]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), max_size=40), st.integers(1, 6))
def test_everything_is_taken_once_and_in_order(
    arrivals: list[tuple[int, float]], b_min: int
) -> None:
    waiting: Buffers[int] = Buffers(b_min, 2.0, 1_000)
    now, taken, came = 0.0, {}, {}
    for item, (cluster, gap) in enumerate(arrivals):
        now += gap
        came.setdefault(cluster, []).append(item)
        waiting.add([((1, cluster), item)], now)
        while (key := waiting.due(now)) is not None:
            batch = waiting.take(key)
            taken.setdefault(key[1], []).extend(batch)
            waiting.done(len(batch))
    while (now := waiting.next_due()) < math.inf:
        key = waiting.due(now)
        batch = waiting.take(key)
        taken.setdefault(key[1], []).extend(batch)
        waiting.done(len(batch))
    assert taken == came
    assert waiting.pending == 0
