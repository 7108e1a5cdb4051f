"""TabPFN's batched calls: the package's answers to one context at a time, from few passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("tabpfn")

from checkpoints import LATER, later_tabpfn
from small_tables import QUANTILES, classes, numbers, table, targets
from tabpfn import TabPFNClassifier, TabPFNRegressor
from tabpfn.architectures.tabpfn_v2 import TabPFNV2

import crumb.pfn.tabpfn as module
from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.pfn.base import BackendSettings, ContextTask, Output
from crumb.pfn.models import read_checkpoint, resolve_backend
from crumb.pfn.tabpfn import TabPFNBackend, shared_specs

pytestmark = pytest.mark.filterwarnings(
    "ignore:The following categorical columns have a cardinality above 40",
    "ignore:These columns look like free text",
    "ignore:n_quantiles",
    # torch's profiler looks into every module.
    "ignore:Importing from 'tabpfn.model:DeprecationWarning",
)
# In half precision, how many rows go together shows in the third digit.
SINGLE = {"inference_precision": torch.float32}
PROBA = Output("proba")


@pytest.fixture(autouse=True)
def batched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr(TabPFNBackend, "batched", True)


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many contexts each pass of the network took."""
    seen: list[int] = []
    forward = TabPFNV2.forward

    def counted(self: TabPFNV2, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(x.shape[1])
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(TabPFNV2, "forward", counted)
    return seen


def backend(path: Path, n_estimators: int = 1, **options: Any) -> TabPFNBackend:
    settings = BackendSettings(n_estimators, {**SINGLE, **options}, device="cpu", seed=0, n_jobs=1)
    return TabPFNBackend("tabpfn", read_checkpoint(path), None, settings)


def one_by_one(
    path: Path, tasks: list[ContextTask], output: Output, n_estimators: int = 1, **options: Any
) -> list[np.ndarray]:
    """The package, called by hand."""
    kind = TabPFNClassifier if output.kind == "proba" else TabPFNRegressor
    given = {"n_estimators": n_estimators, "random_state": 0, "device": "cpu", **SINGLE, **options}
    fitted = (kind(model_path=path, **given).fit(task.X, task.y) for task in tasks)
    if output.kind == "proba":
        return [one.predict_proba(task.queries) for one, task in zip(fitted, tasks, strict=True)]
    asked = {"output_type": output.kind, "quantiles": list(output.quantiles) or None}
    return [one.predict(task.queries, **asked) for one, task in zip(fitted, tasks, strict=True)]


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float = 1e-4) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        assert np.ptp(one, axis=0).max() > 1e-3, "answers that do not vary prove nothing"


def contexts(kind: str = "numbers", regression: bool = False) -> list[ContextTask]:
    """Two sizes, two or three classes, unequal numbers of queries; one has a constant column."""
    tasks = []
    for i, (rows, queries, count) in enumerate(
        [(60, 9, 3), (40, 12, 3), (60, 14, 3), (60, 5, 2), (40, 3, 3), (60, 7, 2)]
    ):
        y = targets(rows, i) * 10**i if regression else classes(rows, i, count)
        tasks.append(ContextTask.of(table(kind, rows, i), y, table(kind, queries, 50 + i)))
    if kind == "numbers":
        assert isinstance(tasks[2].X, np.ndarray)
        tasks[2].X[:, 1] = 1.0
    return tasks


@pytest.mark.parametrize("n_estimators", [1, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_classifier_equals_the_package(
    kind: str, n_estimators: int, tabpfn_classifier: Path
) -> None:
    tasks = contexts(kind)
    answers = list(backend(tabpfn_classifier, n_estimators).predict_contexts(tasks, PROBA))
    shapes = [(9, 3), (12, 3), (14, 3), (5, 2), (3, 3), (7, 2)]
    assert [answer.shape for answer in answers] == shapes
    assert_same(answers, one_by_one(tabpfn_classifier, tasks, PROBA, n_estimators))


@pytest.mark.parametrize("n_estimators", [1, 4])
@pytest.mark.parametrize("kind", ["numbers", "frame"])
def test_regressor_equals_the_package(kind: str, n_estimators: int, tabpfn_regressor: Path) -> None:
    """Targets of every context on a scale of their own."""
    tasks, ours = contexts(kind, regression=True), backend(tabpfn_regressor, n_estimators)
    expected = one_by_one(tabpfn_regressor, tasks, Output("full", QUANTILES), n_estimators)
    for output in ("mean", "median"):
        answers = list(ours.predict_contexts(tasks, Output(output)))
        assert_same(answers, [answer[output] for answer in expected])
    answers = list(ours.predict_contexts(tasks, Output("quantiles", QUANTILES)))
    assert_same(answers, [np.stack(answer["quantiles"], axis=1) for answer in expected])


def test_contexts_of_a_kind_share_a_pass(widths: list[int], tabpfn_classifier: Path) -> None:
    list(backend(tabpfn_classifier, n_estimators=2).predict_contexts(_alike(5), PROBA))
    assert widths == [5, 5]  # one for each member of the ensemble


def test_default_precision_is_as_exact_as_the_package(tabpfn_classifier: Path) -> None:
    """Many devices have half precision by default, where sharing a pass changes the rounding."""
    tasks, default = contexts(), {"inference_precision": "auto"}
    exact = one_by_one(tabpfn_classifier, tasks, PROBA)
    ours = list(backend(tabpfn_classifier, **default).predict_contexts(tasks, PROBA))
    theirs = one_by_one(tabpfn_classifier, tasks, PROBA, **default)

    def error(answers: list[np.ndarray]) -> float:
        return max(np.abs(answer - one).max() for answer, one in zip(answers, exact, strict=True))

    assert error(ours) <= 1.5 * error(theirs) + 1e-4


def test_estimator_with_contexts_that_lack_a_class(
    widths: list[int], tabpfn_classifier: Path
) -> None:
    X, y, queries = numbers(200, 1), classes(200, 2, 4), numbers(60, 3)

    def answer() -> np.ndarray:
        crumb = CrumbClassifier(
            model=tabpfn_classifier,
            strategy="uniform",
            n_clusters=8,
            context_size=6,
            device="cpu",
            model_options=SINGLE,
        )
        return crumb.fit(X, y).predict_proba(queries)

    together = answer()
    assert max(widths) > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TabPFNBackend, "batched", False)
        widths.clear()
        assert_same([together], [answer()])
        assert max(widths) == 1


def test_tasks_are_taken_as_they_are_needed(
    monkeypatch: pytest.MonkeyPatch, tabpfn_classifier: Path
) -> None:
    monkeypatch.setattr(module, "HELD_CELLS", sum(task.cells for task in _alike(2)))
    taken = 0

    def tasks() -> Iterator[ContextTask]:
        nonlocal taken
        for task in _alike(6):
            taken += 1
            yield task

    answers = backend(tabpfn_classifier).predict_contexts(tasks(), PROBA)
    assert taken == 0
    first = next(answers)
    assert taken == 3
    assert_same([first, *answers], one_by_one(tabpfn_classifier, _alike(6), PROBA))


def test_calls_fit_in_memory(
    monkeypatch: pytest.MonkeyPatch, widths: list[int], tabpfn_classifier: Path
) -> None:
    tasks = _alike(7)
    specs = shared_specs(tabpfn_classifier, "classification", "cpu", "torch.float32")
    one = len(tasks[0].X) * module.row_bytes(specs, 4)  # and some more for the queries
    monkeypatch.setattr(module, "BATCH_BYTES", 4 * one)
    answers = list(backend(tabpfn_classifier).predict_contexts(tasks, PROBA))
    assert widths == [3, 3, 1]
    assert_same(answers, one_by_one(tabpfn_classifier, tasks, PROBA))
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    widths.clear()
    list(backend(tabpfn_classifier).predict_contexts(tasks[:2], PROBA))
    assert widths == [1, 1]


@pytest.mark.parametrize("version", ["v2", *LATER])
def test_estimate_is_not_below_what_a_pass_takes(
    version: str, tabpfn_classifier: Path, tmp_path: Path
) -> None:
    """The largest sum of tensors alive at once, as the allocator counts it."""
    tasks = [
        ContextTask.of(numbers(200, i, 8), classes(200, i), numbers(50, 9 + i, 8)) for i in range(4)
    ]
    path = tabpfn_classifier
    if version != "v2":
        path = later_tabpfn(tmp_path / "later.ckpt", version, "classification")
    model = backend(path)
    list(model.predict_contexts(tasks, PROBA))
    with torch.profiler.profile(profile_memory=True) as profile:
        list(model.predict_contexts(tasks, PROBA))
    alive = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
    estimate = len(tasks) * 250 * module.row_bytes(model.specs, 8)
    assert peak <= estimate <= (2 if version in ("v2", "v2.5", "v2.6") else 2.5) * peak


def test_memory_that_runs_out_halves_the_call(
    monkeypatch: pytest.MonkeyPatch, widths: list[int], tabpfn_classifier: Path
) -> None:
    forward = TabPFNV2.forward

    def small(self: TabPFNV2, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.shape[1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(self, x, *args, **kwargs)

    monkeypatch.setattr(TabPFNV2, "forward", small)
    answers = list(backend(tabpfn_classifier).predict_contexts(_alike(5), PROBA))
    assert widths == [2, 1, 2]
    assert_same(answers, one_by_one(tabpfn_classifier, _alike(5), PROBA))


@pytest.mark.parametrize(
    "options", [{"balance_probabilities": True}, {"inference_precision": torch.float64}]
)
def test_what_the_batched_call_cannot_do(
    options: Any, widths: list[int], tabpfn_classifier: Path
) -> None:
    tasks = _alike(3)
    answers = list(backend(tabpfn_classifier, **options).predict_contexts(tasks, PROBA))
    assert widths == [1, 1, 1]
    assert_same(answers, one_by_one(tabpfn_classifier, tasks, PROBA, **options))


def test_contexts_that_the_package_refuses(tabpfn_classifier: Path) -> None:
    tasks = [
        ContextTask.of(numbers(30, i, 501), classes(30, i), numbers(3, 9, 501)) for i in range(2)
    ]
    with pytest.raises(
        InvalidInput, match=r"model_options.*features `501`.*ignore_pretraining_limits=True"
    ):
        list(backend(tabpfn_classifier).predict_contexts(tasks, PROBA))


def test_declared_categories(tabpfn_classifier: Path) -> None:
    rng = np.random.default_rng(0)
    tasks = [
        ContextTask.of(
            rng.integers(0, 8, (90, 3)).astype(float),
            classes(90, i),
            rng.integers(0, 8, (9, 3)).astype(float),
        )
        for i in range(3)
    ]
    model = backend(tabpfn_classifier)
    model.settings = replace(model.settings, categorical_indices=[0, 2])
    options = {"categorical_features_indices": [0, 2]}
    answers = list(model.predict_contexts(tasks, PROBA))
    assert_same(answers, one_by_one(tabpfn_classifier, tasks, PROBA, **options))


def test_network_is_not_copied(monkeypatch: pytest.MonkeyPatch, tabpfn_classifier: Path) -> None:
    """The package clones its estimator for a batched call."""
    networks = set()
    forward = TabPFNV2.forward

    def noted(self: TabPFNV2, *args: Any, **kwargs: Any) -> Any:
        networks.add(id(self))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(TabPFNV2, "forward", noted)
    model = backend(tabpfn_classifier)
    list(model.predict_contexts(_alike(3), PROBA))
    assert networks == {id(model.specs.model)}


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("version", LATER)
def test_later_networks_of_the_same_package(version: str, task: str, tmp_path: Path) -> None:
    path = later_tabpfn(tmp_path / f"tabpfn-{version}.ckpt", version, task)
    regression = task == "regression"
    tasks, output = contexts(regression=regression), Output("mean") if regression else PROBA
    settings = BackendSettings(1, SINGLE, device="cpu", seed=0, n_jobs=1)
    ours = resolve_backend(path, task, settings)
    assert_same(list(ours.predict_contexts(tasks, output)), one_by_one(path, tasks, output))


@pytest.mark.parametrize(
    ("device", "options", "expected"),
    [
        ("cpu", {}, False),
        ("mps", {}, False),
        ("cuda", {}, True),
        ("cuda:1", {}, True),
        ("cuda", {"device": "cpu"}, False),
        ("cuda", {"device": ["cuda:0", "cuda:1"]}, False),
        ("cuda", {"memory_saving_mode": True}, False),
        ("cuda", {"fit_mode": "low_memory"}, False),
    ],
)
def test_only_a_gpu_takes_contexts_together(
    device: str,
    options: Any,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    tabpfn_classifier: Path,
) -> None:
    model = backend(tabpfn_classifier)
    monkeypatch.undo()
    model.settings = replace(model.settings, device=device, options=options)
    assert model.batched == expected


def test_groups() -> None:
    """Tables and frames, shapes and classes do not mix; nor do few queries with very many."""
    X, y, queries = numbers(30, 1), classes(30, 1), numbers(5, 2)
    task = ContextTask.of(X, y, queries)
    others = [
        ContextTask.of(numbers(31, 1), classes(31, 1), queries),
        ContextTask.of(numbers(30, 1, 5), y, numbers(5, 2, 5)),
        replace(task, y=classes(30, 1, 2)),
        ContextTask.of(pd.DataFrame(X), y, pd.DataFrame(queries)),
        ContextTask.of(X, y, numbers(500, 2)),
    ]
    keys = {module.group_of(one, PROBA) for one in [task, *others]}
    assert len(keys) == 6
    same = ContextTask.of(numbers(30, 3), classes(30, 4), numbers(11, 5))
    assert module.group_of(same, PROBA) == module.group_of(task, PROBA)
    whole = replace(task, y=np.arange(30))
    assert module.group_of(whole, Output("mean")) == module.group_of(task, Output("mean"))


def _alike(count: int) -> list[ContextTask]:
    return [
        ContextTask.of(numbers(40, i), classes(40, i), numbers(3 + i % 2, 50 + i))
        for i in range(count)
    ]
