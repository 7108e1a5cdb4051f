"""CrumbClassifier and CrumbRegressor on the embedded network and on scikit-learn models."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, make_classification
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crumb import (
    MICP,
    CrumbClassifier,
    CrumbOnline,
    CrumbRegressor,
    paper_configuration,
    select_contexts,
)
from crumb.errors import InvalidInput, PlanMismatch
from crumb.machine import resolve_device
from crumb.pfn import models
from crumb.selection import base

KNN = KNeighborsClassifier(1)


def blobs(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(n, 6, n_informative=4, n_classes=3, random_state=seed)


def test_the_embedded_network_is_a_real_model() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    clf = CrumbClassifier(n_clusters=4, context_size=150).fit(X[::2], y[::2])
    assert clf.score(X[1::2], y[1::2]) > 0.92
    X, y = load_diabetes(return_X_y=True)
    reg = CrumbRegressor(n_clusters=2, context_size=150).fit(X[::2], y[::2])
    assert reg.score(X[1::2], y[1::2]) > 0.3


def test_a_copy_of_the_target_among_the_features_is_told() -> None:
    X, y = blobs(60)
    frame = pd.DataFrame(X).add_prefix("x")
    clf = CrumbClassifier(model=KNN, context_size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.fit(frame, y)
        clf.fit(frame.assign(almost=np.append(1 - y[:1], y[1:])), y)
        clf.fit(frame.assign(constant=1), y)
        clf.fit(frame.assign(number=np.arange(60)), y)
    leaks = frame.assign(leak=np.array(["low", "middle", "high"])[y])
    with pytest.warns(UserWarning, match="copies of the target: 'leak'. If new rows"):
        clf.fit(leaks, y)
    in_order = np.argsort(y, kind="stable")
    with pytest.warns(UserWarning, match="copies of the target: 'leak'"):
        clf.fit(leaks.iloc[in_order], y[in_order])
    reg = CrumbRegressor(model=KNeighborsRegressor(1), context_size=40)
    with pytest.warns(UserWarning, match="copies of the target: 2"):
        reg.fit(X, X[:, 2])


@pytest.mark.parametrize(
    "copied",
    [
        lambda y: 9 - 1e-6 * y,
        lambda y: 1e20 * y,
        lambda y: (1e9 + y).round(6),
        lambda y: y.astype(np.float32),
    ],
)
def test_a_rescaled_copy_of_a_numeric_target_is_told(copied: Any) -> None:
    X, _ = blobs(60)
    y = np.where(np.arange(60) < 30, 0.0, X[:, 2])  # constant in the rows that are looked at first
    reg = CrumbRegressor(model=KNeighborsRegressor(1), context_size=40)
    with pytest.warns(UserWarning, match="copies of the target: 6. If new rows"):
        reg.fit(np.column_stack([X, copied(y)]), y)


def test_columns_that_only_resemble_a_numeric_target_are_not_told() -> None:
    X, _ = blobs(60)
    y = np.where(np.arange(60) < 30, 0.0, X[:, 2])
    resembling = pd.DataFrame(X).assign(
        noisy=y * (1 + 1e-3 * X[:, 0]),
        constant=0.1,
        gap=np.append(y[:-1], np.nan),
        cubed=y**3,
        late=np.arange(60) >= 30,
    )
    reg = CrumbRegressor(model=KNeighborsRegressor(1), context_size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reg.fit(resembling.rename(columns=str), y)


def test_notebooks_show_what_was_fitted() -> None:
    clf = CrumbClassifier(model=KNN, context_size=40)
    assert "pool" not in clf._repr_html_()
    X, y = blobs()
    page = clf.fit(X, y)._repr_mimebundle_()["text/html"]
    assert len(page) < 1_500
    for fact in ("400 rows, 6 columns", "KNeighborsClassifier", "context_size=40"):
        assert fact in page
    assert "CrumbClassifier" in make_pipeline(StandardScaler(), clf)._repr_html_()


def test_answers_come_back_in_query_order() -> None:
    """1-NN on the whole pool knows every training row: each answer must sit at its query."""
    X, y = blobs()
    shuffled = np.random.default_rng(0).permutation(len(X))
    clf = CrumbClassifier(model=KNN, n_clusters=7, context_size=len(X)).fit(X, y)
    assert (clf.predict(X[shuffled]) == y[shuffled]).all()
    reg = CrumbRegressor(model=KNeighborsRegressor(1), n_clusters=7, context_size=1.0).fit(
        X, X[:, 0]
    )
    np.testing.assert_allclose(reg.predict(X[shuffled]), X[shuffled, 0])


@pytest.mark.parametrize(
    "strategy", ["mmd", "uniform", "knn", "micp", "centroid", "voronoi", "full"]
)
def test_every_strategy_answers_with_the_contexts_of_its_plan(strategy: str) -> None:
    X, y = blobs()
    clf = CrumbClassifier(
        model=KNeighborsClassifier(3),
        strategy=strategy,
        n_clusters=4,
        context_size=40,
        contexts_per_query=1,
        min_per_class=0,
    )
    clf.fit(X[:350], y[:350])
    plan = clf.plan(X[350:])
    proba = clf.predict_proba(X[350:])
    for cluster, context in enumerate(plan.contexts):
        members = np.flatnonzero(plan.labels == cluster)
        if len(np.unique(y[context])) == 1:
            continue
        direct = KNeighborsClassifier(3).fit(X[context], y[context])
        expected = np.zeros((len(members), 3))
        expected[:, direct.classes_] = direct.predict_proba(X[350:][members])
        np.testing.assert_allclose(proba[members], expected)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes", "maybe"], [7, 3, 100], [0.0, 1.0, 2.0], ["é", "ü", "x y"]],
    ids=["text", "ints", "floats", "é"],
)
def test_labels_of_any_kind(labels: list) -> None:
    X, codes = blobs()
    y = np.array(labels)[codes]
    clf = CrumbClassifier(model=KNN, context_size=400).fit(X, y)
    assert clf.classes_.tolist() == sorted(labels)
    assert (clf.predict(X) == y).all()
    for series in (pd.Series(y), pd.Series(y).astype("category"), y.tolist()):
        assert (CrumbClassifier(model=KNN, context_size=400).fit(X, series).predict(X) == y).all()


def test_bool_labels_and_one_class() -> None:
    X, codes = blobs()
    clf = CrumbClassifier(model=KNN, context_size=400).fit(X, codes == 1)
    assert clf.predict(X).dtype == bool
    assert (clf.predict(X) == (codes == 1)).all()
    one = CrumbClassifier().fit(X, np.full(len(X), "only"))
    assert one.predict_proba(X[:5]).tolist() == [[1.0]] * 5


def test_a_frozen_plan_answers_row_by_row() -> None:
    X, y = blobs()
    clf = CrumbClassifier(n_clusters=4, context_size=40).fit(X[:300], y[:300])
    plan = clf.plan(X[300:])
    together = clf.predict_proba(X[300:], plan=plan)
    # A frozen plan takes the package's way through the network: the last digits differ.
    np.testing.assert_allclose(clf.predict_proba(X[300:]), together, atol=1e-5)
    alone = np.vstack([clf.predict_proba(X[[row]], plan=plan) for row in range(300, 310)])
    np.testing.assert_allclose(alone, together[:10], atol=1e-5)
    # Without it, the batch matters: that is what makes CRUMB transductive.
    assert np.abs(clf.predict_proba(X[300:310]) - together[:10]).max() > 1e-3
    with pytest.raises(PlanMismatch, match="another pool"):
        CrumbClassifier().fit(X[:299], y[:299]).predict_proba(X[300:], plan=plan)


def test_regression_outputs() -> None:
    X, y = load_diabetes(return_X_y=True)
    reg = CrumbRegressor(n_clusters=2, context_size=100).fit(X[:300], y[:300])
    plan = reg.plan(X[300:])
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    quantiles = reg.predict(X[300:], output_type="quantiles", quantiles=levels, plan=plan)
    assert quantiles.shape == (142, 5)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    np.testing.assert_allclose(
        quantiles[:, 2], reg.predict(X[300:], output_type="median", plan=plan), rtol=0.05
    )
    inside = (y[300:] > quantiles[:, 0]) & (y[300:] < quantiles[:, -1])
    assert inside.mean() > 0.7
    assert reg.predict(X[300:], output_type="quantiles").shape == (142, 9)
    assert reg.predict(X[300:]).shape == (142,)
    for wrong in ({"output_type": "mode"}, {"output_type": "quantiles", "quantiles": [0.0]}):
        with pytest.raises(InvalidInput, match=r"output_type|quantiles"):
            reg.predict(X[300:], **wrong)
    knn = CrumbRegressor(model=KNeighborsRegressor()).fit(X, y)
    with pytest.raises(InvalidInput, match=r"KNeighborsRegressor.*cannot answer with 'median'"):
        knn.predict(X, output_type="median")


def test_clone_params_pickle_and_pipelines() -> None:
    X, y = load_iris(return_X_y=True)
    clf = CrumbClassifier(n_clusters=3, context_size=50, strategy=MICP(gamma=2.0))
    twin = clone(clf)
    assert twin.get_params()["strategy__gamma"] == 2.0
    twin.set_params(strategy__gamma=1.0, n_clusters=2)
    assert clf.strategy.gamma == 2.0
    fitted = make_pipeline(StandardScaler(), CrumbClassifier(n_clusters=3, context_size=50)).fit(
        X[::2], y[::2]
    )
    assert fitted.score(X[1::2], y[1::2]) > 0.9
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(
        again.predict_proba(X[1::2]), fitted.predict_proba(X[1::2]), atol=1e-7
    )


def test_a_pickle_from_a_machine_with_a_gpu_runs_here() -> None:
    X, y = blobs(100)
    clf = CrumbClassifier(context_size=20, n_clusters=2).fit(X, y)
    clf.options_ = dataclasses.replace(clf.options_, device="cuda")
    clf.backend_.settings = dataclasses.replace(clf.backend_.settings, device="cuda")
    again = pickle.loads(pickle.dumps(clf))
    assert again.options_.device == again.backend_.settings.device == resolve_device("auto")
    assert again.predict(X[:5]).shape == (5,)


def test_cross_validation_and_grid_search() -> None:
    X, y = blobs(150)
    scores = cross_val_score(CrumbClassifier(context_size=60, n_clusters=2), X, y, cv=2)
    assert scores.min() > 0.6
    search = GridSearchCV(
        CrumbClassifier(context_size=60, model=KNN), {"n_clusters": [1, 3]}, cv=2
    ).fit(X, y)
    assert search.best_params_["n_clusters"] in (1, 3)


def test_mixed_tables_reach_the_network() -> None:
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "missing": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
            "flag": rng.random(n) < 0.5,
            "text": rng.choice(["red", "green", "blue", None], n),
            "when": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 1_000, n), unit="h"),
            "infinite": np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
            "constant": 1,
            "nothing": None,
            "id": [f"u{i}" for i in range(n)],
        }
    )
    y = np.where(frame["flag"], "yes", "no")
    clf = CrumbClassifier(n_clusters=3, context_size=80).fit(frame[:200], y[:200])
    # tabicl drops bool columns silently; here the label IS the bool column.
    assert (clf.predict(frame[200:]) == y[200:]).mean() > 0.95
    by_time = CrumbRegressor(n_clusters=1, context_size=200).fit(
        frame[["when"]][:200], np.arange(200.0) * 0 + _hours(frame)[:200]
    )
    assert (
        by_time.score(frame[["when"]][200:], _hours(frame)[200:]) > 0.9
    )  # so are datetime columns
    unseen = frame[200:].assign(text="violet")
    assert np.isfinite(clf.predict_proba(unseen)).all()


def _hours(frame: pd.DataFrame) -> np.ndarray:
    return ((frame["when"] - pd.Timestamp("2024-01-01")) / pd.Timedelta(hours=1)).to_numpy()


def test_polars_in_gives_the_same_answers() -> None:
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=120), "b": rng.choice(["x", "y"], 120), "c": rng.random(120) < 0.5}
    )
    y = (frame["a"] > 0).to_numpy()
    clf = CrumbClassifier(n_clusters=2, context_size=50)
    pandas = clf.fit(frame[:80], y[:80]).predict_proba(frame[80:])
    polars = clf.fit(pl.from_pandas(frame[:80]), pl.Series(y[:80])).predict_proba(
        pl.from_pandas(frame[80:])
    )
    np.testing.assert_allclose(pandas, polars, atol=1e-6)


def test_columns_must_be_those_of_the_training_table() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    clf = CrumbClassifier(model=KNN).fit(X, y)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        clf.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match="unseen at fit time"):
        clf.predict(X.assign(extra=1))
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        clf.predict(X.iloc[:, :3])
    with pytest.raises(ValueError, match="3 features"):
        CrumbClassifier(model=KNN).fit(X.to_numpy(), y).predict(X.to_numpy()[:, :3])


def test_ones_own_selection_space_leaves_the_rows_alone() -> None:
    X, y = blobs()
    clf = CrumbClassifier(model=KNN, features=PCA(2), n_clusters=3, context_size=30).fit(X, y)
    plan = clf.plan(X)
    assert plan.centroids.shape[1] == 2
    assert clf.pool_.rows.shape[1] == 6


def test_ensemble_members_and_options_reach_the_model() -> None:
    X, y = blobs(120)
    one, four = (
        CrumbClassifier(n_estimators=k, context_size=60, n_clusters=1)
        .fit(X, y)
        .predict_proba(X[:10])
        for k in (1, 4)
    )
    assert np.abs(one - four).max() > 1e-4
    cold = CrumbClassifier(
        model_options={"softmax_temperature": 0.1}, context_size=60, n_clusters=1
    ).fit(X, y)
    assert cold.predict_proba(X[:10]).max(axis=1).mean() > one.max(axis=1).mean()
    with pytest.raises(InvalidInput, match="model_options must be a dictionary"):
        CrumbClassifier(model_options=["x"]).fit(X, y)


def test_classifiers_without_probabilities() -> None:
    X, y = blobs()
    clf = CrumbClassifier(model=RidgeClassifier(), n_clusters=3, context_size=100).fit(X, y)
    assert clf.score(X, y) > 0.5
    assert not hasattr(clf, "predict_proba")


def test_the_paper_s_configuration_runs() -> None:
    X, y = blobs(600)
    clf = CrumbClassifier(model=LogisticRegression(), **paper_configuration()).fit(X[:500], y[:500])
    plan = clf.plan(X[500:])
    assert clf.context_size_ == 50
    assert plan.sizes.tolist() == [50] * plan.n_clusters
    assert plan.settings["kernel"] == "rff"
    assert plan.settings["early_stopping"] is False
    assert not plan.swapped.any()


def test_random_states() -> None:
    X, y = blobs()
    seeds = {}
    for state in (0, 1, None, np.random.RandomState(3), np.random.default_rng(3)):
        clf = CrumbClassifier(
            model=DummyClassifier(), strategy="uniform", context_size=20, random_state=state
        ).fit(X, y)
        assert clf.plan(X).contexts[0].tolist() == clf.plan(X).contexts[0].tolist(), (
            "one fit, one seed"
        )
        seeds[str(state)[:20]] = tuple(clf.plan(X).contexts[0])
    assert len(set(seeds.values())) == 5


def test_bad_input_is_one_clear_sentence() -> None:
    X, y = blobs(50)
    cases = [
        (lambda: CrumbClassifier(strategy="best").fit(X, y), "Unknown strategy"),
        (lambda: CrumbClassifier(kernel="linear").fit(X, y), "Unknown kernel"),
        (lambda: CrumbClassifier(model="gpt").fit(X, y), "Unknown model 'gpt'"),
        (lambda: CrumbClassifier(model=3).fit(X, y), "model must be"),
        (lambda: CrumbClassifier(model=KNeighborsRegressor()).fit(X, y), "model must be"),
        (lambda: CrumbClassifier(n_clusters=0).fit(X, y), "n_clusters must be"),
        (lambda: CrumbClassifier(context_size=-5).fit(X, y), "context_size must be"),
        (lambda: CrumbClassifier(n_estimators=0).fit(X, y), "n_estimators must be"),
        (lambda: CrumbClassifier(device="cuda:9000").fit(X, y), "not available"),
        (lambda: CrumbClassifier().fit(X[:1], y[:1]), "1 sample"),
        (lambda: CrumbClassifier().fit(X[:0], y[:0]), "0 sample"),
        (lambda: CrumbClassifier().fit(X, y[:9]), "inconsistent numbers of samples"),
        (
            lambda: CrumbClassifier().fit(X, np.where(y == 0, np.nan, y)),
            "labels are missing; drop these rows",
        ),
        (lambda: CrumbClassifier().fit(X, [None] * 50), "all labels are missing"),
        (lambda: CrumbClassifier().fit(X, X[:, 0]), "continuous"),
        (
            lambda: CrumbClassifier().fit(X, np.array(["a", 1] * 25, dtype=object)),
            "all text, all whole numbers",
        ),
        (lambda: CrumbRegressor().fit(X, ["a"] * 50), "needs numbers as labels"),
        (lambda: CrumbRegressor().fit(X, np.where(y == 0, np.inf, 1.0)), "infinity"),
    ]
    for broken, words in cases:
        with pytest.raises(ValueError, match=words) as caught:
            broken()
        assert "\n" not in str(caught.value), "one sentence"
    with pytest.raises(NotFittedError):
        CrumbClassifier().predict(X)
    with pytest.raises(NotFittedError):
        CrumbRegressor().plan(X)
    with pytest.warns(UserWarning, match="all 50 rows are used"):
        CrumbClassifier(context_size=1_000).fit(X, y)


def test_progress_bars_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = blobs(100)
    clf = CrumbClassifier(model=KNN, context_size=20, n_clusters=2).fit(X, y)
    clf.predict(X)
    assert capsys.readouterr().err == ""
    clf.set_params(verbose=1).fit(X, y).predict(X)
    shown = capsys.readouterr().err
    assert "herding" in shown
    assert "passes" in shown


def test_min_per_class_reaches_the_contexts() -> None:
    X, y = blobs()
    y = np.where(np.arange(400) >= 397, "rare", np.where(y == 0, "a", "b"))
    X = X.copy()
    X[397:] += 30
    clf = CrumbClassifier(model=KNN, n_clusters=4, context_size=30).fit(X, y)
    assert all("rare" in y[context] for context in clf.plan(X[:100]).contexts)
    bare = CrumbClassifier(model=KNN, n_clusters=4, context_size=30, min_per_class=0).fit(X, y)
    assert not any("rare" in y[context] for context in bare.plan(X[:100]).contexts)


def test_the_model_s_window_caps_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs()
    cards = [dataclasses.replace(card, window=120) for card in models.CARDS]
    monkeypatch.setattr(models, "CARDS", tuple(cards))
    with pytest.warns(UserWarning, match="more than the 120 that the model was made for"):
        clf = CrumbClassifier(context_size=0.5).fit(X, y)
    assert clf.context_size_ == 120
    assert CrumbClassifier(strategy="full").fit(X, y).plan(X[:5]).sizes.tolist() == [400]


def test_the_seed_reaches_the_ensemble_of_the_network() -> None:
    X, y = blobs(120)
    answers = [
        CrumbClassifier(strategy="full", n_estimators=2, random_state=seed)
        .fit(X, y)
        .predict_proba(X[:9])
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert np.abs(answers[0] - answers[2]).max() > 1e-5


def test_a_fit_that_fails_leaves_the_estimator_as_it_was() -> None:
    X, y = blobs(100)
    clf = CrumbClassifier(model=KNN, context_size=20).fit(X, y)
    before = clf.predict_proba(X[:10])
    with pytest.raises(InvalidInput, match="Unknown strategy"):
        clf.set_params(strategy="best").fit(X[:50], y[:50])
    np.testing.assert_array_equal(clf.predict_proba(X[:10]), before)


def test_integer_column_names() -> None:
    X, y = blobs(100)
    clf = CrumbClassifier(model=KNN).fit(pd.DataFrame(X), y)
    assert (clf.predict(pd.DataFrame(X)) == y).all()
    with pytest.raises(ValueError, match="columns must be those of the training table"):
        clf.predict(pd.DataFrame(X, columns=range(1, 7)))


def test_a_plan_for_another_space_is_refused() -> None:
    X, y = blobs(100)
    plan = CrumbClassifier(model=KNN, features=PCA(6)).fit(X, y).plan(X[:20])
    with pytest.raises(PlanMismatch, match="another pool"):
        CrumbClassifier(model=KNN).fit(X, y).predict(X[:20], plan=plan)


@pytest.mark.parametrize(
    "labels", [[True, False], [3, 1], ["x", "y"]], ids=["bools", "ints", "text"]
)
def test_labels_that_come_as_objects(labels: list) -> None:
    """What ``dropna`` leaves behind."""
    X, codes = blobs(100)
    y = np.array(labels, dtype=object)[codes % 2]
    clf = CrumbClassifier(model=KNN, context_size=100).fit(X, y)
    assert clf.classes_.tolist() == sorted(labels)
    assert (clf.predict(X) == y).all()


@pytest.mark.parametrize("way", ["frame", "array"])
def test_a_column_of_values_that_the_pool_has_never_seen_is_named(way: str) -> None:
    X = np.column_stack([np.random.default_rng(0).normal(size=60), np.arange(60) % 3])
    asked = np.column_stack([X[:, 0], 7 + X[:, 1]])
    if way == "frame":
        X, asked = (pd.DataFrame({0: one[:, 0], 1: one[:, 1].astype(str)}) for one in (X, asked))
    clf = CrumbClassifier(model=KNN, context_size=20, categorical_features=[1])
    clf.fit(X, np.arange(60) % 2)
    for call in (clf.predict, clf.predict_proba, clf.plan):
        with pytest.warns(
            UserWarning, match=r"none of the values .* hold in 1: they may"
        ) as caught:
            call(asked)
        assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(asked[:1])  # new values are no news in a single row
        with CrumbOnline(clf) as stream:
            [future.result(30) for future in stream.submit_many(asked)]
        (asked.iloc if way == "frame" else asked)[:1] = X[:1]
        clf.predict(asked)


@pytest.mark.parametrize("kind", ["array", "frame", "words"])
def test_a_table_without_any_value_is_told(kind: str) -> None:
    X = pd.DataFrame({"a": [None] * 30, "b": np.nan}, dtype=object if kind == "words" else float)
    with pytest.warns(UserWarning, match="All cells of the table are missing") as caught:
        CrumbClassifier(model=KNN).fit(X.to_numpy() if kind == "array" else X, np.arange(30) % 2)
    assert [one.filename for one in caught] == [__file__]


def test_a_package_s_warning_is_said_once() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"u{i}" for i in range(200)], "x": rng.normal(size=200)})
    with pytest.warns(UserWarning, match="Columns with more than 40 categories: 'id'"):
        clf = CrumbClassifier(n_clusters=4, context_size=60).fit(frame, rng.integers(0, 2, 200))
    plan = clf.plan(frame)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.predict(frame)
    assert not caught, "contexts that are prepared here need no encoder of the package"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.predict(frame, plan=plan)
    texts = [str(warning.message) for warning in caught]
    assert not any("cardinality" in text for text in texts), "tabicl blames what nobody chose"
    assert len(texts) == len(set(texts))


def test_queries_without_names_are_taken_by_position() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    clf = CrumbClassifier(model=KNN).fit(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert (clf.predict(X.to_numpy()) == y).all()
    mixed = pd.DataFrame({"a": np.arange(40.0), "b": ["x", "y"] * 20})
    clf = CrumbClassifier(context_size=40).fit(mixed, np.arange(40) % 2)
    assert clf.predict(mixed.to_numpy(dtype=object)).shape == (40,)


def test_a_file_name_is_no_plan() -> None:
    X, y = blobs(60)
    with pytest.raises(InvalidInput, match=r"Plan\.load"):
        CrumbClassifier(model=KNN).fit(X, y).predict(X, plan="plan.crumb")


def test_quantiles_that_are_named_are_what_comes_back() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    reg = CrumbRegressor(context_size=60, n_clusters=1).fit(X, X[:, 0])
    levels = [0.1, 0.9]
    np.testing.assert_array_equal(
        reg.predict(X[:9], quantiles=levels),
        reg.predict(X[:9], output_type="quantiles", quantiles=levels),
    )
    np.testing.assert_array_equal(reg.predict(X[:9]), reg.predict(X[:9], output_type="mean"))
    with pytest.raises(InvalidInput, match="needs output_type='quantiles'"):
        reg.predict(X[:9], output_type="mean", quantiles=levels)


def test_a_fit_that_fails_keeps_the_old_classes_and_columns() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.array(["a", "b"])[np.arange(60) % 2]
    clf = CrumbClassifier(model=LogisticRegression(), context_size=30, n_clusters=1).fit(X, y)
    before = clf.predict(X[:9])
    other = np.where(y == "a", "c", "d")
    wrong = ((X[:50], other), (X[:, :2], other[:50]), (X, [None, *other[1:]]), (X * 1j, other))
    for X_wrong, y_wrong in wrong:
        with pytest.raises((ValueError, TypeError)):
            clf.fit(X_wrong, y_wrong)
        assert clf.classes_.tolist() == ["a", "b"]
        np.testing.assert_array_equal(clf.predict(X[:9]), before)


def test_micp_clusters_the_pool_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(300)
    model = CrumbClassifier(model=KNN, strategy="micp", context_size=30, device="cpu").fit(X, y)
    expected = select_contexts(X, X[:20], y_pool=y, strategy="micp", context_size=30)
    clustered = []
    monkeypatch.setattr(base, "cluster", lambda *given: clustered.append(given))
    for _ in range(2):
        plan = model.plan(X[:20])
        assert [rows.tolist() for rows in plan.contexts] == [
            rows.tolist() for rows in expected.contexts
        ]
    again = pickle.loads(pickle.dumps(model))
    assert again.plan(X[:20]).n_clusters == expected.n_clusters
    assert not clustered


def test_a_misspelt_parameter_is_named() -> None:
    with pytest.raises(TypeError, match=r"CrumbClassifier\.__init__\(\) .*'n_cluster'"):
        CrumbClassifier(n_cluster=3)
    with pytest.raises(TypeError, match=r"CrumbRegressor\.__init__\(\) takes 1 positional"):
        CrumbRegressor("embedded")
    assert list(inspect.signature(CrumbClassifier).parameters)[:2] == ["model", "strategy"]
