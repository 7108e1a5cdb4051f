"""The local engine: order, few in flight, dead workers, poisoned tasks, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from scale_faults import Beat, DieAlways, DieOnce, Poisoned, Task, beats, interrupted, square

from crumb.errors import InvalidInput
from crumb.scale.engine import LocalEngine, WorkerDied, resolve_engine

TASKS = [Task(number) for number in range(8)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_tasks_start_late(jobs):
    taken, seen = [], []
    tasks = (taken.append(number) or number for number in range(20))
    for result in LocalEngine(jobs).map(square, tasks, 20):
        seen.append(result)
        assert len(taken) - len(seen) <= 2 * jobs + 1  # those in flight
    assert seen == [number * number for number in range(20)]


def test_a_killed_worker_costs_nothing_but_time(tmp_path):
    assert list(LocalEngine(2).map(DieOnce(tmp_path), iter(TASKS), len(TASKS))) == list(range(8))
    assert (tmp_path / "died").exists()


def test_a_task_that_always_kills_is_given_up(tmp_path):
    found = []
    with pytest.raises(WorkerDied, match=r"some\.parquet"):
        found.extend(LocalEngine(2).map(DieAlways(), iter(TASKS), len(TASKS)))


def test_a_poisoned_task_is_one_clear_error():
    with pytest.raises(InvalidInput, match=r"some\.parquet cannot be read"):
        list(LocalEngine(2).map(Poisoned(), iter(TASKS), len(TASKS)))
    assert list(LocalEngine(2).map(square, range(4), 4)) == [0, 1, 4, 9]


def test_an_interrupt_stops_the_work(tmp_path):
    results = LocalEngine(2).map(Beat(tmp_path), iter(TASKS), len(TASKS))
    with pytest.raises(KeyboardInterrupt):
        interrupted(results, tmp_path)
    time.sleep(1.0)
    before = beats(tmp_path)
    time.sleep(0.5)
    assert before == beats(tmp_path)


def test_workers_do_not_load_torch():
    """What a task of a pass imports; torch would cost every worker seconds and memory."""
    code = "import sys, crumb.scale.reader, crumb.scale.shortlist; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_names(monkeypatch):
    assert isinstance(resolve_engine("local", 3), LocalEngine)
    own = LocalEngine(1)
    assert resolve_engine(own) is own
    with pytest.raises(InvalidInput, match="Unknown engine 'spark'"):
        resolve_engine("spark")
