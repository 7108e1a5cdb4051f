"""machine.py: threads over blocks, and torch left as it was found."""

from __future__ import annotations

import threading

import pytest
import torch

from crumb.errors import InvalidInput
from crumb.machine import block_threads, resolve_jobs, torch_threads


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
