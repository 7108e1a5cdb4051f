"""online/drift.py: what is drift, and what is chance."""

from __future__ import annotations

import numpy as np
import pytest

from crumb.online.drift import SAMPLE, Baseline


def baseline(points: np.ndarray, k: int = 8) -> Baseline:
    return Baseline.of(points, k, 2.0, 0)


@pytest.mark.parametrize("k", [1, 20])
def test_queries_of_the_same_kind_are_no_drift(k: int) -> None:
    alarms = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        alarms += (
            baseline(rng.normal(size=(150, 4)), k)
            .compare(rng.normal(size=(150, 4)), 0.05, seed)
            .found
        )
    assert alarms <= 8  # 5 % of 60 are 3; more than 8 with probability 0.003


@pytest.mark.parametrize(
    "change",
    [lambda x: x + 0.5, lambda x: 1.6 * x, lambda x: np.abs(x)],
    ids=["shift", "wider", "folded"],
)
def test_other_queries_are(change) -> None:
    rng = np.random.default_rng(0)
    found = baseline(rng.normal(size=(200, 4))).compare(change(rng.normal(size=(200, 4))), 0.01, 0)
    assert found.found
    assert found.mmd2 > 0


def test_distances_tell_of_queries_that_are_farther_out() -> None:
    rng = np.random.default_rng(0)
    look = baseline(rng.normal(size=(300, 4)))
    assert 0.8 < look.compare(rng.normal(size=(300, 4)), 0.01, 0).distance < 1.2
    assert look.compare(3 * rng.normal(size=(300, 4)), 0.01, 0).distance > 1.5


def test_equal_queries_have_no_spread_and_no_drift() -> None:
    same = np.ones((50, 3))
    look = Baseline.of(same, 3, 1.0, 0)
    assert not look.compare(same, 0.01, 0).found
    assert look.compare(same + 0.5, 0.01, 0).found


def test_one_query_is_enough_to_begin_with() -> None:
    look = Baseline.of(np.zeros((1, 2)), 1, 1.0, 0)
    assert np.isfinite(look.compare(np.ones((3, 2)), 0.01, 0).score)


def test_the_sample_is_bounded_and_drawn_from_all() -> None:
    points = np.arange(4_000.0)[:, None]
    look = Baseline.of(points, 1, 1.0, 0)
    assert len(look.points) == len(look.distances) == SAMPLE
    assert look.points.max() > 3_000
