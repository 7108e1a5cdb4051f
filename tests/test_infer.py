"""Stage 3: contexts by hand, one global class list, and contexts that teach nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from small_tables import classes, numbers, targets

from crumb import CrumbClassifier
from crumb.errors import InvalidInput
from crumb.infer import distinct_passes, infer
from crumb.pfn import Backend, BackendSettings, Output, resolve_backend
from crumb.pool import HeldRows

SETTINGS = BackendSettings(n_estimators=1, options={}, device="cpu", seed=0, n_jobs=None)
PROBA, MEAN = Output("proba"), Output("mean")


def held(rows, y, n_classes) -> HeldRows:
    return HeldRows(rows, y, np.arange(len(y)), n_classes, b"pool")


@pytest.fixture(params=["tabicl", "tabpfn"])
def family(request: pytest.FixtureRequest) -> str:
    if request.param == "tabpfn":
        pytest.importorskip("tabpfn")
    return request.param


@pytest.fixture
def classifier(family: str, request: pytest.FixtureRequest) -> Backend:
    return resolve_backend(
        request.getfixturevalue(f"{family}_classifier"), "classification", SETTINGS
    )


@pytest.fixture
def regressor(family: str, request: pytest.FixtureRequest) -> Backend:
    return resolve_backend(request.getfixturevalue(f"{family}_regressor"), "regression", SETTINGS)


def official(backend: Any) -> Any:
    """The package's own estimator with its own copy of the network."""
    if type(backend).__name__ == "TabICLBackend":
        from tabicl import TabICLClassifier as Classifier
        from tabicl import TabICLRegressor as Regressor
    else:
        from tabpfn import TabPFNClassifier as Classifier
        from tabpfn import TabPFNRegressor as Regressor
    kind = Classifier if backend.task == "classification" else Regressor
    return kind(model_path=backend.path, n_estimators=1, random_state=0, device="cpu")


def test_contexts_that_lack_classes(classifier: Backend) -> None:
    rows, queries = numbers(90, 1), numbers(24, 2)
    y = classes(90, 3, count=6)
    wanted = [(0, 1, 2, 3, 4, 5), (1, 4), (5, 0, 3), (2,)]  # all, some, not in a row, one
    contexts = [np.flatnonzero(np.isin(y, some)) for some in wanted]
    labels = np.arange(24) % 4
    answers = infer(classifier, held(rows, y, 6), contexts, labels, queries, PROBA)
    np.testing.assert_allclose(answers.sum(axis=1), 1, atol=1e-6)
    for k, some in enumerate(wanted[:3]):
        model = official(classifier).fit(rows[contexts[k]], y[contexts[k]])
        expected = np.zeros((6, 6))
        expected[:, np.sort(some)] = model.predict_proba(queries[labels == k])
        np.testing.assert_allclose(answers[labels == k], expected, atol=1e-6)
    np.testing.assert_array_equal(answers[labels == 3], np.tile(np.eye(6)[2], (6, 1)))


def test_regression_contexts(regressor: Backend) -> None:
    rows, y, queries = numbers(60, 1), targets(60, 2), numbers(9, 3)
    contexts, labels = [np.arange(0, 30), np.arange(20, 60), np.array([7])], np.arange(9) % 3
    levels = (0.1, 0.8)
    for output in (MEAN, Output("median"), Output("quantiles", levels)):
        answers = infer(regressor, held(rows, y, None), contexts, labels, queries, output)
        for k in (0, 1):
            model = official(regressor).fit(rows[contexts[k]], y[contexts[k]])
            options: dict[str, Any] = {"output_type": output.kind}
            if output.kind == "quantiles":
                options["alphas" if "TabICL" in type(model).__name__ else "quantiles"] = list(
                    levels
                )
            expected = model.predict(queries[labels == k], **options)
            expected = np.stack(expected, axis=1) if isinstance(expected, list) else expected
            np.testing.assert_allclose(answers[labels == k], expected, rtol=1e-6)
        assert (answers[labels == 2] == y[7]).all()


def test_string_labels_through_the_estimator(family: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(f"{family}_classifier")
    rows, queries = numbers(80, 1), numbers(20, 2)
    y = np.array(["pear", "fig", "plum", "date"])[classes(80, 3, count=4)]
    crumb = CrumbClassifier(
        model=path, strategy="centroid", n_clusters=4, context_size=6, min_per_class=0, device="cpu"
    ).fit(rows, y)
    plan, proba, labels = crumb.plan(queries), crumb.predict_proba(queries), crumb.predict(queries)
    assert list(crumb.classes_) == ["date", "fig", "pear", "plum"]
    lacking = 0
    for k, context in enumerate(plan.contexts):
        mine, order = plan.labels == k, np.sort(context)
        present = np.isin(crumb.classes_, y[order])
        lacking += int(not present.all())
        assert (proba[mine][:, ~present] == 0).all()
        if present.sum() > 1:
            model = official(crumb.backend_).fit(rows[order], y[order])
            np.testing.assert_allclose(
                proba[mine][:, present], model.predict_proba(queries[mine]), atol=1e-6
            )
            np.testing.assert_array_equal(labels[mine], model.predict(queries[mine]))
    assert lacking > 0


def test_same_rows_share_a_pass() -> None:
    contexts = [np.array([3, 1, 2]), np.array([1, 2, 3]), np.array([4, 5]), np.array([6])]
    passes = distinct_passes(contexts, np.array([1, 2, 0, 1, 2]))  # nobody asks the last cluster
    assert [one.context.tolist() for one in passes] == [[1, 2, 3], [4, 5]]
    assert [one.asked.tolist() for one in passes] == [[0, 2, 3], [1, 4]]


def test_order_of_the_queries_is_kept(classifier: Any) -> None:
    if type(classifier).__name__ == "TabPFNBackend":
        # Half precision, where the processor has it, rounds differently in other batches.
        options = {"inference_precision": torch.float32}
        classifier = resolve_backend(
            classifier.path, "classification", replace(SETTINGS, options=options)
        )
    rows, y, queries = numbers(60, 1), classes(60, 2), numbers(15, 3)
    contexts = [np.arange(0, 30), np.arange(30, 60)]
    labels = np.random.default_rng(0).integers(0, 2, 15)
    pool = held(rows, y, 3)
    together = infer(classifier, pool, contexts, labels, queries, PROBA)
    for i in range(15):
        alone = infer(classifier, pool, contexts, labels[[i]], queries[[i]], PROBA)
        np.testing.assert_allclose(alone[0], together[i], atol=1e-6)


def holed(rows: np.ndarray, column: int) -> np.ndarray:
    return np.where(np.arange(rows.shape[1]) == column, np.nan, rows)


NORMAL = np.random.default_rng(0).normal(size=(20, 3))
CONTEXTS = {
    "one column": NORMAL[:, :1],
    "constant columns": np.c_[NORMAL[:, 0], np.full(20, 7.0), np.zeros(20)],
    "column of holes": holed(NORMAL, 1),
    "duplicate rows": np.repeat(NORMAL[:4], 5, axis=0),
    "two rows": NORMAL[:2],
    "three rows": NORMAL[:3],
    "huge numbers": 1e30 * NORMAL,
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_poor_contexts_are_answered_by_the_package(
    name: str, classifier: Backend, regressor: Backend
) -> None:
    rows = CONTEXTS[name]
    queries = np.random.default_rng(1).normal(size=(4, rows.shape[1]))
    everything, labels = [np.arange(len(rows))], np.zeros(4, dtype=int)
    y = np.arange(len(rows)) % 2
    answer = infer(classifier, held(rows, y, 2), everything, labels, queries, PROBA)
    np.testing.assert_allclose(
        answer, official(classifier).fit(rows, y).predict_proba(queries), atol=1e-6
    )
    z = targets(len(rows), 2)
    answer = infer(regressor, held(rows, z, None), everything, labels, queries, MEAN)
    np.testing.assert_allclose(answer, official(regressor).fit(rows, z).predict(queries), rtol=1e-6)


def test_context_of_two_distinct_rows(classifier: Backend) -> None:
    """TabPFN's decomposition of few directions starts at random: equal calls differ."""
    rows, y = np.r_[np.ones((19, 3)), np.zeros((1, 3))], np.arange(20) % 2
    answer = infer(
        classifier, held(rows, y, 2), [np.arange(20)], np.zeros(4, dtype=int), NORMAL[:4], PROBA
    )
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("queries", [holed(NORMAL[:5], 1), np.full((5, 3), np.nan), NORMAL[:1]])
def test_poor_queries(queries: np.ndarray, classifier: Backend) -> None:
    rows, y = NORMAL[::-1], np.arange(20) % 2
    labels = np.zeros(len(queries), dtype=int)
    answer = infer(classifier, held(rows, y, 2), [np.arange(20)], labels, queries, PROBA)
    np.testing.assert_allclose(
        answer, official(classifier).fit(rows, y).predict_proba(queries), atol=1e-6
    )


NO_TWO_ROWS = {
    "numbers": np.ones((8, 3)),
    "holes": np.full((8, 2), np.nan),
    "numbers and holes": np.tile([1.0, np.nan, 3.0], (8, 1)),
    "text": pd.DataFrame({"a": ["x"] * 8, "b": [None] * 8, "c": pd.Categorical(["u"] * 8)}),
    "one row twice": np.repeat(NORMAL[:1], 8, axis=0),
}


@pytest.mark.parametrize("name", NO_TWO_ROWS)
def test_identical_rows_teach_only_how_labels_are_spread(
    name: str, classifier: Backend, regressor: Backend
) -> None:
    rows = NO_TWO_ROWS[name]
    queries = (
        rows[:2]
        if isinstance(rows, pd.DataFrame)
        else np.arange(2.0 * rows.shape[1]).reshape(2, -1)
    )
    contexts, labels = [np.arange(8)], np.zeros(2, dtype=int)
    y = np.array([0, 2, 2, 2, 0, 2, 3, 2])
    answer = infer(classifier, held(rows, y, 4), contexts, labels, queries, PROBA)
    np.testing.assert_allclose(answer, [[0.25, 0, 0.625, 0.125]] * 2)
    z = np.array([1.0, 2, 3, 4, 5, 6, 7, 80])
    pool = held(rows, z, None)
    np.testing.assert_allclose(infer(regressor, pool, contexts, labels, queries, MEAN), [13.5] * 2)
    np.testing.assert_allclose(
        infer(regressor, pool, contexts, labels, queries, Output("median")), [4.5] * 2
    )
    quantiles = infer(regressor, pool, contexts, labels, queries, Output("quantiles", (0.0, 0.5)))
    np.testing.assert_allclose(quantiles, [[1.0, 4.5]] * 2)


def test_rows_that_differ_in_their_holes_alone() -> None:
    """TabPFN fails on them, though not because of the labels; others may learn from the holes."""
    rows = np.where(np.arange(40)[:, None] % 2, 1.0, np.nan)
    y, labels = np.arange(40) % 2, np.zeros(2, dtype=int)
    model = HistGradientBoostingClassifier(min_samples_leaf=2)
    pool, contexts = held(rows, y, 2), [np.arange(40)]
    learnt = infer(
        resolve_backend(model, "classification", SETTINGS), pool, contexts, labels, rows[:2], PROBA
    )
    np.testing.assert_array_equal(learnt.argmax(axis=1), [0, 1])


def test_rows_that_differ_in_their_holes_alone_with_tabpfn(tabpfn_classifier: Path) -> None:
    backend = resolve_backend(tabpfn_classifier, "classification", SETTINGS)
    labels = np.zeros(2, dtype=int)
    text = pd.DataFrame({"a": ["x", np.nan] * 20, "b": ["y"] * 40})
    for rows in (np.where(np.arange(40)[:, None] % 2, 1.0, np.nan), text):
        pool = held(rows, np.arange(40) % 4 // 3, 2)
        answer = infer(backend, pool, [np.arange(40)], labels, rows[:2], PROBA)
        np.testing.assert_allclose(answer, [[0.75, 0.25]] * 2)


def test_one_target_value_has_one_answer(regressor: Backend) -> None:
    """Rows beside the constant context are answered by the network as ever."""
    rows, y = numbers(40, 1), np.r_[np.full(20, 3.5), targets(20, 2)]
    contexts, labels = [np.arange(20), np.arange(20, 40)], np.array([0, 1, 0, 1])
    answer = infer(regressor, held(rows, y, None), contexts, labels, numbers(4, 3), MEAN)
    assert (answer[[0, 2]] == 3.5).all()
    assert (answer[[1, 3]] != 3.5).all()


def test_labels_without_probabilities() -> None:
    rows, y = NORMAL, np.array([3, 5] * 5 + [5] * 4 + [1, 1, 1, 1, 1, 4])
    contexts = [np.arange(10), np.arange(10, 14), np.arange(14, 20)]
    labels = np.array([0, 1, 2] * 2)
    backend = resolve_backend(LinearSVC(), "classification", SETTINGS)
    answer = infer(backend, held(rows, y, 6), contexts, labels, NORMAL[:6], Output("label"))
    assert answer.dtype.kind == "i"
    assert set(answer[labels == 0]) <= {3, 5}
    assert set(answer[labels == 1]) == {5}
    assert set(answer[labels == 2]) <= {1, 4}
    same = infer(
        backend,
        held(np.ones((20, 3)), y, 6),
        contexts[2:],
        np.zeros(2, dtype=int),
        NORMAL[:2],
        Output("label"),
    )
    np.testing.assert_array_equal(same, [1, 1])  # the most frequent


def test_output_that_the_model_does_not_have() -> None:
    backend = resolve_backend(LinearRegression(), "regression", SETTINGS)
    pool = held(NORMAL, targets(20, 1), None)
    with pytest.raises(
        InvalidInput, match="'LinearRegression' cannot answer with 'median', only with 'mean'"
    ):
        infer(backend, pool, [np.arange(20)], np.zeros(2, dtype=int), NORMAL[:2], Output("median"))


def test_missing_text_is_missing_to_every_encoder(tabicl_classifier: Path) -> None:
    """Whether a table says None or NaN: tabicl alone takes None for one more category."""
    text = np.array(["a", "b", None, "c"] * 10, dtype=object)
    y = np.arange(40) % 3
    answers = []
    for missing in (None, np.nan):
        rows = pd.DataFrame(
            {"text": pd.Series(np.where(pd.isna(text), missing, text), dtype=object)}
        )
        rows["number"] = np.linspace(0, 1, 40)
        clf = CrumbClassifier(model=tabicl_classifier, strategy="full", random_state=0).fit(rows, y)
        answers.append(clf.predict_proba(rows[:4]))
    np.testing.assert_array_equal(*answers)
    np.testing.assert_allclose(
        answers[0], official(clf.backend_).fit(rows, y).predict_proba(rows[:4]), atol=1e-6
    )


def test_progress_of_the_passes(capsys: pytest.CaptureFixture[str]) -> None:
    backend = resolve_backend(KNeighborsClassifier(2), "classification", SETTINGS)
    pool, contexts, labels = (
        held(NORMAL, np.arange(20) % 2, 2),
        [np.arange(9), np.arange(9, 20)],
        np.array([0, 1]),
    )
    infer(backend, pool, contexts, labels, NORMAL[:2], PROBA, verbose=1)
    assert "passes" in capsys.readouterr().err
    infer(backend, pool, contexts, labels, NORMAL[:2], PROBA)
    assert capsys.readouterr().err == ""


@pytest.fixture(params=["package", "fused", "side by side", "tabpfn"])
def network(request: pytest.FixtureRequest, tabicl_regressor: Path) -> Any:
    if request.param == "tabpfn":
        pytest.importorskip("tabpfn")
        path = request.getfixturevalue("tabpfn_regressor")
        return resolve_backend(path, "regression", SETTINGS)
    settings = replace(SETTINGS, cache_bytes=10_000_000)
    made: Any = resolve_backend(tabicl_regressor, "regression", settings)
    made.fuse = {"package": False, "fused": True, "side by side": None}[request.param]
    return made


@pytest.mark.parametrize(
    ("factor", "offset"), [(1.0, 1e8), (1.0, 1e9), (1e39, 0.0), (1e300, 0.0), (1e-60, 0.0)]
)
@pytest.mark.parametrize("again", [False, True], ids=["once", "kept"])
@pytest.mark.parametrize(
    "output", [MEAN, Output("median"), Output("quantiles", (0.2, 0.7))], ids=lambda one: one.kind
)
def test_targets_of_any_size(network, output: Output, again: bool, factor, offset) -> None:
    """Targets moved and stretched give answers moved and stretched, in float64."""
    X, y = numbers(120, 3), targets(120, 4)
    contexts, labels = [np.arange(60), np.arange(40, 110)], np.arange(120) % 2
    asked = contexts, labels, X, output, 0, again
    usual = infer(network, held(X, y, None), *asked)
    other = HeldRows(X, y * factor + offset, np.arange(120), None, b"other")
    found = infer(network, other, *asked)
    assert usual.std() > 0.1
    np.testing.assert_allclose((found - offset) / factor, usual, atol=2e-5, rtol=1e-5)


def test_estimators_of_the_user_s_own_see_the_targets_as_they_are() -> None:
    X, y = np.nan_to_num(numbers(50, 2)), 1e6 + targets(50, 4)
    seen = []

    class Watched(LinearRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            seen.append(y)
            return super().fit(X, y)

    backend = resolve_backend(Watched(), "regression", replace(SETTINGS, n_jobs=1))
    infer(backend, held(X, y, None), [np.arange(50)], np.zeros(50, int), X, MEAN)
    assert seen[0].tolist() == y.tolist()


def test_targets_without_a_lesson_may_be_as_large_as_floats_are() -> None:
    X, y = np.zeros((4, 1)), np.array([1.7e308, 1.7e308, 1.6e308, 1.5e308])
    backend = resolve_backend(LinearRegression(), "regression", SETTINGS)
    found = infer(backend, held(X, y, None), [np.arange(4)], np.zeros(4, int), X, MEAN)
    np.testing.assert_allclose(found, 1.625e308)
