"""base.py: min_per_class."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.selection.base import RareClasses


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    minimum=st.integers(1, 8),
    size=st.integers(1, 40),
    classes=st.integers(1, 9),
)
def test_every_class_is_kept_within_the_budget(
    seed: int, minimum: int, size: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate(
        [np.arange(classes), rng.choice(classes, 60, p=rng.dirichlet(np.full(classes, 0.3)))]
    )
    pool = rng.normal(size=(len(y), 2))
    context = rng.choice(len(y), size, replace=False)
    guarded = RareClasses(pool, y, minimum).keep(context, pool.mean(axis=0))
    assert len(guarded) == size
    assert len(set(guarded.tolist())) == size
    total, present = np.bincount(y, minlength=classes), np.bincount(y[guarded], minlength=classes)
    fits = [m for m in range(1, minimum + 1) if np.minimum(total, m).sum() <= size]
    if fits:
        assert (present >= np.minimum(total, max(fits))).all()
    else:
        assert guarded.tolist() == context.tolist()
    # Rows that stay keep their order and stand before those that came in.
    stayed = [row for row in context if row in set(guarded)]
    assert guarded[: len(stayed)].tolist() == stayed


def test_the_nearest_rows_come_in_and_the_last_rows_go() -> None:
    pool = np.arange(10.0)[:, None]
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    guarded = RareClasses(pool, y, 2).keep(np.array([2, 0, 1, 3]), np.array([1.0]))
    assert guarded.tolist() == [2, 0, 6, 7]


def test_nothing_changes_where_nothing_is_missing() -> None:
    pool, y = np.zeros((6, 1)), np.array([0, 1, 0, 1, 0, 1])
    context = np.array([5, 0, 3])
    assert RareClasses(pool, y, 1).keep(context, np.zeros(1)) is context


def test_many_classes_swap_a_tenth_of_a_context_and_take_the_nearest() -> None:
    rng = np.random.default_rng(0)
    pool, y = rng.normal(size=(5_000, 3)), np.arange(5_000) % 400
    context = np.argsort(((pool - 1.0) ** 2).sum(axis=1))[:400]
    guarded = RareClasses(pool, y, 1).keep(context, np.ones(3))
    new = np.setdiff1d(guarded, context)
    assert len(new) == 40
    assert len(np.unique(y[guarded])) == len(np.unique(y[context])) + 40
    others = np.setdiff1d(np.flatnonzero(~np.isin(y, y[guarded])), context)
    distance = ((pool - 1.0) ** 2).sum(axis=1)
    assert distance[new].max() < distance[others].min()


def test_the_work_does_not_grow_with_the_number_of_classes() -> None:
    """Rows of a class are looked up, not searched for in the whole pool."""
    rng = np.random.default_rng(0)
    pool, y = rng.normal(size=(60_000, 2)), np.arange(60_000) % 3_000
    rare = RareClasses(pool, y, 1)
    started = time.process_time()
    for _ in range(20):
        rare.keep(rng.choice(60_000, 3_000, replace=False), np.zeros(2))
    assert time.process_time() - started < 3  # 20 × 1,000 searches took half a minute
