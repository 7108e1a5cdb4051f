"""plan.py: the plan, its evidence and its file."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import zipfile
from functools import partial

import brute_force
import numpy as np
import pandas as pd
import pytest
import tqdm
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb import MICP, MMD, EarlyStopping, Plan, select_contexts
from crumb.errors import InvalidInput, PlanMismatch
from crumb.options import Options
from crumb.selection import Problem
from crumb.selection.base import TableFinder

RNG = np.random.default_rng(0)
POOL, QUERIES = RNG.normal(size=(300, 4)) * [1, 2, 3, 4], RNG.normal(size=(60, 4)) + 0.5


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6), k=st.integers(1, 8), n=st.integers(1, 60), sigma=st.floats(0.8, 4)
)
def test_select_contexts_is_the_paper_by_brute_force(
    seed: int, k: int, n: int, sigma: float
) -> None:
    rng = np.random.default_rng(seed)
    pool, queries = rng.normal(size=(80, 3)) * [1, 5, 0.1], rng.normal(size=(25, 3))
    plan = select_contexts(
        pool,
        queries,
        n_clusters=k,
        context_size=n,
        kernel="exact",
        bandwidth=sigma,
        random_state=seed,
    )
    z, zq = brute_force.standardise(pool, queries)
    assert plan.n_clusters <= k
    for cluster, context in enumerate(plan.contexts):
        members = zq[plan.labels == cluster]
        assert context.tolist() == brute_force.greedy(z, members, n, sigma)
        direct = [brute_force.mmd2(z[context[: t + 1]], members, sigma) for t in range(n)]
        np.testing.assert_allclose(plan.mmd2[cluster], direct, atol=1e-12)


def test_what_a_plan_tells() -> None:
    plan = select_contexts(POOL, QUERIES, n_clusters=5, context_size=40)
    z, zq = brute_force.standardise(POOL, QUERIES)
    assert plan.sizes.tolist() == [40] * 5
    assert plan.final_mmd2.shape == (5,)
    assert plan.stop_reasons == ["context size"] * 5
    for query, label in enumerate(plan.labels):
        nearest = np.linalg.norm(z[plan.contexts[label]] - zq[query], axis=1).min()
        assert plan.query_distance[query] == pytest.approx(nearest)
    summary = plan.summary()
    assert len(summary) == 5
    assert summary["queries"].sum() == 60
    assert plan.settings["kernel"] == "exact"
    assert plan.settings["strategy"] == "mmd"
    assert (plan.route(zq) == plan.labels).all()


def test_a_plan_is_shown_in_a_line_and_in_a_small_table() -> None:
    plan = select_contexts(POOL, QUERIES, n_clusters=12, context_size=40)
    assert repr(plan) == "<Plan: 60 queries, 12 contexts of 40 of 300 rows, strategy 'mmd'>"
    page = plan._repr_html_()
    assert len(page) < 6_000
    assert "<th>median_distance</th>" in page
    assert "… and 2 more" in page
    one = select_contexts(POOL, QUERIES, n_clusters=1, context_size=40)
    assert "1 context of 40 of 300 rows" in repr(one)


def test_queries_far_from_the_pool_are_outside_its_support() -> None:
    inside = RNG.normal(size=(500, 4)) * [1, 2, 3, 4]
    plan = select_contexts(
        POOL, np.vstack([inside, QUERIES[:3] + 100]), n_clusters=3, context_size=20
    )
    assert plan.outside[-3:].all()
    assert plan.outside[:-3].mean() < 0.05


@pytest.mark.parametrize("strategy", ["uniform", "knn", "micp", "centroid", "voronoi", "full"])
def test_every_strategy_is_measured_by_the_exact_mmd(strategy: str) -> None:
    plan = select_contexts(POOL, QUERIES, strategy=strategy, n_clusters=3, context_size=30)
    z, zq = brute_force.standardise(POOL, QUERIES)
    sigma = plan.settings["bandwidth"]
    for cluster, context in enumerate(plan.contexts):
        direct = brute_force.mmd2(z[context], zq[plan.labels == cluster], sigma)
        assert plan.final_mmd2[cluster] == pytest.approx(direct, abs=1e-12)


def test_evidence_that_would_cost_too_much_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crumb.evidence.EVIDENCE_VALUES", 10)
    plan = select_contexts(POOL, QUERIES, strategy="uniform", context_size=30)
    assert np.isnan(plan.final_mmd2).all()


def test_min_per_class_keeps_rare_classes_and_redraws_the_trace() -> None:
    y = np.where(np.arange(300) >= 296, "rare", "common")
    pool = POOL.copy()
    pool[296:] += 50  # far from every query: herding would never take them
    plan = select_contexts(pool, QUERIES, y_pool=y, n_clusters=3, context_size=30, min_per_class=2)
    without = select_contexts(
        pool, QUERIES, y_pool=y, n_clusters=3, context_size=30, min_per_class=0
    )
    z, zq = brute_force.standardise(pool, QUERIES)
    for cluster, context in enumerate(plan.contexts):
        assert (y[context] == "rare").sum() == 2
        assert (y[without.contexts[cluster]] == "rare").sum() == 0
        assert context[:28].tolist() == without.contexts[cluster][:28].tolist()
        direct = brute_force.mmd2(
            z[context], zq[plan.labels == cluster], plan.settings["bandwidth"]
        )
        assert plan.final_mmd2[cluster] == pytest.approx(direct, abs=1e-12)
    assert plan.swapped.tolist() == [2, 2, 2]
    assert without.swapped.tolist() == [0, 0, 0]


def test_early_stopping_shortens_contexts_one_by_one() -> None:
    pool = np.random.default_rng(1).normal(size=(3_000, 2))
    rule = EarlyStopping(every=10, warm_up=20, tolerance=0.2, patience=1)
    plan = select_contexts(
        pool, QUERIES[:, :2] * 0.3, n_clusters=4, context_size=500, early_stopping=rule
    )
    assert "converged" in plan.stop_reasons
    assert plan.sizes.max() < 500
    assert [len(trace) for trace in plan.mmd2] == plan.sizes.tolist()


def test_rff_plans_record_their_settings() -> None:
    plan = select_contexts(
        POOL, QUERIES, kernel="rff", rff_dim=32, herd_batch=7, context_size=30, n_clusters=2
    )
    assert (plan.settings["kernel"], plan.settings["rff_dim"], plan.settings["herd_batch"]) == (
        "rff",
        32,
        7,
    )
    assert [len(trace) for trace in plan.mmd2] == [30, 30]


@pytest.mark.parametrize("kernel", ["exact", "rff"])
def test_same_seed_same_plan_whatever_the_threads(kernel: str) -> None:
    """Many blocks, and more rows than the bandwidth's sample: every seed and thread matters."""
    rng = np.random.default_rng(5)
    pool, queries = rng.normal(size=(40_000, 2)), rng.normal(size=(50, 2))
    plans = [
        select_contexts(pool, queries, context_size=30, kernel=kernel, n_jobs=jobs, random_state=3)
        for jobs in (1, 2, 4)
    ]
    for plan in plans[1:]:
        assert plan.settings["bandwidth"] == plans[0].settings["bandwidth"]
        assert [c.tolist() for c in plan.contexts] == [c.tolist() for c in plans[0].contexts]
    other = select_contexts(pool, queries, context_size=30, kernel=kernel, random_state=4)
    assert other.settings["bandwidth"] != plans[0].settings["bandwidth"]


def test_the_support_of_an_ordered_pool() -> None:
    """Dense rows first, sparse rows last: the radius must come from rows of both kinds."""
    rng = np.random.default_rng(0)
    pool = np.vstack([rng.normal(size=(3_000, 3)) * 0.01, rng.normal(size=(3_000, 3))])
    queries = np.vstack([rng.normal(size=(200, 3)) * 0.01, rng.normal(size=(200, 3))])
    assert select_contexts(pool, queries, context_size=20).outside.mean() < 0.05


def test_a_swap_under_random_features_redraws_their_own_trace() -> None:
    y = np.where(np.arange(300) >= 296, 1, 0)
    pool = POOL.copy()
    pool[296:] += 50
    plan = select_contexts(
        pool, QUERIES, y_pool=y, n_clusters=2, context_size=30, kernel="rff", herd_batch=5
    )
    bare = select_contexts(
        pool,
        QUERIES,
        y_pool=y,
        n_clusters=2,
        context_size=30,
        kernel="rff",
        herd_batch=5,
        min_per_class=0,
    )
    assert plan.swapped.tolist() == [1, 1]
    for a, b in zip(plan.mmd2, bare.mmd2, strict=True):
        np.testing.assert_allclose(
            a[:29], b[:29], atol=1e-12
        )  # the same estimate up to the row that changed
        assert a[29] != b[29]


def test_many_queries_make_the_exact_kernel_too_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "crumb.herding.search.AFFORDABLE", {"cpu": 300 * (2 * 10 + 60), "gpu": 0, "triton": 0}
    )
    for name in ("VALUES_A_ROW", "MOST_A_ROW"):
        monkeypatch.setattr(f"crumb.herding.search.{name}", 0)
    asked = {"n_clusters": 2, "context_size": 10, "device": "cpu"}
    few, many, more = (
        select_contexts(POOL, np.tile(QUERIES, (times, 1))[:queries], **asked)
        for times, queries in ((1, 5), (5, 300), (50, 3_000))
    )
    ways = [plan.settings["kernel"] for plan in (few, many, more)]
    assert ways == ["exact", "candidates", "rff"]


def test_streams_of_chance_are_independent() -> None:
    task = Problem(TableFinder(POOL), QUERIES, Options.of(random_state=1))
    draws = {
        purpose: tuple(task.rng(purpose).integers(1000, size=5))
        for purpose in ("rff", "uniform", "micp", "voronoi")
    }
    assert len(set(draws.values())) == 4
    assert draws["rff"] == tuple(task.rng("rff").integers(1000, size=5))


def test_plans_that_contradict_themselves_are_refused(tmp_path) -> None:
    plan = select_contexts(POOL, QUERIES, n_clusters=3, context_size=10)
    for name, wrong in (
        ("labels", plan.labels + 3),
        ("contexts", [context - 300 for context in plan.contexts]),
        ("contexts", [context + 300 for context in plan.contexts]),
        ("centroids", plan.centroids[:2]),
        ("mmd2", [*plan.mmd2[:2], np.empty(0)]),
    ):
        with pytest.raises(PlanMismatch, match="contradicts itself"):
            dataclasses.replace(plan, **{name: wrong})
    assert len(pickle.dumps(plan)) < 20_000, "the points for drawing stay at home"


@pytest.mark.parametrize(
    "strategy", ["mmd", "uniform", "knn", "micp", "centroid", "voronoi", "full"]
)
def test_the_order_of_the_queries_changes_nothing_but_their_order(strategy: str) -> None:
    order = np.random.default_rng(0).permutation(60)
    straight = select_contexts(POOL, QUERIES, strategy=strategy, n_clusters=5, context_size=20)
    shuffled = select_contexts(
        POOL, QUERIES[order], strategy=strategy, n_clusters=5, context_size=20
    )
    for new, old in enumerate(order):
        a, b = straight.contexts[straight.labels[old]], shuffled.contexts[shuffled.labels[new]]
        assert sorted(a) == sorted(b)
    np.testing.assert_allclose(shuffled.query_distance, straight.query_distance[order])
    assert (shuffled.outside == straight.outside[order]).all()
    first_seen = list(dict.fromkeys(straight.labels.tolist()))
    assert first_seen == list(range(straight.n_clusters)), (
        "clusters are numbered as their queries appear"
    )


def test_mixed_tables() -> None:
    frame = pd.DataFrame(
        {
            "x": RNG.normal(size=120),
            "c": RNG.choice(["a", "b", None], 120),
            "when": pd.date_range("2024", periods=120),
        }
    )
    plan = select_contexts(frame[:100], frame[100:], n_clusters=3, context_size=20)
    assert plan.sizes.tolist() == [20] * 3
    with pytest.raises(InvalidInput, match="same columns"):
        select_contexts(frame[:100], frame[["c", "x", "when"]][100:])
    with pytest.raises(InvalidInput, match="y_pool has 3 values for 100"):
        select_contexts(frame[:100], frame[100:], y_pool=[1, 2, 3])


def test_a_saved_plan_is_the_same_plan(tmp_path) -> None:
    plan = select_contexts(
        POOL, QUERIES, strategy=MMD(), n_clusters=4, context_size=25, early_stopping=True
    )
    path = tmp_path / "plan.crumb"
    plan.save(path)
    again = Plan.load(path)
    for name in ("labels", "centroids", "query_distance", "outside", "swapped"):
        assert np.array_equal(getattr(plan, name), getattr(again, name)), name
    for name in ("contexts", "mmd2"):
        assert [a.tolist() for a in getattr(plan, name)] == [
            a.tolist() for a in getattr(again, name)
        ]
    assert again.settings == plan.settings
    assert again.stop_reasons == plan.stop_reasons
    assert again.summary().equals(plan.summary())
    again.check_pool(plan.pool_fingerprint)
    with pytest.raises(PlanMismatch, match="another pool"):
        again.check_pool("0" * 32)


def test_a_plan_whose_evidence_is_missing_can_be_saved(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crumb.evidence.EVIDENCE_VALUES", 0)
    plan = select_contexts(POOL, QUERIES, strategy=MICP(n_clusters=4), context_size=25)
    plan.save(tmp_path / "plan.crumb")
    again = Plan.load(tmp_path / "plan.crumb")
    assert np.isnan(again.final_mmd2).all()
    assert again.settings["strategy_params"] == {"gamma": 1.0, "n_clusters": 4}


def rewrite(path, **changes) -> None:
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    about = {**json.loads(content["about.json"]), **changes}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, json.dumps(about) if name == "about.json" else data)


def test_files_that_are_no_plans_are_refused(tmp_path) -> None:
    path = tmp_path / "plan.crumb"
    plan = select_contexts(POOL, QUERIES, context_size=25)
    plan.save(path)
    rewrite(path, version=99)
    with pytest.raises(PlanMismatch, match="version 99"):
        Plan.load(path)
    rewrite(path, version=1, format="something")
    with pytest.raises(PlanMismatch, match="'something' file"):
        Plan.load(path)
    plan.save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(PlanMismatch, match="truncated"):
        Plan.load(path)
    path.write_text("hello")
    with pytest.raises(PlanMismatch, match="not a complete"):
        Plan.load(path)
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "nowhere.crumb")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"strategy": "best"}, "Unknown strategy"),
        ({"kernel": "linear"}, "Unknown kernel"),
        ({"n_clusters": 0}, "n_clusters must be"),
        ({"n_clusters": -3}, "n_clusters must be"),
        ({"context_size": 0}, "context_size must be"),
        ({"bandwidth": 0.0}, "bandwidth must be"),
        ({"min_per_class": -1}, "min_per_class must be"),
        ({"device": "tpu"}, "Unknown device"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_bad_settings_are_one_clear_sentence(wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        select_contexts(POOL, QUERIES, **wrong)


def test_no_clustering_and_each_query_alone() -> None:
    assert select_contexts(POOL, QUERIES, n_clusters=None, context_size=10).n_clusters == 1
    assert select_contexts(POOL, QUERIES, n_clusters=60, context_size=10).n_clusters == 60
    assert select_contexts(POOL, QUERIES, n_clusters=1_000, context_size=10).n_clusters == 60
    assert select_contexts(POOL, QUERIES[:1], context_size=300).contexts[0].shape == (300,)


@pytest.mark.parametrize("kernel", ["auto", "exact", "candidates", "rff"])
def test_the_herding_bar_moves_while_contexts_grow(
    kernel: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is drawn at every step here; by default tqdm draws ten times a second."""
    monkeypatch.setattr(tqdm, "tqdm", partial(tqdm.tqdm, mininterval=0))
    options = {"n_clusters": 2, "context_size": 50, "kernel": kernel, "herd_batch": 5}
    if kernel == "candidates":
        del options["herd_batch"]  # it takes one row at a time
    select_contexts(POOL, QUERIES, **options, verbose=1)
    shown = re.findall(r"herding: +(\d+)%", capsys.readouterr().err)
    assert len({number for number in map(int, shown) if 0 < number < 100}) >= 8
