"""A pool on disk gives the answers of the pool in memory."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scale_tables import mixed, numbers, stay_on_disk, truncate, write
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from crumb import CrumbClassifier, CrumbRegressor, Plan
from crumb.errors import InvalidInput, PlanMismatch
from crumb.online import CrumbOnline
from crumb.scale.pool import read_whole
from crumb.scale.source import open_source

STRATEGIES = ("mmd", "uniform", "micp", "centroid", "knn", "voronoi")
# The same rows even where the points are not all held: random rows are drawn by their numbers.
EXACT_ANYWAY = ("uniform", "centroid", "knn", "voronoi")


def some_columns(table):
    return table[["whole", "day"]] if "whole" in table else table


def classifier(**options):
    model = make_pipeline(FunctionTransformer(some_columns), StandardScaler(), LogisticRegression())
    usual = {"model": model, "n_clusters": 4, "context_size": 40, "n_jobs": 1}
    return CrumbClassifier(**{**usual, **options})


def both(folder, queries, **options):
    """Plans of the table in memory and of its files."""
    frame, labels = read_whole(open_source(folder, "target"))
    memory, disk = (
        classifier(**options).fit(frame, labels),
        classifier(**options).fit(folder, "target"),
    )
    return memory, memory.plan(queries), disk, disk.plan(queries)


def same_contexts(one: Plan, other: Plan) -> bool:
    pairs = zip(one.contexts, other.contexts, strict=True)
    return np.array_equal(one.labels, other.labels) and all(np.array_equal(a, b) for a, b in pairs)


def test_a_small_table_is_simply_read(tmp_path):
    folder = write(tmp_path / "t", mixed(400))
    queries = mixed(60, 1).drop(columns="target")
    memory, expected, disk, plan = both(folder, queries)
    assert same_contexts(expected, plan)
    assert plan.pool_fingerprint == expected.pool_fingerprint
    assert plan.settings["pool"] == {"rows": 400, "on_disk": False, "covered": True}
    np.testing.assert_array_equal(memory.predict_proba(queries), disk.predict_proba(queries))


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(60, 400), st.integers(0, 1000), st.sampled_from(STRATEGIES), st.integers(0, 2))
def test_covered_by_candidates(tmp_path, rows, seed, strategy, minimum):
    """All points are held: the very same plan, though no row was ever held as a whole."""
    folder = write(tmp_path / f"{rows}-{seed}", numbers(rows, seed=seed))
    queries = numbers(12, seed=seed + 1).drop(columns="target")
    with pytest.MonkeyPatch.context() as patch:
        stay_on_disk(patch)
        memory, expected, disk, plan = both(
            folder, queries, strategy=strategy, min_per_class=minimum
        )
        answers = memory.predict_proba(queries), disk.predict_proba(queries)
    assert same_contexts(expected, plan)
    assert plan.settings["pool"] == {"rows": rows, "on_disk": True, "covered": True}
    np.testing.assert_allclose(plan.final_mmd2, expected.final_mmd2, atol=1e-12)
    np.testing.assert_allclose(plan.query_distance, expected.query_distance, atol=1e-9)
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_not_covered(tmp_path, monkeypatch, strategy):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    folder = write(tmp_path / "t", mixed(1000), files=4)
    queries = mixed(16 if strategy == "knn" else 60, 1).drop(columns="target")
    memory, expected, disk, plan = both(folder, queries, strategy=strategy)
    assert not plan.settings["pool"]["covered"]
    assert plan.sizes.tolist() == [40] * plan.n_clusters
    assert all(len(np.unique(context)) == 40 for context in plan.contexts)
    np.testing.assert_array_equal(plan.outside, expected.outside)
    if strategy in EXACT_ANYWAY:
        assert same_contexts(expected, plan)
        np.testing.assert_allclose(
            memory.predict_proba(queries), disk.predict_proba(queries), atol=1e-6
        )
    frame, labels = read_whole(open_source(folder, "target"))
    held = disk.pool_.hold(plan.contexts)
    for context in plan.contexts:  # what the numbers stand for is what the model gets
        np.testing.assert_array_equal(disk.classes_[held.labels(context)], labels[context])
        np.testing.assert_array_equal(
            held.slice(context).rows()["whole"], frame["whole"].iloc[context]
        )


HERDED = {"n_clusters": 20, "context_size": 100, "min_per_class": 0}


@pytest.fixture(scope="module")
def herded_in_memory(tmp_path_factory):
    """A table in files, queries, and the MMD² of their plan for the table in memory."""
    frame = numbers(20_000, columns=8)
    queries = numbers(1_000, columns=8, seed=5).drop(columns="target")
    model = classifier(**HERDED).fit(frame.drop(columns="target"), frame["target"])
    folder = write(tmp_path_factory.mktemp("herded"), frame)
    return folder, queries, model.plan(queries).final_mmd2.mean()


@pytest.mark.parametrize("kernel", ["auto", "rff", "exact"])
def test_herding_among_candidates_comes_close(herded_in_memory, monkeypatch, kernel):
    """Mean MMD² within 5 % of the pool in memory, where half of the rows are candidates."""
    stay_on_disk(monkeypatch)
    monkeypatch.setattr("crumb.scale.source.SHARD_ROWS", 5_000)
    monkeypatch.setattr("crumb.scale.source.BLOCK_ROWS", 2_000)
    folder, queries, mmd2 = herded_in_memory
    truncate(monkeypatch, 20 * 10 * 9_600)
    plan = classifier(kernel=kernel, **HERDED).fit(folder, "target").plan(queries)
    assert ("neighbours_among" in plan.settings) == (kernel != "rff")
    assert plan.final_mmd2.mean() < 1.05 * mmd2


def test_shards_and_workers_change_nothing(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    frame, queries = numbers(2_000), numbers(40, seed=3).drop(columns="target")
    plans = []
    for files, shard_rows, jobs in ((1, 10_000, 1), (5, 300, 1), (5, 300, 2)):
        monkeypatch.setattr("crumb.scale.source.SHARD_ROWS", shard_rows)
        folder = write(tmp_path / f"{files}", frame, files=files, groups=3)
        plans.append(classifier(n_jobs=jobs).fit(folder, "target").plan(queries))
    for plan in plans[1:]:
        assert same_contexts(plans[0], plan)
        np.testing.assert_allclose(
            plans[0].mmd2, plan.mmd2, atol=1e-12
        )  # moments are joined in another order
    np.testing.assert_array_equal(plans[1].mmd2, plans[2].mmd2)
    assert plans[1].pool_fingerprint == plans[2].pool_fingerprint


@pytest.mark.parametrize("odd", [None, "soon"])
def test_written_dates_are_dates_in_files_too(tmp_path, monkeypatch, odd):
    """Where the last file has another word, all of them are words."""
    table = mixed(600).drop(columns="day").assign(empty=pd.Series([None] * 600, dtype="str"))
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(600) % 97, unit="h")
    table["when"] = day.strftime("%Y-%m-%dT%H:%M:%S")
    table.loc[[5, 300], "when"] = None
    table.loc[599, "when"] = odd
    folder = write(tmp_path / "t", table)
    X, y = table.drop(columns="target"), table["target"]
    usual = classifier(features=None).fit(X, y)
    stay_on_disk(monkeypatch)
    kept = classifier(features=None).fit(folder, "target")
    assert kept.pool_.on_disk
    assert kept.pool_.encoder.kinds_ == usual.pool_.encoder.kinds_
    assert usual.pool_.encoder.kinds_[-2:] == ["empty", "text" if odd else "number"]
    np.testing.assert_allclose(kept.encode(X)[1], usual.encode(X)[1], rtol=1e-9, atol=1e-9)


def test_rare_classes_are_kept(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    frame = numbers(2_000)
    frame.loc[[17, 1_999], "target"] = 9  # two rows of two thousand
    folder = write(tmp_path / "t", frame)
    queries = numbers(40, seed=3).drop(columns="target")
    for strategy in ("centroid", "uniform"):
        _, expected, disk, plan = both(folder, queries, strategy=strategy, min_per_class=2)
        assert same_contexts(expected, plan)
        np.testing.assert_array_equal(plan.swapped, expected.swapped)
        assert all({17, 1_999} <= set(context.tolist()) for context in plan.contexts)
        assert 9 in disk.classes_


def test_herded_contexts_keep_rare_classes(tmp_path, monkeypatch):
    """A class of which no candidate is kept for its place is watched for itself."""
    stay_on_disk(monkeypatch)
    truncate(monkeypatch, 4 * 10 * 400)
    frame = numbers(4_000)
    frame.loc[[17, 3_999], "target"] = 9
    folder, queries = write(tmp_path / "t", frame), numbers(40, seed=3).drop(columns="target")
    _, expected, _, plan = both(folder, queries, min_per_class=2)
    assert not plan.settings["pool"]["covered"]
    assert plan.settings["candidates"]["candidates"] <= 400
    for one in (expected, plan):
        assert all({17, 3_999} <= set(context.tolist()) for context in one.contexts)
        assert all(
            np.isin([0, 1, 2, 9], frame["target"][context]).all() for context in one.contexts
        )


def test_a_class_that_is_not_in_the_sketch(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    monkeypatch.setattr("crumb.scale.pool.SKETCH_ROWS", 50)
    frame = numbers(3_000)
    frame.loc[[17, 2_999], "target"] = 9
    folder, queries = write(tmp_path / "t", frame), numbers(40, seed=3).drop(columns="target")
    plan = classifier(min_per_class=2).fit(folder, "target").plan(queries)
    assert all({17, 2_999} <= set(context.tolist()) for context in plan.contexts)


def test_queries_that_reach_farther_than_the_pool(tmp_path, monkeypatch):
    """All rows lie in the innermost stratum, which gives too few candidates for a context."""
    stay_on_disk(monkeypatch)
    truncate(monkeypatch, 12 * 400)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(3_000, 12))).add_prefix("x").assign(target=0)
    frame["target"] = rng.integers(0, 2, 3_000)
    queries = pd.DataFrame(rng.normal(size=(60, 12)) * 4).add_prefix("x")
    options = {"n_clusters": 1, "context_size": 100, "min_per_class": 0}
    plan = classifier(**options).fit(write(tmp_path / "t", frame), "target").plan(queries)
    assert len(np.unique(plan.contexts[0])) == 100


@pytest.mark.parametrize("strategy", ["mmd", "uniform"])
def test_blocks_of_which_nothing_is_wanted(tmp_path, monkeypatch, strategy):
    """A transformer of the user's own is not asked about no rows at all."""
    stay_on_disk(monkeypatch)
    truncate(monkeypatch, 10 * 120)  # room for 80 candidates
    monkeypatch.setattr("crumb.scale.source.BLOCK_ROWS", 4)
    folder = write(tmp_path / "t", numbers(1_000))
    queries = numbers(30, seed=3).drop(columns="target")
    options = {"features": StandardScaler(), "n_clusters": 1, "context_size": 20}
    options |= {"kernel": "rff", "min_per_class": 0}  # neighbours would be wanted in all blocks
    plan = classifier(strategy=strategy, **options).fit(folder, "target").plan(queries)
    assert len(np.unique(plan.contexts[0])) == 20


def test_limits_that_come_down_meanwhile_change_nothing(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch, 4 * 10 * 400)
    folder = write(tmp_path / "t", numbers(3_000))
    queries = numbers(40, seed=3).drop(columns="target")
    plans = []
    for room in (1 << 20, 50):
        monkeypatch.setattr("crumb.scale.shortlist.ROOM", room)
        plans += [
            classifier(n_jobs=jobs, min_per_class=2).fit(folder, "target").plan(queries)
            for jobs in (1, 2)
        ]
    for plan in plans[1:]:
        assert same_contexts(plans[0], plan)
        np.testing.assert_array_equal(plans[0].mmd2, plan.mmd2)


def test_regression_and_a_filter(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    frame = numbers(1_000).assign(target=lambda table: table["x0"] * 2 + table["x1"])
    folder = write(tmp_path / "t", frame)
    options = {
        "model": LinearRegression(),
        "n_clusters": 3,
        "context_size": 50,
        "strategy": "centroid",
        "n_jobs": 1,
    }
    disk = CrumbRegressor(**options).fit(
        folder, "target", where=pc.field("x2") > 0, columns=["x0", "x1", "x2"]
    )
    seen = frame[frame["x2"] > 0].reset_index(drop=True)
    memory = CrumbRegressor(**options).fit(seen[["x0", "x1", "x2"]], seen["target"])
    queries = seen[["x0", "x1", "x2"]].iloc[::20]
    assert same_contexts(memory.plan(queries), disk.plan(queries))
    np.testing.assert_allclose(disk.predict(queries), 2 * queries["x0"] + queries["x1"], atol=1e-8)
    assert disk.n_features_in_ == 3


def test_a_frozen_plan_reads_its_rows_once(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    folder = write(tmp_path / "t", numbers(800))
    queries = numbers(50, seed=2).drop(columns="target")
    model = classifier().fit(folder, "target")
    plan = model.plan(queries)
    plan.save(tmp_path / "plan.zip")
    loaded = Plan.load(tmp_path / "plan.zip")
    first = model.predict_proba(queries, plan=loaded)
    for path in folder.iterdir():
        path.unlink()
    np.testing.assert_array_equal(model.predict_proba(queries[::-1], plan=loaded), first[::-1])
    with pytest.raises(InvalidInput, match="is gone"):
        model.predict_proba(queries)
    write(folder, numbers(800))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(queries, plan=loaded), first)
    other = classifier().fit(write(tmp_path / "u", numbers(800).iloc[::-1]), "target")
    with pytest.raises(PlanMismatch, match="another pool"):
        other.predict_proba(queries, plan=loaded)


def test_a_file_that_changes_is_noticed(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    folder = write(tmp_path / "t", numbers(800))
    model = classifier().fit(folder, "target")
    write(folder, numbers(700))
    with pytest.raises(InvalidInput, match=r"part-00\d\.parquet"):
        model.plan(numbers(50, seed=2).drop(columns="target"))


def test_own_features_are_fitted_on_a_sample(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    folder = write(tmp_path / "t", numbers(800))
    model = classifier(features=FunctionTransformer(lambda table: table[["x0", "x1"]])).fit(
        folder, "target"
    )
    assert model.plan(numbers(50, seed=2).drop(columns="target")).centroids.shape[1] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "full"}, "needs the whole pool in memory"),
        ({"context_size": 0.9}, "have no room"),
    ],
)
def test_what_a_pool_on_disk_refuses(tmp_path, monkeypatch, options, said):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch, 5_000)
    folder = write(tmp_path / "t", numbers(800))
    queries = numbers(50, seed=2).drop(columns="target")
    with pytest.raises(InvalidInput, match=said):
        classifier(**options).fit(folder, "target").plan(queries)


def test_what_is_asked_wrongly(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    frame = numbers(100)
    folder = write(
        tmp_path / "t",
        frame.assign(gaps=frame["target"].where(frame["x0"] > 0), text="a", far=np.inf),
    )
    with pytest.raises(InvalidInput, match="name of the target"):
        classifier().fit(folder, frame["target"])
    with pytest.raises(InvalidInput, match="labels are missing"):
        classifier().fit(folder, "gaps")
    with pytest.raises(InvalidInput, match="contains infinity"):
        CrumbRegressor(model=LinearRegression()).fit(folder, "far")
    with pytest.raises(InvalidInput, match="needs numbers"):
        CrumbRegressor(model=LinearRegression()).fit(folder, "text")
    with pytest.raises(InvalidInput, match="for tables in files"):
        classifier().fit(frame.drop(columns="target"), frame["target"], where=pc.field("x0") > 0)
    with pytest.raises(InvalidInput, match="Unknown engine"):
        classifier(engine="dask").fit(folder, "target")
    model = classifier(model="embedded").fit(folder, "target", columns=["x0", "x1"])
    with pytest.raises(InvalidInput, match="stays in its Parquet files"):
        model.save(tmp_path / "model.zip")


def test_what_needs_the_pool_in_memory_is_refused(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    X, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_parquet(tmp_path / "a.parquet")
    clf = CrumbClassifier(context_size=30, n_clusters=2).fit(tmp_path, "y")
    with pytest.raises(InvalidInput, match="A stream needs a pool in memory"):
        CrumbOnline(clf)
    with pytest.raises(InvalidInput, match="needs the pool in memory"):
        CrumbClassifier(features="embedding").fit(tmp_path, "y")
    own = CrumbClassifier(features=LinearDiscriminantAnalysis(), context_size=30, n_clusters=2).fit(
        tmp_path, "y"
    )
    assert own.predict(pd.DataFrame(X[:3], columns=list("abc"))).shape == (3,)


def test_contexts_of_a_frozen_plan_are_kept_from_one_prediction_to_the_next(tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=list("abc"))
    frame.assign(y=np.arange(200) % 2).to_parquet(tmp_path / "a.parquet")
    clf = CrumbClassifier(context_size=30, n_clusters=2, device="cpu").fit(tmp_path, "y")
    plan = clf.plan(frame[:20])
    first = clf.predict_proba(frame[:20], plan=plan)
    kept = clf.backend_.contexts.keys()
    assert len(kept) == 2
    np.testing.assert_array_equal(clf.predict_proba(frame[:20], plan=plan), first)
    assert clf.backend_.contexts.keys() == kept
