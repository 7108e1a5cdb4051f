"""settings.py: numbers that the user chooses."""

from __future__ import annotations

import pytest

from crumb.errors import InvalidInput
from crumb.herding import EarlyStopping
from crumb.settings import (
    EXACT_KERNEL_VALUES,
    check_bandwidth,
    non_negative,
    paper_configuration,
    positive,
    resolve_context_size,
    resolve_early_stopping,
    resolve_kernel,
)


@pytest.mark.parametrize(
    ("given", "n"), [(50, 50), (1, 1), (0.1, 100), (1.0, 1_000), (0.0001, 1), ("auto", 1_000), (1_000, 1_000)]
)
def test_context_size_is_a_count_or_a_share(given, n: int) -> None:
    assert resolve_context_size(given, 1_000) == n


def test_auto_is_a_thousand_and_never_more_than_the_pool() -> None:
    assert resolve_context_size("auto", 10**6) == 1_000
    assert resolve_context_size("auto", 300) == 300


def test_more_than_the_pool_or_the_window_is_said() -> None:
    with pytest.warns(UserWarning, match="all 80 rows are used"):
        assert resolve_context_size(100, 80) == 80
    with pytest.warns(UserWarning, match="more than the 500 that the model was made for"):
        assert resolve_context_size(0.1, 10_000, window=500) == 500


@pytest.mark.parametrize("wrong", [0, -1, 0.0, -0.5, 1.5, True, "many", None, float("nan")])
def test_senseless_context_sizes_are_refused(wrong) -> None:
    with pytest.raises(InvalidInput, match="context_size must be"):
        resolve_context_size(wrong, 100)


def test_auto_kernel_goes_by_the_cost() -> None:
    limit = EXACT_KERNEL_VALUES["cpu"]
    cheap = resolve_kernel("auto", 64, "auto", 1.0, limit)
    dear = resolve_kernel("auto", 64, "auto", 1.0, limit + 1)
    assert resolve_kernel("auto", 64, "auto", 1.0, limit + 1, "cuda").name == "exact"
    assert (cheap.name, cheap.batch) == ("exact", 1)
    assert (dear.name, dear.batch, dear.rff_dim) == ("rff", 10, 64)
    assert resolve_kernel("exact", 64, 7, 1.0, 1e30).batch == 7


def test_unknown_kernel_and_senseless_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="Unknown kernel 'linear'"):
        resolve_kernel("linear", 64, 1, 1.0, 0)
    for name, arguments in {"rff_dim": (0, 1), "herd_batch": (64, 0)}.items():
        with pytest.raises(InvalidInput, match=name):
            resolve_kernel("rff", *arguments, 1.0, 0)
    for wrong in (0, -1.0, "mean", True, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="bandwidth must be"):
            check_bandwidth(wrong)
    for wrong in (0, -3, 1.5, True, "2"):
        with pytest.raises(InvalidInput, match="n_clusters must be"):
            positive("n_clusters", wrong)
    with pytest.raises(InvalidInput, match="min_per_class must be"):
        non_negative("min_per_class", -1)
    with pytest.raises(InvalidInput, match="early_stopping must be"):
        resolve_early_stopping("yes")


def test_early_stopping_is_off_on_or_one_s_own() -> None:
    assert resolve_early_stopping(False) is None
    assert resolve_early_stopping(True) == EarlyStopping(50, None, 1e-4, 5)
    own = EarlyStopping(patience=1)
    assert resolve_early_stopping(own) is own


def test_the_paper_is_one_setting_away() -> None:
    assert paper_configuration() == {
        "strategy": "mmd",
        "n_clusters": 20,
        "context_size": 0.1,
        "kernel": "rff",
        "rff_dim": 64,
        "herd_batch": 50,
        "bandwidth": "median",
        "early_stopping": False,
        "min_per_class": 0,
    }
