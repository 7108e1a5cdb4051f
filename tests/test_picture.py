"""Pictures: the right things drawn, nothing left behind, no global state touched."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

from crumb import select_contexts
from crumb.errors import InvalidInput
from crumb.picture import Plane, draw_plan, serving_cluster

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(5, 4))
    pool = centres[rng.integers(5, size=600)] + rng.normal(size=(600, 4))
    return pool, centres[rng.integers(2, size=50)] + rng.normal(size=(50, 4))


@pytest.fixture(scope="module")
def plans(tables):
    return {
        name: select_contexts(*tables, strategy=name, context_size=40, n_clusters=n_clusters)
        for name, n_clusters in (("uniform", "auto"), ("micp", "auto"), ("mmd", 3), ("knn", "auto"))
    }


@pytest.fixture
def plan(plans):
    return plans["mmd"]


def test_the_largest_cluster_is_shown_with_its_traces(plan):
    figure = plan.plot()
    largest = np.bincount(plan.labels).argmax()
    points, traces = figure.axes
    assert points.get_title().startswith(
        f"cluster {largest} of 3: {(plan.labels == largest).sum()} queries"
    )
    drawn = {cloud.get_label(): len(cloud.get_offsets()) for cloud in points.collections}
    assert drawn["pool"] == 600
    assert drawn["context"] == 40
    assert drawn["queries of the cluster"] + drawn["other queries"] == 50
    assert len(traces.lines) == 3
    assert traces.get_yscale() == "log"
    highlighted = next(line for line in traces.lines if line.get_label() == f"cluster {largest}")
    np.testing.assert_allclose(highlighted.get_ydata(), plan.mmd2[largest])


def test_a_trace_that_rises_after_its_minimum_says_why(plan):
    rising = replace(plan, mmd2=[np.array([0.5, 0.1, 0.2])] * 3)
    falling = replace(plan, mmd2=[np.array([0.5, 0.2, 0.1])] * 3)
    said = [draw_plan(one).axes[0].get_xlabel() for one in (rising, falling)]
    assert said[1] == "rows in the context"
    assert "MMD² is least with 2 rows. It rises after that: a row is taken only once" in said[0]


def test_another_cluster_can_be_asked_for(plan):
    smallest = int(np.bincount(plan.labels).argmin())
    assert plan.plot(cluster=smallest).axes[0].get_title().startswith(f"cluster {smallest} of 3")
    for wrong in (3, -1):
        with pytest.raises(InvalidInput, match="clusters 0 to 2"):
            plan.plot(cluster=wrong)


def test_without_points_only_the_traces_are_drawn(plan):
    assert len(draw_plan(plan).axes) == 1


def test_traces_that_were_not_measured_are_said_to_be_missing(tables, monkeypatch):
    monkeypatch.setattr("crumb.evidence.EVIDENCE_VALUES", 0)
    plan = select_contexts(*tables, strategy="uniform", context_size=40)
    axes = plan.plot().axes[-1]
    assert [text.get_text() for text in axes.texts] == ["MMD² was not measured"]
    assert not axes.lines


def test_an_mmd_of_zero_has_no_logarithm(tables):
    pool = np.ones((5, 2))
    plan = select_contexts(pool, pool, context_size=3, n_clusters=1)
    assert plan.plot().axes[-1].get_yscale() == "linear"


@pytest.mark.parametrize("shape", [(200, 1), (1, 3), (2, 2)])
def test_small_spaces_can_be_drawn(shape, tmp_path):
    pool = np.random.default_rng(0).normal(size=shape)
    plan = select_contexts(pool, pool[:3] + 0.1, context_size=min(20, len(pool)), n_clusters=2)
    plan.plot(path=tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(PNG)


def test_large_pools_are_sampled_the_same_way_every_time(tmp_path):
    rng = np.random.default_rng(0)
    plan = select_contexts(
        rng.normal(size=(9_000, 3)), rng.normal(size=(20, 3)), context_size=20, n_clusters=2
    )
    clouds = [plan.plot().axes[0].collections[0].get_offsets() for _ in range(2)]
    assert len(clouds[0]) == 3_000
    np.testing.assert_array_equal(*clouds)


def test_points_of_another_table_are_refused(plan, tables):
    pool, queries = tables
    with pytest.raises(InvalidInput, match="600 pool rows and 50 queries"):
        draw_plan(plan, pool[:-1], queries)
    with pytest.raises(InvalidInput, match="same columns"):
        draw_plan(plan, pool, queries[:, :2])


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", PNG), ("b.pdf", b"%PDF"), ("c.svg", b"<?xml"), ("d", PNG)]
)
def test_the_suffix_decides_the_format(plan, tmp_path, name, start):
    plan.plot(path=tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_picture_that_cannot_be_made_leaves_the_older_one(plan, tmp_path):
    path = tmp_path / "plan.doc"
    path.write_text("older")
    with pytest.raises(ValueError, match="doc"):
        plan.plot(path=path)
    assert [item.name for item in tmp_path.iterdir()] == ["plan.doc"]
    assert path.read_text() == "older"


def test_pyplot_is_never_involved(plan):
    already = "matplotlib.pyplot" in sys.modules
    plan.plot()
    assert ("matplotlib.pyplot" in sys.modules) == already


def test_rounding_noise_does_not_stretch_the_axis(plan):
    largest = int(np.bincount(plan.labels).argmax())
    noisy = replace(plan, mmd2=[np.array([0.1, 0.01, 1e-17]) for _ in plan.mmd2])
    low, _ = draw_plan(noisy, cluster=largest).axes[0].get_ylim()
    assert low >= 1e-12


def test_the_cluster_that_serves_a_group_is_that_of_most_of_its_queries(plans, plan):
    for name in ("uniform", "micp"):
        labels, clusters = plans[name].labels, plans[name].n_clusters
        for members in (plan.labels == k for k in range(plan.n_clusters)):
            used = np.bincount(labels[members], minlength=clusters).argmax()
            assert serving_cluster(plans[name], members) == used


def test_axes_are_the_principal_components():
    rng = np.random.default_rng(0)
    pool, queries = rng.normal(size=(600, 4)) * [1, 4, 2, 3], rng.normal(size=(50, 4))
    plane, pca = Plane.of(pool), PCA(2).fit(pool)
    np.testing.assert_allclose(plane.shares, pca.explained_variance_ratio_)
    np.testing.assert_allclose(np.abs(plane(queries)), np.abs(pca.transform(queries)), atol=1e-9)
