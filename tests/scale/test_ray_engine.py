"""The same on Ray: the answers of the local engine, and what happens when parts die."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from scale_falling import FallingModel
from scale_faults import Beat, DieAlways, DieOnce, Poisoned, Task, beats, interrupted, square
from scale_tables import numbers, stay_on_disk, truncate, write
from sklearn.linear_model import LogisticRegression

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.scale.engine import WorkerDied

ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from crumb.scale.ray_engine import OnActors, RayEngine  # noqa: E402

TASKS = [Task(number) for number in range(8)]


@pytest.fixture(scope="module")
def cluster():
    """A head node and a second one here, whose workers can import the tests' own modules."""
    from ray.cluster_utils import Cluster

    here = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *before.split(os.pathsep)])
    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    # A node that is gone is noticed within a second instead of ten.
    notice = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 300,
        "health_check_failure_threshold": 2,
    }
    cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": notice})
    try:
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def engine(cluster):
    return RayEngine(actor_cpus=1)


def test_results_come_in_order_and_tasks_start_late(cluster):
    taken, seen = [], []
    tasks = (taken.append(number) or number for number in range(12))
    for result in RayEngine(in_flight=3).map(square, tasks, 12):
        seen.append(result)
        assert len(taken) - len(seen) <= 3
    assert seen == [number * number for number in range(12)]


def test_a_plan_and_answers_are_those_of_the_local_engine(engine, tmp_path, monkeypatch):
    stay_on_disk(monkeypatch)
    truncate(monkeypatch)
    folder = write(tmp_path / "t", numbers(2_000), files=4)
    queries = numbers(80, seed=4).drop(columns="target")
    options = {"model": LogisticRegression(), "n_clusters": 4, "context_size": 60, "n_jobs": 1}
    local = CrumbClassifier(**options).fit(folder, "target")
    spread = CrumbClassifier(engine=engine, **options).fit(folder, "target")
    expected, plan = local.plan(queries), spread.plan(queries)
    assert plan.pool_fingerprint == expected.pool_fingerprint
    for one, other in zip(expected.contexts, plan.contexts, strict=True):
        np.testing.assert_array_equal(one, other)
    assert isinstance(spread.backend_, OnActors)
    for frozen in (None, plan, None):  # scoring must not wait for the cores of actors that are kept
        np.testing.assert_array_equal(
            local.predict_proba(queries, plan=frozen), spread.predict_proba(queries, plan=frozen)
        )
    assert len(spread.backend_._actors) == 2
    spread.backend_.close()


def test_a_killed_worker_costs_nothing_but_time(engine, tmp_path):
    assert list(engine.map(DieOnce(tmp_path), iter(TASKS), len(TASKS))) == list(range(8))
    assert (tmp_path / "died").exists()


def test_a_killed_actor_is_started_again(engine, tmp_path):
    frame = numbers(300)
    queries = numbers(40, seed=4).drop(columns="target")
    options = {"n_clusters": 3, "context_size": 60, "n_jobs": 1}
    X, y = frame.drop(columns="target"), frame["target"]
    falling = CrumbClassifier(model=FallingModel(str(tmp_path)), engine=engine, **options).fit(X, y)
    steady = CrumbClassifier(model=LogisticRegression(), **options).fit(X.to_numpy(), y)
    np.testing.assert_allclose(
        falling.predict_proba(queries), steady.predict_proba(queries.to_numpy()), atol=1e-9
    )
    assert (tmp_path / "fell").exists()
    falling.backend_.close()


def test_a_task_that_always_kills_is_given_up(cluster):
    with pytest.raises(WorkerDied, match=r"scoring some\.parquet"):
        list(RayEngine(retries=1).map(DieAlways(), iter(TASKS), len(TASKS)))


def test_a_poisoned_task_is_one_clear_error(engine, tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match=r"some\.parquet cannot be read") as caught:
        list(engine.map(Poisoned(), iter(TASKS), len(TASKS)))
    assert "ray" not in str(caught.value).lower()


def test_whoever_stops_listening_stops_the_work(engine, tmp_path):
    results = engine.map(Beat(tmp_path), iter(TASKS), len(TASKS))
    with pytest.raises(KeyboardInterrupt):
        interrupted(results, tmp_path)
    time.sleep(1.5)
    before = beats(tmp_path)
    time.sleep(0.5)
    assert before == beats(tmp_path)


def test_a_node_that_is_removed_takes_nothing_with_it(cluster, engine):
    node = cluster.list_all_nodes()[-1]
    found = []
    for result in RayEngine(in_flight=4).map(square, range(30), 30):
        found.append(result)
        if len(found) == 5:
            cluster.remove_node(node, allow_graceful=False)
    assert found == [number * number for number in range(30)]
