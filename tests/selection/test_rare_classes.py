"""base.py: min_per_class."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.selection.base import keep_rare_classes


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
    guarded = keep_rare_classes(context, pool.mean(axis=0), pool, y, minimum)
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
    guarded = keep_rare_classes(np.array([2, 0, 1, 3]), np.array([1.0]), pool, y, 2)
    assert guarded.tolist() == [2, 0, 6, 7]


def test_nothing_changes_where_nothing_is_missing() -> None:
    pool, y = np.zeros((6, 1)), np.array([0, 1, 0, 1, 0, 1])
    context = np.array([5, 0, 3])
    assert keep_rare_classes(context, np.zeros(1), pool, y, 1) is context
