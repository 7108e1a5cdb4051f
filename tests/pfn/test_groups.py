"""Grouped tasks: the answers and the order of one at a time, with a bounded number held."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch

from crumb.pfn.contexts import halved, in_groups, pieces


def test_answers_come_in_the_order_of_the_tasks() -> None:
    calls: list[list[int]] = []

    def run(group: list[int]) -> list[int]:
        calls.append(group)
        return [-task for task in group]

    tasks = [3, 1, 2, 5, 4, 6, 7]
    answers = list(in_groups(tasks, lambda t: t % 2, run, lambda t: 1, 5))
    assert answers == [-task for task in tasks]
    assert calls == [[3, 1, 5], [2, 4], [6], [7]]
    assert not list(in_groups([], lambda t: t, run, lambda t: 1, 5))


def test_no_more_is_taken_than_may_be_held() -> None:
    """And what is larger than that goes alone."""
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for task in (4, 3, 3, 20, 1):
            taken.append(task)
            yield task

    groups: list[list[int]] = []

    def run(group: list[int]) -> list[int]:
        groups.append(group)
        return group

    answers = in_groups(tasks(), lambda t: 0, run, lambda t: t, 10)
    assert next(answers) == 4
    assert taken == [4, 3, 3, 20]  # the one that did not fit is the first of the next
    assert list(answers) == [3, 3, 20, 1]
    assert groups == [[4, 3, 3], [20], [1]]


def test_too_large_a_group_is_halved() -> None:
    sizes: list[int] = []

    def run(group: list[int]) -> list[int]:
        sizes.append(len(group))
        if len(group) > 3:
            raise torch.OutOfMemoryError
        return [2 * task for task in group]

    assert halved(list(range(9)), run, lambda task: 2 * task) == [2 * task for task in range(9)]
    assert sizes == [9, 4, 2, 2, 5, 2, 3]


def test_single_task_goes_alone() -> None:
    def run(group: list[str]) -> list[str]:
        raise torch.OutOfMemoryError

    assert halved(["a", "b", "c"], run, str.upper) == ["A", "B", "C"]


def test_other_errors_are_not_for_halving() -> None:
    def run(group: list[str]) -> list[str]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        halved(["a", "b"], run, str.upper)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_pieces_hold_all_rows_and_only_the_last_has_filling(kind: type) -> None:
    rows = kind(np.arange(14).reshape(7, 2))
    assert [np.asarray(piece)[:, 0].tolist() for piece in pieces(rows, 3)] == [
        [0, 2, 4],
        [6, 8, 10],
        [12],
    ]
    found = [np.asarray(piece)[:, 0].tolist() for piece in pieces(rows, 4, 4)]
    assert found == [[0, 2, 4, 6], [8, 10, 12, 12]]
    assert [len(piece) for piece in pieces(rows, 7)] == [7]
    assert [len(piece) for piece in pieces(rows, 10, 5)] == [10]
