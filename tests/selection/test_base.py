"""base.py: stage 1, and min_per_class."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb.selection import base as clustering
from crumb.selection.base import RareClasses, cluster, nearest_centroid, value_order


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 60))
def test_labels_are_nearest_centroids_and_no_cluster_is_empty(seed: int, k: int) -> None:
    points = np.random.default_rng(seed).normal(size=(40, 3))
    labels, centroids = cluster(points, k, seed)
    distance = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
    assert (labels == distance.argmin(axis=1)).all()
    assert set(labels) == set(range(len(centroids)))
    assert len(centroids) <= min(k, 40)


def test_separated_blobs_are_found() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 25)
    points = 20 * np.eye(4)[truth] + rng.normal(size=(100, 4))
    labels, centroids = cluster(points, 4, 0)
    assert len(centroids) == 4
    assert all(len(set(labels[truth == group])) == 1 for group in range(4))
    for group in range(4):
        np.testing.assert_allclose(
            centroids[group], points[labels == group].mean(axis=0), atol=1e-8
        )


def test_one_cluster_is_the_mean() -> None:
    points = np.random.default_rng(0).normal(size=(9, 2))
    labels, centroids = cluster(points, 1, 0)
    assert (labels == 0).all()
    np.testing.assert_allclose(centroids, points.mean(axis=0, keepdims=True))


@pytest.mark.parametrize("k", [3, 50])
def test_duplicate_queries_and_more_clusters_than_points(k: int) -> None:
    points = np.repeat(np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]), 4, axis=0)
    labels, centroids = cluster(points, k, 0)
    assert len(centroids) == 3
    assert [len(set(labels[i : i + 4])) for i in (0, 4, 8)] == [1, 1, 1]


def test_as_many_clusters_as_queries_gives_each_its_own() -> None:
    points = np.random.default_rng(3).normal(size=(30, 4))
    labels, centroids = cluster(points, 30, 0)
    assert sorted(labels) == list(range(30))
    np.testing.assert_allclose(centroids[labels], points, atol=1e-12)


def test_same_seed_same_clusters() -> None:
    points = np.random.default_rng(0).normal(size=(500, 5))
    first, again, other = (cluster(points, 10, seed)[0] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_many_threads_change_no_digit() -> None:
    """Threads that add up as they finish would give other last digits from run to run."""
    script = (
        "import numpy as np; from crumb.selection.base import cluster; "
        "points = np.random.default_rng(0).normal(size=(3_000, 8)); "
        "print(len({cluster(points, 12, 0)[1].tobytes() for _ in range(10)}))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "8"}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["1"]


def inertia(points: np.ndarray, centroids: np.ndarray) -> float:
    return float(((points[:, None] - centroids[None]) ** 2).sum(2).min(1).sum())


@pytest.mark.parametrize("spread", [0.0, 4.0], ids=["shapeless", "blobs"])
def test_very_large_problems_start_from_a_sample(
    spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    points = spread * rng.normal(size=(12, 4))[rng.integers(12, size=20_000)] + rng.normal(
        size=(20_000, 4)
    )
    full = inertia(points, cluster(points, 8, 0)[1])
    monkeypatch.setattr(clustering, "SAMPLE", 4_000)
    labels, centroids = cluster(points, 8, 0)
    assert inertia(points, centroids) < 1.01 * full
    np.testing.assert_array_equal(labels, nearest_centroid(points, centroids))
    np.testing.assert_array_equal(cluster(points, 8, 0)[0], labels)


def test_many_clusters_get_a_larger_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "SAMPLE", 100)
    points = np.random.default_rng(0).normal(size=(3_000, 2))
    labels, centroids = cluster(points, 150, 0)
    assert len(centroids) == 150
    assert set(labels) == set(range(150))


def test_a_small_group_far_out_keeps_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample may miss it; k-means on all points would not."""
    monkeypatch.setattr(clustering, "SAMPLE", 200)
    points = np.random.default_rng(0).normal(size=(20_000, 2))
    points[:3] += 60  # too little weight to drag a centroid along in a few passes
    for seed in range(4):  # a sample of a hundredth hardly ever has one of the three
        labels, _ = cluster(points, 8, seed)
        assert not np.isin(labels[3:], labels[:3]).any()


@pytest.mark.parametrize("sample", [10, 10_000], ids=["by sums", "by columns"])
@pytest.mark.parametrize("values", [2, 5, 10**6])
def test_value_order_does_not_depend_on_the_order_of_the_rows(
    values: int, sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "SAMPLE", sample)
    rng = np.random.default_rng(0)
    points = rng.integers(values, size=(500, 6)) / 7
    expected = points[value_order(points)]
    for _ in range(5):
        shuffled = points[rng.permutation(500)]
        np.testing.assert_array_equal(shuffled[value_order(shuffled)], expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_point_is_routed_the_same_alone_and_in_a_batch(dtype) -> None:
    """Also half-way between two centroids, where matrix products round one way or the other."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(12, 9)).astype(dtype) + 30
    pairs = rng.integers(0, 12, size=(400, 2))
    points = ((centroids[pairs[:, 0]] + centroids[pairs[:, 1]]) / 2).astype(dtype)
    batch = nearest_centroid(points, centroids)
    assert [int(nearest_centroid(point[None], centroids)[0]) for point in points] == batch.tolist()
    distances = np.linalg.norm(points[:, None].astype(np.float64) - centroids, axis=2)
    np.testing.assert_allclose(distances[np.arange(400), batch], distances.min(axis=1), rtol=1e-5)


def test_points_are_routed_in_blocks(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    points, centroids = rng.normal(size=(101, 3)), rng.normal(size=(7, 3))
    whole = nearest_centroid(points, centroids)
    monkeypatch.setattr("crumb.selection.base.ROUTE_CELLS", 70)
    assert nearest_centroid(points, centroids).tolist() == whole.tolist()
    assert nearest_centroid(points[:0], centroids).tolist() == []


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
