"""Any scikit-learn estimator as a back-end, and the ways to name a model."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from small_tables import classes, frame, numbers, targets
from threadpoolctl import threadpool_info, threadpool_limits

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput

LABELS = np.array(["ash", "birch", "cedar"])


def piped(estimator: Any) -> Any:
    return make_pipeline(SimpleImputer(), StandardScaler(), estimator)


@pytest.mark.parametrize(
    "model",
    [
        piped(LogisticRegression()),
        HistGradientBoostingClassifier(random_state=0),
        RandomForestClassifier(10, random_state=0),
    ],
    ids=["pipeline", "boosting", "forest"],
)
def test_whole_pool_is_the_estimator_itself(model: Any) -> None:
    X, y, queries = numbers(90, 1), LABELS[classes(90, 2)], numbers(20, 3)
    crumb = CrumbClassifier(model=model, strategy="full").fit(X, y)
    expected = model.fit(X, y)
    np.testing.assert_allclose(
        crumb.predict_proba(queries), expected.predict_proba(queries), atol=1e-12
    )
    np.testing.assert_array_equal(crumb.predict(queries), expected.predict(queries))


def test_regressor_and_what_it_cannot_answer() -> None:
    X, y, queries = numbers(90, 1), targets(90, 2), numbers(20, 3)
    model = piped(Ridge())
    crumb = CrumbRegressor(model=model, strategy="full").fit(X, y)
    np.testing.assert_allclose(crumb.predict(queries), model.fit(X, y).predict(queries))
    with pytest.raises(
        InvalidInput, match="'Pipeline' cannot answer with 'quantiles', only with 'mean'"
    ):
        crumb.predict(queries, output_type="quantiles")


def test_pipeline_for_mixed_columns() -> None:
    X, y, queries = frame(90, 1), classes(90, 2), frame(20, 3)
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["category"]),
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            ["text", "code", "name"],
        ),
        remainder="passthrough",
    )
    model = make_pipeline(encode, HistGradientBoostingClassifier(random_state=0))
    crumb = CrumbClassifier(model=model, strategy="full").fit(X, y)
    np.testing.assert_allclose(crumb.predict_proba(queries), model.fit(X, y).predict_proba(queries))


@pytest.mark.parametrize("model", [LinearSVC(), RidgeClassifier(), piped(LinearSVC())], ids=str)
def test_classifier_without_probabilities(model: Any) -> None:
    X, y, queries = (
        np.nan_to_num(numbers(90, 1)),
        LABELS[classes(90, 2)],
        np.nan_to_num(numbers(20, 3)),
    )
    crumb = CrumbClassifier(model=model, strategy="full")
    assert hasattr(crumb, "predict_proba")  # nobody knows before fit
    crumb.fit(X, y)
    assert not hasattr(crumb, "predict_proba")
    np.testing.assert_array_equal(crumb.predict(queries), model.fit(X, y).predict(queries))


def test_labels_of_contexts_that_lack_classes() -> None:
    """Ten lumps of one or two classes each: every context sees only some of the labels."""
    rng = np.random.default_rng(0)
    lump = rng.integers(0, 10, 400)
    X = np.c_[10 * lump, rng.normal(size=400)] + rng.normal(size=(400, 1))
    y = np.array([f"class {c}" for c in np.where(X[:, 1] > 0, lump // 2, 9 - lump // 2)])
    for model in (DecisionTreeClassifier(random_state=0), LinearSVC()):
        crumb = CrumbClassifier(model=model, n_clusters=10, context_size=30, min_per_class=0).fit(
            X[:300], y[:300]
        )
        plan = crumb.plan(X[300:])
        present = [len(np.unique(y[context])) for context in plan.contexts]
        assert max(present) < len(crumb.classes_)
        for k, context in enumerate(plan.contexts):
            queries = X[300:][plan.labels == k]
            answer = crumb.predict(X[300:], plan=plan)[plan.labels == k]
            if len(np.unique(y[context])) == 1:
                assert set(answer) <= set(y[context])
            else:
                order = np.sort(context)
                np.testing.assert_array_equal(
                    answer, model.fit(X[order], y[order]).predict(queries)
                )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_processes_give_the_same_answers(task: str) -> None:
    X, queries = numbers(200, 1), numbers(60, 3)
    answers = []
    for n_jobs in (1, 2):
        settings = {"n_clusters": 6, "context_size": 40, "n_jobs": n_jobs}
        if task == "classification":
            model = RandomForestClassifier(5, random_state=0)
            fitted = CrumbClassifier(model=model, **settings).fit(X, classes(200, 2))
            answers.append(fitted.predict_proba(queries))
        else:
            model = RandomForestRegressor(5, random_state=0)
            fitted = CrumbRegressor(model=model, **settings).fit(X, targets(200, 2))
            answers.append(fitted.predict(queries))
    np.testing.assert_array_equal(*answers)
    assert np.ptp(answers[0], axis=0).max() > 0.1


def test_estimator_stays_as_it_was() -> None:
    model = DecisionTreeClassifier(random_state=0)
    CrumbClassifier(model=model, n_clusters=2, context_size=20).fit(
        numbers(60, 1), classes(60, 2)
    ).predict(numbers(10, 3))
    assert not hasattr(model, "tree_")


@pytest.mark.parametrize(
    "model", [DecisionTreeClassifier, Ridge(), 7, None, SimpleImputer()], ids=repr
)
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"a name \(embedded, .*tabpfn-v3.5-fast\), the path .* scikit-learn classifier; got",
    ):
        CrumbClassifier(model=model).fit(numbers(20, 1), classes(20, 2))


class Counting(BaseEstimator):
    """Answers with what is most common."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_, self.counts_ = np.unique(y, return_counts=True)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.repeat(self.classes_[self.counts_.argmax()], len(X))


class CountingClassifier(Counting, ClassifierMixin):  # the mixin last, as in TabDPT and Mitra
    def predict_proba(self, X: Any) -> np.ndarray:
        return np.tile(self.counts_ / self.counts_.sum(), (len(X), 1))


class CountingRegressor(Counting, RegressorMixin):
    pass


@pytest.mark.parametrize("wrap", [clone, piped], ids=["alone", "in a pipeline"])
def test_mixin_may_come_last(wrap: Callable[[Any], Any]) -> None:
    X, y = numbers(60, 1), classes(60, 2)
    classifier, regressor = wrap(CountingClassifier()), wrap(CountingRegressor())
    crumb = CrumbClassifier(model=classifier, strategy="full", device="cpu").fit(X, y)
    np.testing.assert_allclose(crumb.predict_proba(X[:2])[1], np.bincount(y) / 60)
    rounded = CrumbRegressor(model=regressor, guide=regressor, strategy="full", device="cpu")
    assert rounded.fit(X, y.astype(float)).predict(X[:2]).shape == (2,)
    CrumbClassifier(model=classifier, guide=classifier, device="cpu").fit(X, y)
    with pytest.raises(InvalidInput, match="scikit-learn classifier; got"):
        CrumbClassifier(model=regressor).fit(X, y)
    with pytest.raises(InvalidInput, match="a scikit-learn regressor, got"):
        CrumbRegressor(guide=classifier).fit(X, y.astype(float))


def test_path_as_text_and_as_path(tabicl_classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, queries = numbers(40, 1), classes(40, 2), numbers(5, 3)
    monkeypatch.chdir(tabicl_classifier.parent)
    monkeypatch.setenv("HOME", str(tabicl_classifier.parent))
    bare = tabicl_classifier.parent / "weights"  # a name without an ending, and no folder in front
    if not bare.exists():
        os.link(tabicl_classifier, bare)
    answers = [
        CrumbClassifier(model=model, strategy="full", device="cpu").fit(X, y).predict_proba(queries)
        for model in (
            tabicl_classifier,
            str(tabicl_classifier),
            Path(tabicl_classifier.name),
            tabicl_classifier.name,
            f"~/{tabicl_classifier.name}",
            "weights",
        )
    ]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_embedded_network_has_learnt_something() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y, z = np.where(X[:, 0] + X[:, 1] > 0, "up", "down"), X[:, 0] - 2 * X[:, 1]
    classifier = CrumbClassifier(model="embedded", strategy="full", device="cpu").fit(
        X[:200], y[:200]
    )
    assert classifier.score(X[200:], y[200:]) > 0.9
    regressor = CrumbRegressor(model="embedded", strategy="full", device="cpu").fit(
        X[:200], z[:200]
    )
    assert regressor.score(X[200:], z[200:]) > 0.9


@pytest.mark.parametrize(
    "model", [piped(LogisticRegression()), piped(Ridge())], ids=["classes", "numbers"]
)
def test_with_a_frozen_plan_an_answer_does_not_depend_on_the_batch(model: Any) -> None:
    X, Q, rng = numbers(200, 0, columns=9), numbers(300, 1, columns=9), np.random.default_rng(0)
    if hasattr(model, "predict_proba"):
        estimator: Any = CrumbClassifier(model=model, n_clusters=2, context_size=60).fit(
            X, classes(200, 0)
        )
        ask = estimator.predict_proba
    else:
        estimator = CrumbRegressor(model=model, n_clusters=2, context_size=60).fit(
            X, targets(200, 0)
        )
        ask = estimator.predict
    plan = estimator.plan(Q)
    whole = ask(Q, plan=plan)
    for size in (1, 2, 3, 5, 17, 100, 257):
        some = rng.choice(300, size)
        np.testing.assert_array_equal(ask(Q[some], plan=plan), whole[some])


class Watched(DecisionTreeClassifier):
    """Notes how many threads compiled code may use while it learns."""

    threads: ClassVar[list[set[int]]] = []

    def fit(self, X: Any, y: Any, **more: Any) -> Any:
        self.threads.append({one["num_threads"] for one in threadpool_info()})
        return super().fit(X, y, **more)


@pytest.mark.parametrize(("rows", "usual"), [(200, False), (10_200, True)])
def test_small_contexts_are_learned_in_one_thread(rows: int, usual: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    model = CrumbClassifier(model=Watched(), strategy="full", device="cpu").fit(X, X[:, 0] > 0)
    with threadpool_limits(3):
        Watched.threads.clear()
        model.predict(X[:5])
        after = {one["num_threads"] for one in threadpool_info()}
    assert Watched.threads[0] == ({3} if usual else {1})
    assert after == {3}


class Network(ClassifierMixin, BaseEstimator):
    """Loads its weights like packages with scikit-learn's interface do."""

    loads: ClassVar[list[str]] = []
    fits: ClassVar[list[tuple[str, Any]]] = []  # with this device and seed

    def __init__(self, when: str = "made", device: str = "auto", random_state: Any = None):
        self.when, self.device, self.random_state = when, device, random_state
        if when == "made":
            self._load()

    def _load(self) -> None:
        self.loads.append(self.when)
        self._weights = 3.0

    def fit(self, X: Any, y: Any) -> Network:
        if not hasattr(self, "_weights"):
            self._load()
        self.fits.append((self.device, self.random_state))
        self.classes_, self.noise_ = np.unique(y), np.random.default_rng(self.random_state).normal()
        self.centres_ = np.stack([X[y == code].mean(axis=0) for code in self.classes_])
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        far = ((X[:, None] - self.centres_) ** 2).sum(axis=2) * self._weights + self.noise_
        return np.exp(-far) / np.exp(-far).sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.mark.parametrize("when", ["made", "fitted"])
def test_network_is_loaded_once_not_for_each_context(when: str) -> None:
    X, y, queries = np.nan_to_num(numbers(200, 1)), classes(200, 2), np.nan_to_num(numbers(40, 3))
    sizes = {"n_clusters": 5, "context_size": 40, "contexts_per_query": 1}
    model = Network(when)
    Network.loads.clear()
    crumb = CrumbClassifier(model=model, **sizes, device="cpu")
    plan = crumb.fit(X, y).plan(queries)
    first, again = (crumb.predict_proba(queries, plan=plan) for _ in range(2))
    assert len(Network.loads) == 1
    np.testing.assert_array_equal(first, again)
    for k, context in enumerate(plan.contexts):  # as a new one for each context
        order = np.sort(context)
        fresh = Network(when, random_state=0).fit(X[order], y[order])
        asked = plan.labels == k
        np.testing.assert_allclose(first[asked], fresh.predict_proba(queries[asked]))
    assert pickle.loads(pickle.dumps(crumb)).predict(queries).shape == (40,)


def test_device_and_seed_that_were_left_open() -> None:
    X, y = np.nan_to_num(numbers(60, 1)), classes(60, 2)
    open_, given = Network("fitted"), Network("fitted", device="mine", random_state=3)
    for model, expected in (
        (open_, [("cpu", 5)]),
        (make_pipeline(StandardScaler(), make_pipeline(open_)), [("cpu", 5)]),
        (given, [("mine", 3)]),
    ):
        Network.fits.clear()
        crumb = CrumbClassifier(model=model, strategy="full", device="cpu", random_state=5)
        crumb.fit(X, y).predict(X[:9])
        assert Network.fits == expected
    assert (open_.device, open_.random_state) == ("auto", None)
    forest = make_pipeline(SimpleImputer(), RandomForestClassifier(3))
    answers = [
        CrumbClassifier(model=forest, n_clusters=2, context_size=30).fit(X, y).predict_proba(X[:9])
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("change", [{"warm_start": True}, {"random_state": "a generator"}])
def test_estimator_that_goes_on_where_it_was_is_new_for_each_context(change: dict) -> None:
    X, y = np.nan_to_num(numbers(200, 1)), classes(200, 2)
    if "random_state" in change:
        change = {"random_state": np.random.RandomState(0)}
    model = make_pipeline(RandomForestClassifier(4, **{"random_state": 0, **change}))
    sizes = {"n_clusters": 3, "context_size": 40, "contexts_per_query": 1}
    crumb = CrumbClassifier(model=model, **sizes, device="cpu").fit(X, y)
    plan = crumb.plan(X[:30])
    first, again = (crumb.predict_proba(X[:30], plan=plan) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for k, context in enumerate(plan.contexts):
        order, asked = np.sort(context), plan.labels == k
        fresh = clone(model).fit(X[order], y[order])
        np.testing.assert_allclose(first[asked], fresh.predict_proba(X[:30][asked]))
