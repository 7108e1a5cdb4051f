"""Contexts that go together, or are kept: same answers, in order, within the budget."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import torch

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput
from crumb.pfn.contexts import ContextCache, halved, in_groups, pieces, tensor_bytes


def table(rows: int = 400, classes: int = 3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4))
    return X[:-40], np.arange(rows)[:-40] % classes, X[-40:]


def kept(estimator) -> int:
    return len(estimator.backend_.contexts)


def ask(cache: ContextCache, key: str, size: int = 4) -> bool:
    """Whether it was there."""
    made = []
    assert cache.get_or(key.encode(), lambda: made.append(1) or key, lambda thing: size) == key
    return not made


def test_what_fits_is_made_once():
    cache = ContextCache(budget=10)
    assert [ask(cache, key) for key in "abab"] == [False, False, True, True]
    assert cache.used == 8
    assert not ask(cache, "large", size=11)
    assert not ask(
        cache, "large", size=11
    )  # larger than all there is: nothing is thrown out for it
    assert ask(cache, "a")


def test_a_round_that_does_not_quite_fit_keeps_most_of_it():
    """The least recently used would be thrown out just before it is needed, for ever."""
    cache = ContextCache(budget=20)
    rounds = [sum(ask(cache, key) for key in "abcdef") for _ in range(4)]
    assert rounds == [0, 5, 5, 5]


def test_what_is_no_longer_asked_for_gives_way():
    cache = ContextCache(budget=8)
    for key in "abab":
        ask(cache, key)
    assert [ask(cache, key) for key in "xyxyxy"] == [False, False, False, False, True, True]
    assert cache.used == 8
    assert not ask(cache, "a")


def test_what_is_dropped_leaves_room():
    cache = ContextCache(budget=10)
    for key in "ab":
        ask(cache, key)
    assert cache.has_room(b"a", 99)  # it is there
    assert cache.has_room(b"c", 2)
    assert not cache.has_room(b"c", 4)
    cache.drop([b"a", b"never seen"])
    assert (cache.used, len(cache)) == (4, 1)
    assert cache.has_room(b"c", 4)
    assert [ask(cache, key) for key in "bab"] == [True, False, True]
    cache.drop()
    assert (cache.used, len(cache)) == (0, 0)


def test_what_is_dropped_while_it_is_made_is_kept_like_any_other():
    cache = ContextCache(budget=8)
    cache.get_or(b"a", lambda: cache.drop([b"a"]) or "a", lambda thing: 4)
    assert [ask(cache, key) for key in "abcbc"] == [True, False, False, True, False]
    assert cache.used == 8


def test_bytes_of_tensors():
    assert (
        tensor_bytes(
            {"a": torch.zeros(3), "b": {"c": torch.zeros(2, dtype=torch.float64), "d": None}}
        )
        == 28
    )


@pytest.mark.parametrize("estimator", [CrumbClassifier, CrumbRegressor])
def test_answers_are_the_same_and_contexts_are_kept(estimator):
    X, y, queries = table()
    plain = estimator(n_clusters=3, context_size=60, device="cpu", cache_size=0).fit(X, y)
    keeping = estimator(n_clusters=3, context_size=60, device="cpu").fit(X, y)
    plan = plain.plan(queries)

    def ask(model, some):
        return (
            model.predict_proba(some, plan=plan)
            if estimator is CrumbClassifier
            else model.predict(some, plan=plan)
        )

    for some in (queries, queries[:7], queries):
        np.testing.assert_allclose(ask(keeping, some), ask(plain, some), rtol=1e-4, atol=1e-5)
    assert kept(keeping) == len({context.tobytes() for context in plan.contexts})
    assert kept(plain) == 0


def test_a_kept_context_answers_every_kind_of_question():
    X, y, queries = table()
    model = CrumbRegressor(n_clusters=2, context_size=60, device="cpu").fit(X, y)
    plain = CrumbRegressor(n_clusters=2, context_size=60, device="cpu", cache_size=0).fit(X, y)
    plan = model.plan(queries)
    for asked in ({"output_type": "mean"}, {"output_type": "quantiles", "quantiles": [0.2, 0.7]}):
        expected = plain.predict(queries, plan=plan, **asked)
        np.testing.assert_allclose(
            model.predict(queries, plan=plan, **asked), expected, rtol=1e-4, atol=1e-5
        )


def test_nothing_is_kept_without_a_frozen_plan():
    """Every batch has contexts of its own then; they would fill the memory for nothing."""
    X, y, queries = table()
    model = CrumbClassifier(n_clusters=3, context_size=60, device="cpu").fit(X, y)
    model.predict(queries)
    assert kept(model) == 0


def test_the_budget_holds():
    X, y, queries = table()
    model = CrumbClassifier(n_clusters=6, context_size=100, device="cpu", cache_size=3).fit(X, y)
    plan = model.plan(queries)
    answer = model.predict_proba(queries, plan=plan)
    contexts = model.backend_.contexts
    assert 0 < len(contexts) < plan.n_clusters
    assert contexts.used <= 3_000_000
    np.testing.assert_allclose(
        model.predict_proba(queries, plan=plan), answer, rtol=1e-4, atol=1e-5
    )
    tiny = CrumbClassifier(n_clusters=6, context_size=100, device="cpu", cache_size=0.1).fit(X, y)
    tiny.predict_proba(queries, plan=tiny.plan(queries))
    assert kept(tiny) == 0


def test_more_classes_than_the_network_has_are_answered_without():
    X, y, queries = table(classes=12)
    model = CrumbClassifier(n_clusters=2, context_size=120, device="cpu").fit(X, y)
    assert model.predict_proba(queries, plan=model.plan(queries)).shape == (40, 12)
    assert kept(model) == 0


def test_what_is_kept_neither_travels_nor_outlives_a_fit():
    X, y, queries = table()
    model = CrumbClassifier(n_clusters=2, context_size=60, device="cpu").fit(X, y)
    model.predict(queries, plan=model.plan(queries))
    assert kept(model) > 0
    assert kept(pickle.loads(pickle.dumps(model))) == 0
    assert len(pickle.dumps(model)) < 200_000
    model.fit(X, (y + 1) % 3)
    assert kept(model) == 0


@pytest.mark.parametrize("wrong", [-1, float("nan"), "big", True, None])
def test_sizes_that_are_none(wrong):
    X, y, _ = table()
    with pytest.raises(InvalidInput, match="cache_size must be a number of megabytes"):
        CrumbClassifier(cache_size=wrong).fit(X, y)


@pytest.mark.parametrize("context_size", [41, 60, 128])
def test_without_a_cache_an_answer_of_a_frozen_plan_does_not_depend_on_the_batch(context_size):
    """Bit for bit on a CPU: products of few rows would round differently."""
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(300, 7)), rng.normal(size=(150, 7))
    model = CrumbClassifier(
        n_clusters=2, context_size=context_size, cache_size=0, device="cpu"
    ).fit(X, (X[:, 0] > 0) + 0)
    plan = model.plan(Q)
    whole = model.predict_proba(Q, plan=plan)
    for size in (1, 2, 5, 7, 12, 33, 100):
        some = rng.choice(150, size)
        np.testing.assert_array_equal(model.predict_proba(Q[some], plan=plan), whole[some])


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
