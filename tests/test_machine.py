"""machine.py: threads over blocks, and torch left as it was found."""

from __future__ import annotations

import platform
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_info, threadpool_limits

from crumb.errors import InvalidInput
from crumb.machine import (
    blas_in_one_thread,
    block_threads,
    quiet,
    resolve_jobs,
    said_once,
    torch_threads,
)
from crumb.selection.base import cluster


@pytest.fixture(autouse=True)
def _three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("jobs", [1, 2, None])
def test_results_come_in_the_order_of_the_blocks(jobs) -> None:
    with block_threads(jobs) as map_blocks:
        assert list(map_blocks(lambda start: start * 10, range(50))) == list(range(0, 500, 10))
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def test_a_thread_that_starts_in_the_middle_of_another_s_work_is_not_stuck_with_one_thread() -> (
    None
):
    seen: list[int] = []

    def other() -> None:
        torch.ones(10).sum()
        with torch_threads(None):
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    with block_threads(1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [3, 3]
    assert torch.get_num_threads() == 3


def test_torch_is_restored_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="boom"), torch_threads(1):
        raise RuntimeError("boom")
    assert torch.get_num_threads() == 3


def test_numbers_of_jobs() -> None:
    assert resolve_jobs(None) == 3
    assert resolve_jobs(1) == 1
    assert resolve_jobs(-1) >= 1
    assert resolve_jobs(-10_000) == 1
    for wrong in (0, 1.5, True, "all"):
        with pytest.raises(InvalidInput, match="n_jobs must be"):
            resolve_jobs(wrong)


def recorded(work) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught]


def test_warnings_are_held_back_by_their_text_and_only_inside() -> None:
    def work() -> None:
        with quiet("not this"):
            warnings.warn("not this one", stacklevel=1)
            warnings.warn("but this one", stacklevel=1)
            with quiet():
                warnings.warn("nothing", stacklevel=1)
        warnings.warn("not this one, outside", stacklevel=1)

    assert recorded(work) == ["but this one", "not this one, outside"]
    with quiet():
        pass
    assert sum(one[1:] == warnings.filters[0][1:] for one in warnings.filters) == 1


def test_scikit_learn_can_copy_the_filters() -> None:
    with quiet("none"):
        found = NearestNeighbors().fit(np.eye(9)).kneighbors(np.eye(9))[1]
        jobs = Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(3))
    assert found[:, 0].tolist() == list(range(9))
    assert jobs == [0, 1, 2]


def test_what_was_said_is_not_said_again() -> None:
    said: set[str] = set()

    def work() -> None:
        for _ in range(3):
            with said_once(said):
                warnings.warn("one", stacklevel=1)
                warnings.warn("two", stacklevel=1)

    assert recorded(work) == ["one", "two"]


def test_threads_neither_wait_for_each_other_s_warnings_nor_lose_them() -> None:
    inside, leave = threading.Event(), threading.Event()

    def busy() -> None:  # a long pass of another estimator
        with said_once(set()), quiet():
            inside.set()
            leave.wait(60)

    def work() -> None:
        thread = threading.Thread(target=busy)
        thread.start()
        assert inside.wait(60)
        mine = threading.Thread(target=lambda: cluster(np.zeros((9, 2)), 3, 0))
        mine.start()
        mine.join(30)
        assert not mine.is_alive()  # it did not wait for the other one
        warnings.warn("mine", stacklevel=1)
        leave.set()
        thread.join()

    assert recorded(work) == ["mine"]


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_the_last_one_who_wants_single_threads_lifts_the_limit() -> None:
    with threadpool_limits(3, "blas"):
        first, second = blas_in_one_thread(), blas_in_one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {3}


FRESH_PAGES = """
from resource import RUSAGE_SELF, getrusage
import numpy as np
from crumb.machine import block_threads

def fresh() -> int:
    before = getrusage(RUSAGE_SELF).ru_minflt
    blocks = [np.ones(1 << 20, np.uint8) for _ in range(20)]
    return getrusage(RUSAGE_SELF).ru_minflt - before

with block_threads(1):
    fresh(), fresh()
    print(fresh())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_freed_memory_is_used_again():
    """20 MiB in blocks of 1 MiB are 5,120 pages; a system that gives larger ones needs fewer."""
    done = subprocess.run([sys.executable, "-c", FRESH_PAGES], capture_output=True, check=True)
    assert int(done.stdout) < 100
