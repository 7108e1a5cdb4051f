"""Numbers as people write them."""

from __future__ import annotations

import math

import pytest

from experiments.report import numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (0.106, "0.106"),
        (0.9996, "1"),
        (3.2e-8, "3.2·10⁻⁸"),
        (0.0, "< 10⁻³⁰⁰"),
        (math.nan, "–"),
    ],
)
def test_p_values(value, shown):
    assert numbers.p_value(value) == shown


def test_numbers_have_a_true_minus_and_no_minus_nought():
    assert numbers.fixed(-1234.5678, 2) == "−1,234.57"
    assert numbers.fixed(-0.0001, 2) == "0.00"
    assert numbers.fixed(0.05, 1, sign=True) == "+0.1"
    assert numbers.fixed(None) == numbers.fixed(math.inf) == "–"


def test_means_without_an_error_stand_alone():
    assert numbers.plus_minus(0.5, 0.01) == "0.500 ± 0.010"
    assert numbers.plus_minus(0.5, math.nan) == "0.500"
    assert numbers.plus_minus(math.nan, 0.1) == "–"


def test_sizes_and_times():
    assert [numbers.short(value) for value in (0.05, 500, 10_000, 2_500_000)] == [
        "0.05",
        "500",
        "10k",
        "2.5M",
    ]
    assert [numbers.seconds(value) for value in (0.0123, 0.25, 12.34, 361.4)] == [
        "0.012",
        "0.25",
        "12.3",
        "361",
    ]
    assert numbers.small(2.13e-6) == "2.1·10⁻⁶"
    assert numbers.span([500, 1000, math.nan, 500]) == "500, 1,000"
    assert numbers.span(range(10)) == "0 to 9 (10 values)"
    assert numbers.span([]) == "–"


def test_counts_and_names():
    assert numbers.counted(1, "run") == "1 run"
    assert numbers.counted(1200, "run") == "1,200 runs"
    assert numbers.code("a`b") == "`a'b`"


def test_the_best_of_one_is_nothing_special():
    nan = math.nan
    assert numbers.column([1.0, 2.0, nan, 2.0], "0>") == ["1", "**2**", "–", "**2**"]
    assert numbers.column([1.0, 2.0], "0<") == ["**1**", "2"]
    assert numbers.column([(1.0, 0.5), (2.0, 0.5)], "1<") == ["**1.0 ± 0.5**", "2.0 ± 0.5"]
    assert numbers.column([1.0], "0>") == ["1"]


def test_a_column_is_written_as_it_says():
    assert numbers.column([0.5, "a", None], "+2") == ["+0.50", "a", "–"]
    assert numbers.column([0.0123], "s") == ["0.012"]
    assert numbers.column([2.13e-6], "e") == ["2.1·10⁻⁶"]
    assert numbers.column([0.106], "p") == numbers.column([0.106]) == ["0.106"]
