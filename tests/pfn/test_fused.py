"""Contexts that share passes get the answers that the package gives one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from checkpoints import TINY, V1, V2, write_tabicl
from small_tables import QUANTILES, frame, numbers
from tabicl import TabICLClassifier, TabICLRegressor
from tabicl._model.tabicl import TabICL

import crumb.pfn.fused as module
from crumb import CrumbClassifier, CrumbRegressor
from crumb.pfn import BackendSettings, ContextTask, Output, preprocess, resolve_backend
from crumb.pfn.base import TargetScale
from crumb.pfn.forward import forward
from crumb.pfn.fused import Footprint, Table, stacks
from crumb.pfn.tabicl import TabICLBackend
from crumb.table.encoder import Rows

pytestmark = pytest.mark.filterwarnings(
    "ignore:The following categorical columns have a cardinality above 40",
    "ignore:n_quantiles",
    "ignore:overflow",
)
PROBA = Output("proba")
# The package's default has "power" in the place of "robust": ten times as slow to fit.
QUICK = {"norm_methods": ["none", "robust"]}


def backend(
    path: Path, task: str = "classification", n_estimators: int = 1, **options: Any
) -> TabICLBackend:
    settings = BackendSettings(n_estimators, options, "cpu", seed=0, n_jobs=None)
    made = resolve_backend(path, task, settings)
    assert isinstance(made, TabICLBackend)
    made.fuse = True
    return made


def task_of(X: Rows, classes: int, queries: Rows, regression: bool = False) -> ContextTask:
    rng = np.random.default_rng(len(X))
    y = rng.permutation(np.arange(len(X)) % classes)
    if regression:
        y = 1e3 + 20 * rng.normal(size=len(X))
        y = TargetScale.of(y).scaled(y)
    return ContextTask.of(X, y, queries)


def contexts(regression: bool = False) -> list[ContextTask]:
    """Equal and unequal sizes, many and few queries, holes, constants, outliers, absent classes."""
    tasks = [task_of(numbers(40, seed), 3, numbers(6, 90 + seed), regression) for seed in range(5)]
    tasks += [
        task_of(numbers(size, size), 2 + size % 4, numbers(5, 80), regression)
        for size in (30, 33, 37, 5)
    ]
    tasks.append(task_of(numbers(40, 7), 3, numbers(100, 8), regression))
    for seed, column in ((11, 0), (12, 2), (13, 0)):
        X = numbers(40, seed)
        X[:, column] = 0.1
        X[3, column] = np.nan
        tasks.append(task_of(X, 5, numbers(7, seed), regression))
    heavy = np.random.default_rng(1).standard_cauchy((40, 4)) * 1e6 + 1e9
    tasks.append(task_of(heavy, 10, heavy[:3] * 2, regression))
    tasks.append(
        task_of(numbers(40, 3).astype(np.float32), 2, numbers(4, 5).astype(np.float32), regression)
    )
    tasks.append(task_of(np.ones((9, 4)), 3, numbers(4, 5), regression))
    return tasks


def frames(regression: bool = False) -> list[ContextTask]:
    return [
        task_of(frame(size, size), 3, frame(9, 90 + size), regression)
        for size in (30, 30, 34, 40, 41)
    ]


def package(
    path: Path, tasks: Sequence[ContextTask], output: Output, **options: Any
) -> list[np.ndarray]:
    regression = output.kind != "proba"
    return [answer(one, task, output) for one, task in fitted(path, tasks, regression, **options)]


class ReadsOnce:
    """Mixed into the package's estimators: reading the file would take most of their time."""

    networks: ClassVar[dict[str, TabICL]] = {}

    def _load_model(self) -> None:
        path = str(self.model_path)
        if path not in self.networks:
            super()._load_model()
            self.networks[path] = self.model_
        self.model_ = self.networks[path]


class PackageClassifier(ReadsOnce, TabICLClassifier):
    pass


class PackageRegressor(ReadsOnce, TabICLRegressor):
    pass


def fitted(
    path: Path, tasks: Sequence[ContextTask], regression: bool = False, **options: Any
) -> list[tuple[Any, ContextTask]]:
    kind = PackageRegressor if regression else PackageClassifier
    given = {"n_estimators": 1, "random_state": 0, "device": "cpu", **options}
    return [(kind(model_path=path, **given).fit(task.X, task.y), task) for task in tasks]


def answer(estimator: Any, task: ContextTask, output: Output) -> np.ndarray:
    if output.kind == "proba":
        return estimator.predict_proba(task.queries)
    alphas = list(output.quantiles) or None
    return estimator.predict(task.queries, output_type=output.kind, alphas=alphas)


def assert_same(
    ours: list[np.ndarray], theirs: list[np.ndarray], atol: float = 2e-6, rtol: float = 2e-6
) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, atol=atol, rtol=rtol)
    assert max(np.ptp(answer, axis=0).max() for answer in ours) > 1e-3, (
        "answers that do not vary prove nothing"
    )


def all_fused(made: TabICLBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may not be asked."""
    monkeypatch.setattr(made, "predict_context", lambda *_: pytest.fail("not fused"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Tables, rows, columns and context rows of every pass, and whether some were masked."""
    seen: list[tuple[int, ...]] = []

    def spy(
        network: TabICL, X: torch.Tensor, y: torch.Tensor, *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        seen.append((*X.shape, y.shape[1], kwargs["lengths"] is not None))
        return forward(network, X, y, *args, **kwargs)

    monkeypatch.setattr(module, "forward", spy)
    return seen


@pytest.mark.parametrize(
    ("n_estimators", "options"), [(1, {}), (4, {}), (5, QUICK), (8, QUICK)], ids=str
)
@pytest.mark.parametrize("checkpoint", ["tabicl_classifier", "tabicl_v1_classifier"])
@pytest.mark.parametrize("make", [contexts, frames])
def test_probabilities(
    make: Any,
    checkpoint: str,
    n_estimators: int,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, tasks = request.getfixturevalue(checkpoint), make()
    made = backend(path, n_estimators=n_estimators, **options)
    if n_estimators == 1 or "v1" not in checkpoint:  # members of v1 share an embedding
        all_fused(made, monkeypatch)
    ours = list(made.predict_contexts(iter(tasks), PROBA))
    assert_same(ours, package(path, tasks, PROBA, n_estimators=n_estimators, **options))


@pytest.mark.parametrize(("n_estimators", "options"), [(1, {}), (4, {}), (4, QUICK)], ids=str)
@pytest.mark.parametrize("make", [contexts, frames])
def test_regression(
    make: Any,
    n_estimators: int,
    options: dict[str, Any],
    tabicl_regressor: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks = make(regression=True)
    made = backend(tabicl_regressor, "regression", n_estimators, **options)
    all_fused(made, monkeypatch)
    theirs = fitted(tabicl_regressor, tasks, True, n_estimators=n_estimators, **options)
    outputs = [Output("mean"), Output("median"), Output("quantiles", QUANTILES)]
    # The second one is slow in the package: one kind of answer will do.
    for output in [*outputs, Output("quantiles")] if n_estimators == 1 or options else outputs[:1]:
        ours = list(made.predict_contexts(tasks, output))
        assert_same(ours, [answer(one, task, output) for one, task in theirs], atol=1e-4)


def test_quantiles_that_nobody_named(tabicl_regressor: Path) -> None:
    tasks, output = contexts(regression=True)[:2], Output("quantiles")
    ours = list(backend(tabicl_regressor, "regression").predict_contexts(tasks, output))
    assert_same(ours, package(tabicl_regressor, tasks, output), atol=1e-4)


@pytest.mark.parametrize("checkpoint", ["tabicl_classifier", "tabicl_v1_classifier"])
@pytest.mark.parametrize(
    "options",
    [
        {"softmax_temperature": 0.3},
        {"average_logits": False, "n_estimators": 5, **QUICK},
        {"norm_methods": "quantile"},
        {"norm_methods": ["robust", "none", "quantile_rtdl"], "n_estimators": 6},
        {"outlier_threshold": 1.5},
        {
            "feat_shuffle_method": "random",
            "class_shuffle_method": "random",
            "n_estimators": 4,
            "random_state": 5,
            **QUICK,
        },
        {"batch_size": 3, "n_estimators": 14, **QUICK},
        {"batch_size": None, "n_estimators": 20, **QUICK},
    ],
)
def test_options(
    options: dict[str, Any],
    checkpoint: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, tasks = request.getfixturevalue(checkpoint), contexts()[::2]
    made = backend(path, **options)
    if "n_estimators" not in options or "v1" not in checkpoint:
        all_fused(made, monkeypatch)
    assert_same(list(made.predict_contexts(tasks, PROBA)), package(path, tasks, PROBA, **options))


@pytest.mark.parametrize(
    "options", [{"kv_cache": True}, {"inference_config": {"ROW_CONFIG": {"use_amp": False}}}]
)
def test_options_that_only_the_package_knows(
    options: dict[str, Any], tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    tasks = contexts()[:2]
    ours = list(backend(tabicl_classifier, **options).predict_contexts(tasks, PROBA))
    assert_same(ours, package(tabicl_classifier, tasks, PROBA, **options))
    assert not passes


@pytest.mark.parametrize(
    "flags", [{"icl_ssmax": "ssmax"}, {"norm_first": False}, {"col_feature_group": "valid"}]
)
def test_networks_that_only_the_package_knows(
    flags: dict[str, Any], tmp_path: Path, passes: list[tuple[int, ...]]
) -> None:
    path = write_tabicl(tmp_path / "odd.ckpt", {"max_classes": 10, **TINY, **V2, **flags})
    tasks = contexts()[:2]
    assert_same(list(backend(path).predict_contexts(tasks, PROBA)), package(path, tasks, PROBA))
    assert not passes


def test_tasks_that_only_the_package_knows(
    tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    """More classes than the network has, among others: answers come in the order of the tasks."""
    tasks = contexts()[:3]
    tasks.insert(1, task_of(numbers(45, 1), 15, numbers(4, 2)))
    assert_same(
        list(backend(tabicl_classifier).predict_contexts(tasks, PROBA)),
        package(tabicl_classifier, tasks, PROBA),
    )
    assert passes == [(3, 46, 4, 40, False)]


def test_infinite_values_are_refused_as_by_the_package(tabicl_classifier: Path) -> None:
    X = numbers(20, 1)
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        list(backend(tabicl_classifier).predict_contexts([task_of(X, 2, numbers(3, 2))], PROBA))


def test_contexts_that_are_kept_are_not_stacked(
    tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    tasks = [replace(task, key=bytes([i])) for i, task in enumerate(contexts()[:3])]
    made = backend(tabicl_classifier)
    made.settings = replace(made.settings, cache_bytes=1 << 30)
    tasks[1] = replace(tasks[1], key=None)
    assert_same(list(made.predict_contexts(tasks, PROBA)), package(tabicl_classifier, tasks, PROBA))
    assert passes == [(1, 46, 4, 40, False)]
    passes.clear()
    made.settings = replace(made.settings, cache_bytes=0)
    assert_same(list(made.predict_contexts(tasks, PROBA)), package(tabicl_classifier, tasks, PROBA))
    assert passes == [(3, 46, 4, 40, False)]


def test_one_pass_for_all(tabicl_classifier: Path, passes: list[tuple[int, ...]]) -> None:
    """Contexts of equal size need no mask, whatever their classes; unequal ones share one."""
    equal = [
        task_of(numbers(40, seed), 2 + seed % 3, numbers(1 + seed % 3, seed)) for seed in range(20)
    ]
    list(backend(tabicl_classifier).predict_contexts(equal, PROBA))
    assert passes == [(20, 43, 4, 40, False)]
    passes.clear()
    unequal = [task_of(numbers(30 + seed, seed), 2, numbers(3, seed)) for seed in range(10)]
    list(backend(tabicl_classifier).predict_contexts(unequal, PROBA))
    assert passes == [(10, 42, 4, 39, True)]
    passes.clear()
    list(backend(tabicl_classifier).predict_contexts(equal + unequal, PROBA))
    assert sorted(passes) == [(10, 42, 4, 39, True), (20, 43, 4, 40, False)]
    passes.clear()
    list(backend(tabicl_classifier, n_estimators=3).predict_contexts(equal, PROBA))
    assert passes == [(60, 43, 4, 40, False)]


def on_cpu(path: Path, n_jobs: int, task: str = "classification", **more: Any) -> TabICLBackend:
    """As it is for users: nothing says how contexts go through the network."""
    made = backend(path, task, **more)
    made.settings, made.fuse = replace(made.settings, n_jobs=n_jobs), None
    return made


@pytest.mark.parametrize(("n_estimators", "options"), [(1, QUICK), (3, QUICK), (4, {})], ids=str)
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("make", [contexts, frames])
def test_on_a_cpu_contexts_go_side_by_side(
    make: Any,
    task: str,
    n_estimators: int,
    options: dict[str, Any],
    request: pytest.FixtureRequest,
    passes: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each in passes of its own, with the same answers for any number of threads."""
    regression = task == "regression"
    path = request.getfixturevalue("tabicl_regressor" if regression else "tabicl_classifier")
    tasks, output = make(regression), Output("mean") if regression else PROBA
    options = {"n_estimators": n_estimators, **options}
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    answers = []
    for n_jobs in (1, 2, 8):
        made = on_cpu(path, n_jobs, task, **options)
        all_fused(made, monkeypatch)
        answers.append(list(made.predict_contexts(iter(tasks), output)))
    assert {tables for tables, *_ in passes} == {1}
    assert len(passes) > 3 * (n_estimators * (len(tasks) - 1))  # one column has few members
    for some in answers[1:]:
        assert_same(some, answers[0], atol=1e-5, rtol=1e-5)
    assert_same(answers[0], package(path, tasks, output, **options), atol=1e-5, rtol=1e-5)


@pytest.fixture
def powers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the stacks that were transformed by powers; the package may not do so."""
    seen: list[int] = []

    def spy(X: torch.Tensor, *args: Any) -> torch.Tensor:
        seen.append(len(X))
        return preprocess.powered(X, *args)

    monkeypatch.setitem(preprocess.NORMS, "power", spy)
    monkeypatch.setattr(
        preprocess, "PreprocessingPipeline", lambda *_: pytest.fail("by the package")
    )
    return seen


def test_members_that_differ_in_their_order_are_powered_once(
    tabicl_classifier: Path, powers: list[int]
) -> None:
    tasks = [task_of(numbers(40, seed), 3, numbers(6, seed)) for seed in range(5)]
    list(backend(tabicl_classifier, n_estimators=6).predict_contexts(tasks, PROBA))
    assert powers == [5]
    powers.clear()
    list(on_cpu(tabicl_classifier, 1, n_estimators=6).predict_contexts(tasks, PROBA))
    assert powers == [1] * 5


@pytest.mark.parametrize("together", [True, False], ids=["stacked", "side by side"])
def test_a_column_that_hardly_varies_is_powered_by_the_package(
    together: bool, tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that is far from it overflows there, and the package draws all queries in."""
    asked = []

    class Spy(preprocess.PreprocessingPipeline):
        def fit(self, X: np.ndarray, y: None = None) -> Spy:
            asked.append(len(X))
            return super().fit(X, y)

    monkeypatch.setattr(preprocess, "PreprocessingPipeline", Spy)
    tasks = [task_of(numbers(size, size), 3, numbers(6, size)) for size in (40, 41, 42, 43)]
    narrow = np.column_stack(
        [numbers(42, 1)[:, :3], 1e-9 * np.random.default_rng(0).normal(size=42)]
    )
    tasks[2] = task_of(narrow, 3, numbers(6, 1))
    options = {"n_estimators": 4}
    made = (backend if together else partial(on_cpu, n_jobs=1))(tabicl_classifier, **options)
    all_fused(made, monkeypatch)
    ours = list(made.predict_contexts(tasks, PROBA))
    assert asked == [42]
    assert_same(ours, package(tabicl_classifier, tasks, PROBA, **options))


def test_side_by_side_means_in_threads(
    tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two passes run at a time, each with one thread of torch; a lone one has both."""
    meeting, threads = threading.Barrier(2, timeout=30), []

    def meet(*args: Any, **kwargs: Any) -> torch.Tensor:
        threads.append(torch.get_num_threads())
        if alone is False:
            meeting.wait()  # fails where the other does not run meanwhile
        return forward(*args, **kwargs)

    monkeypatch.setattr(module, "forward", meet)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    made = on_cpu(tabicl_classifier, 2)
    before = torch.get_num_threads()
    alone = False
    assert len(list(made.predict_contexts(contexts()[:2], PROBA))) == 2
    alone = True
    assert len(list(made.predict_contexts(contexts()[:1], PROBA))) == 1
    assert threads == [1, 1, 2]
    assert torch.get_num_threads() == before


def test_contexts_are_made_when_their_turn_comes(
    tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a budget of time, a context is cut by what the ones before it took."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    made: list[ContextTask] = []
    tasks = (made.append(task) or task for task in contexts()[:8])  # type: ignore[func-returns-value]
    next(iter(on_cpu(tabicl_classifier, 2).predict_contexts(tasks, PROBA)))
    assert len(made) == 3  # two side by side, and the next one


def test_large_contexts_are_not_side_by_side(
    tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two passes would not fit into memory, each gets all threads."""
    threads = []

    def count(*args: Any, **kwargs: Any) -> torch.Tensor:
        threads.append(torch.get_num_threads())
        return forward(*args, **kwargs)

    monkeypatch.setattr(module, "forward", count)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    made = on_cpu(tabicl_classifier, 2)
    cells = Footprint.of(made.network, 4, torch.float32).cells
    made.settings = replace(made.settings, stack_bytes=60 * cells)
    tasks = contexts()[:2]
    assert_same(list(made.predict_contexts(tasks, PROBA)), package(tabicl_classifier, tasks, PROBA))
    assert threads == [2, 2]


def test_a_context_that_comes_again_is_the_packages_on_a_cpu(
    tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    """To the last bit, whether it is kept or not."""
    tasks = [replace(task, key=bytes([i])) for i, task in enumerate(contexts()[:3])]
    made = on_cpu(tabicl_classifier, 2)
    ours = list(made.predict_contexts(tasks, PROBA))
    made.fuse = False
    for mine, other in zip(ours, made.predict_contexts(tasks, PROBA), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert not passes


def test_predictions_in_several_threads(tabicl_classifier: Path) -> None:
    tasks = contexts()[:4]
    expected = package(tabicl_classifier, tasks, PROBA)

    def ask(n_jobs: int) -> list[np.ndarray]:
        return list(on_cpu(tabicl_classifier, n_jobs).predict_contexts(tasks, PROBA))

    with ThreadPoolExecutor(4) as executor:
        for answers in executor.map(ask, [1, 2, 1, 2]):
            assert_same(answers, expected)


class Sizes:
    """Stands in for a prepared task."""

    def __init__(self, rows: int):
        self.y = np.zeros(rows)


def sizes_of(
    tables: Sequence[tuple[int, int]], budget: int = 1 << 40
) -> list[list[tuple[int, int]]]:
    stacked = stacks([Table(Sizes(n), None, 0, q) for n, q in tables], Footprint(1, 1, 0), budget)  # type: ignore[arg-type]
    return [[(table.rows, table.queries) for table in stack] for stack in stacked]


def test_stacks_hold_little_padding() -> None:
    rng = np.random.default_rng(0)
    tables = [
        (int(n), int(q))
        for n, q in zip(rng.integers(100, 2_000, 300), rng.integers(1, 3_000, 300), strict=True)
    ]
    found = sizes_of(tables)
    assert sorted(table for stack in found for table in stack) == sorted(tables)
    for stack in found:
        padded = len(stack) * (max(n for n, _ in stack) + max(q for _, q in stack))
        assert sum(n + q for n, q in stack) >= 0.75 * padded
    assert len(found) < 60


def test_many_queries_are_not_stacked_with_one() -> None:
    assert sizes_of([(99, 1), (99, 500), (99, 2), (99, 480)]) == [
        [(99, 500), (99, 480)],
        [(99, 2), (99, 1)],
    ]
    assert sizes_of([(2_000, 1)] * 20 + [(2_000, 20)]) == [[(2_000, 20)] + [(2_000, 1)] * 20]


def test_equal_contexts_are_kept_apart_from_odd_ones() -> None:
    assert sizes_of([(500, 9)] * 10 + [(480, 9)]) == [[(500, 9)] * 10, [(480, 9)]]
    assert sizes_of([(500, 9)] * 2 + [(480, 9)]) == [[(500, 9), (500, 9), (480, 9)]]


def test_stacks_fit_in_memory() -> None:
    assert [len(stack) for stack in sizes_of([(90, 10)] * 10, budget=399)] == [3, 3, 3, 1]
    assert [len(stack) for stack in sizes_of([(90, 10)] * 3, budget=10)] == [1, 1, 1]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device that holds two tables; the sizes of the stacks that were tried."""
    tried: list[int] = []

    def strict(network: TabICL, X: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        tried.append(len(X))
        if len(X) > 2 or X.shape[1] > 90:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(network, X, *args, **kwargs)

    monkeypatch.setattr(module, "forward", strict)
    return tried


def test_a_stack_that_does_not_fit_is_halved(
    tabicl_classifier: Path, little_memory: list[int]
) -> None:
    tasks = [task_of(numbers(40, seed), 3, numbers(4, seed)) for seed in range(7)]
    # One is too large even alone: the package splits and offloads.
    tasks.insert(3, task_of(numbers(90, 3), 3, numbers(4, 9)))
    assert_same(
        list(backend(tabicl_classifier).predict_contexts(tasks, PROBA)),
        package(tabicl_classifier, tasks, PROBA),
    )
    assert little_memory == [7, 3, 1, 2, 4, 2, 2, 1]


def test_queries_in_pieces(
    tabicl_classifier: Path, passes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_QUERIES", 10)
    tasks = [
        task_of(numbers(40, seed), 3, numbers(size, seed))
        for seed, size in enumerate((95, 3, 25, 200))
    ]
    made = backend(tabicl_classifier, n_estimators=2)
    cells = Footprint.of(TabICL(**{"max_classes": 10, **TINY, **V2}), 4, torch.float32).cells
    made.settings = replace(made.settings, stack_bytes=cells * 72)
    assert_same(
        list(made.predict_contexts(tasks, PROBA)),
        package(tabicl_classifier, tasks, PROBA, n_estimators=2),
    )
    assert max(rows for _, rows, *_ in passes) == 72
    passes.clear()
    made.settings = replace(made.settings, stack_bytes=cells * 45)
    assert_same(
        list(made.predict_contexts(tasks, PROBA)),
        package(tabicl_classifier, tasks, PROBA, n_estimators=2),
    )
    # For five queries a piece the context is not done again.
    assert {rows for _, rows, *_ in passes} == {43}


@pytest.mark.parametrize(("columns", "expected"), [(4, 2), (60, 1)])
def test_few_tables_are_embedded_together(
    columns: int, expected: int, tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels count rows and columns in 16 bits."""
    seen = []

    def spy(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append(kwargs["at_once"])
        return forward(*args, **kwargs)

    monkeypatch.setattr(module, "forward", spy)
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    tasks = [task_of(numbers(40, seed, columns), 3, numbers(3, seed, columns)) for seed in range(5)]
    ours = list(backend(tabicl_classifier).predict_contexts(tasks, PROBA))
    assert_same(ours, package(tabicl_classifier, tasks, PROBA))
    assert seen == [expected]


def test_an_estimator_of_the_package(
    tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    """It comes with all of its arguments, most of them at their defaults."""
    made = TabICLClassifier(
        model_path=str(tabicl_classifier), n_estimators=3, random_state=7, device="cpu"
    )
    crumb = CrumbClassifier(model=made, strategy="full").fit(numbers(60, 1), np.arange(60) % 3)
    crumb.backend_.fuse = True
    expected = made.fit(numbers(60, 1), np.arange(60) % 3).predict_proba(numbers(9, 2))
    np.testing.assert_allclose(crumb.predict_proba(numbers(9, 2)), expected, atol=1e-6)
    assert sum(tables for tables, *_ in passes) == 3


def test_tasks_are_taken_a_few_at_a_time(
    tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_so_far = 0

    def lazily() -> Iterator[ContextTask]:
        nonlocal made_so_far
        for task in tasks:
            made_so_far += 1
            yield task

    tasks = contexts()[:5]
    monkeypatch.setattr("crumb.pfn.tabicl.HELD_BYTES", 2 * module.task_bytes(tasks[0]))
    answers = backend(tabicl_classifier).predict_contexts(lazily(), PROBA)
    first = next(answers)
    assert made_so_far == 3  # the third did not fit
    assert_same([first, *answers], package(tabicl_classifier, tasks, PROBA))


@pytest.mark.parametrize("flags", [V1, V2])
def test_half_precision_where_the_package_has_it(
    flags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tabicl(tmp_path / "half.ckpt", {"max_classes": 10, **TINY, **flags})
    tasks = [
        task_of(np.nan_to_num(numbers(60, seed)), 3, np.nan_to_num(numbers(8, seed)))
        for seed in range(3)
    ]
    exact, half = (package(path, tasks, PROBA, use_amp=amp) for amp in (False, True))
    dtypes = []

    def spy(
        network: TabICL, X: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, **kwargs: Any
    ) -> torch.Tensor:
        dtypes.append(dtype)
        return forward(network, X, y, dtype, **kwargs)

    monkeypatch.setattr(module, "forward", spy)
    assert_same(
        list(backend(path, use_amp=True).predict_contexts(tasks, PROBA)), half, atol=0.02, rtol=0
    )
    assert_same(list(backend(path, use_amp="auto").predict_contexts(tasks, PROBA)), exact)
    assert dtypes == [torch.get_autocast_dtype("cpu"), torch.float32]


@pytest.mark.parametrize("n_estimators", [1, 4])
def test_through_the_estimator(
    n_estimators: int, tabicl_classifier: Path, passes: list[tuple[int, ...]]
) -> None:
    """The three stages with shared passes equal those without."""
    X = pd.DataFrame(numbers(300, 1), columns=list("abcd"))
    y, queries = np.arange(300) % 4, pd.DataFrame(numbers(50, 2), columns=list("abcd"))
    crumb = CrumbClassifier(
        model=tabicl_classifier,
        n_clusters=8,
        context_size=30,
        n_estimators=n_estimators,
        device="cpu",
    ).fit(X, y)
    crumb.backend_.fuse = False
    alone = crumb.predict_proba(queries)
    crumb.backend_.fuse = True
    np.testing.assert_allclose(crumb.predict_proba(queries), alone, atol=1e-6)
    assert sum(tables for tables, *_ in passes) == 8 * n_estimators > len(passes)


@pytest.mark.parametrize("together", [True, None], ids=["stacked", "side by side"])
def test_a_regressor_of_four_members(
    together: bool | None,
    tabicl_regressor: Path,
    powers: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, queries = np.exp(numbers(200, 1)), np.exp(numbers(30, 2))
    y = np.nan_to_num(X[:, 0]) + np.random.default_rng(0).normal(size=200)
    crumb = CrumbRegressor(
        model=tabicl_regressor, n_clusters=4, context_size=40, n_estimators=4, device="cpu"
    ).fit(X, y)
    crumb.backend_.fuse = together
    ours = crumb.predict(queries)
    assert sum(powers) == 4
    monkeypatch.undo()
    crumb.backend_.fuse = False
    np.testing.assert_allclose(ours, crumb.predict(queries), rtol=1e-5, atol=1e-5)
