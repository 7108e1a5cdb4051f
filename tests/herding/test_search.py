"""search.py: kernel values counted beforehand are those that are computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb.herding.search import WORKSPACE_BYTES, Load, resolve_search


def test_exact_herding_is_herding_among_all_rows() -> None:
    load = Load(rows=1_000, queries=60, clusters=3, context_size=10)
    assert load.exact == 1_000 * (3 * 10 + 60)
    assert load.among(100) == 100 * (3 * 10 + 60)


def test_kernel_values_among_queries_count_as_time_but_decide_nothing() -> None:
    few, many = (Load(1_000_000, queries, 20, 20) for queries in (1_000, 300_000))
    assert many.within == 300_000**2 // 40
    assert few.seconds(10**9, "cpu", 1) == pytest.approx((10**9 + few.within) * 1e-8)
    assert many.candidates_for(10**9) == (10**9 - many.neighbours) // (20 * 20 + 300_000)


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**4),
    st.integers(1, 50),
    st.integers(1, 5_000),
    st.integers(0, 10**12),
)
def test_the_candidates_for_a_price_cost_no_more(
    rows: int, queries: int, clusters: int, n: int, price: int
):
    load = Load(rows, queries, clusters, n)
    count = load.candidates_for(price)
    assert count >= 0
    assert load.neighbours <= 0.15 * rows * queries + 1
    assert load.among(count + 1) + load.neighbours > price
    assert count == 0 or load.among(count) + load.neighbours <= price


def test_more_columns_make_a_kernel_value_dearer() -> None:
    few, many = (Load(10_000, 100, 10, 100, columns) for columns in (20, 107))
    assert many.exact == 2 * few.exact
    assert many.candidates_for(10**9) == few.candidates_for(10**9 // 2)
    assert Load(10_000, 100, 10, 100).exact == few.exact


def held_bytes(load: Load, way: str, **more) -> int:
    search = resolve_search(way, more.pop("rff_dim", 256), "auto", load)
    return load.bytes("cpu", 1, search) - WORKSPACE_BYTES


def test_bytes_are_those_of_the_way_that_is_taken() -> None:
    load = Load(1_000_000, 20_000, 400, 500)
    assert held_bytes(load, "exact") == 16 * 1_000_000 * 400  # cross-terms and running sums
    assert held_bytes(load, "rff") == 1_000_000 * (4 * 256 + 400)
    assert held_bytes(load, "rff", rff_dim=16) == 1_000_000 * (8 * 16 + 400)
    auto = resolve_search("auto", 256, "auto", load, affordable=2 * 10**9)
    assert auto.name == "candidates"  # whatever the rows and clusters: those of a thread
    assert load.bytes("cpu", 1, auto) < load.bytes("cpu", 2, auto) < 300_000_000
