"""guide.py: out-of-fold columns for the network, and what "auto" makes of them."""

from __future__ import annotations

import asyncio
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scale_tables import mixed, on_disk  # noqa: F401 (a fixture)
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB

import crumb
from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import BackendUnavailable, InvalidInput, PlanMismatch
from crumb.guide import Guide, answers_without, apart, beside, fold_rows, log_odds
from crumb.mixing import LEAST, losses
from crumb.online import CrumbOnline
from crumb.pool import HeldRows
from crumb.rng import generator
from crumb.serve.schema import Schema
from crumb.trees import Trees

CHEAP = {"model": LogisticRegression(), "n_clusters": 3, "context_size": 60}
FOLDS = KFold(4, shuffle=True, random_state=1)


def classes(rows: int = 200, n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        rows, 6, n_informative=4, n_classes=n_classes, flip_y=0.1, random_state=0
    )


def numbers(rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    return make_regression(rows, 5, noise=10.0, random_state=0)


def columns(model: CrumbClassifier | CrumbRegressor) -> np.ndarray:
    """What contexts hold beside the columns of the table."""
    rows = np.asarray(model.pool_.hold([np.arange(2)]).rows)
    return rows[:, model.n_features_in_ :].astype(float)


def by_hand(proba: np.ndarray) -> np.ndarray:
    """Log-odds: of the second of two classes, or of each of more."""
    proba = np.clip(proba[:, 1:] if proba.shape[1] == 2 else proba, LEAST, 1 - LEAST)
    return np.log(proba / (1 - proba))


def held(y: np.ndarray, n_classes: int | None = None) -> HeldRows:
    return HeldRows(np.zeros((len(y), 1)), y, np.arange(len(y)), n_classes, b"")


# Against a direct formula


@pytest.mark.parametrize("n_classes", [2, 4])
def test_columns_of_classes_are_log_odds_out_of_fold(n_classes: int) -> None:
    X, y = classes(n_classes=n_classes)
    guide = LogisticRegression()
    clf = CrumbClassifier(**CHEAP, guide=guide, guide_folds=FOLDS).fit(X, y)
    proba = cross_val_predict(guide, X, y, cv=FOLDS, method="predict_proba")
    expected = by_hand(proba)
    np.testing.assert_allclose(columns(clf), expected, rtol=1e-9)
    # Queries get what the model of all rows says.
    seen = {}
    clf.pool_.guide.lead(
        X[:9], crumb.pfn.Output("label"), lambda rows: seen.setdefault("rows", rows)
    )
    proba = guide.fit(X, y).predict_proba(X[:9])
    expected = by_hand(proba)
    np.testing.assert_allclose(seen["rows"], np.hstack([X[:9], expected]), rtol=1e-9)


def test_the_column_of_a_number_is_its_prediction_out_of_fold() -> None:
    X, y = numbers()
    settings = {**CHEAP, "model": LinearRegression()}
    reg = CrumbRegressor(**settings, guide=LinearRegression(), guide_folds=FOLDS).fit(X, y)
    expected = cross_val_predict(LinearRegression(), X, y, cv=FOLDS)
    standard = (expected - expected.mean()) / expected.std()  # as the network will do anyway
    np.testing.assert_allclose(columns(reg)[:, 0], standard, rtol=1e-9)


def test_queries_get_half_of_the_model_of_all_rows_and_half_of_the_folds() -> None:
    X, y = numbers()
    settings = {**CHEAP, "model": LinearRegression(), "guide": LinearRegression()}
    reg = CrumbRegressor(**settings).fit(X[:150], y[:150])
    parts = fold_rows(None, held(y[:150]), None, reg.options_.seed)
    folds = [LinearRegression().fit(X[train], y[train]).predict(X[150:]) for train, _ in parts]
    whole = LinearRegression().fit(X[:150], y[:150]).predict(X[150:])
    expected = (whole + np.mean(folds, axis=0)) / 2
    np.testing.assert_allclose(reg.pool_.guide.answers(X[150:]), expected, rtol=1e-9)
    late = CrumbRegressor(**settings, guide_folds="time").fit(X[:150], y[:150])
    np.testing.assert_allclose(late.pool_.guide.answers(X[150:]), whole, rtol=1e-9)


def test_targets_that_single_precision_cannot_hold() -> None:
    X, y = numbers()
    settings = {**CHEAP, "model": LinearRegression(), "guide": "trees"}
    near = CrumbRegressor(**settings).fit(X, y).pool_.guide
    for factor, centre in ((1.0, 1e12), (1e39, 0.0), (1e300, 0.0)):
        far = CrumbRegressor(**settings).fit(X, factor * y + centre).pool_.guide
        np.testing.assert_allclose(far.columns(far.known), near.columns(near.known), atol=1e-3)


def test_answers_are_those_of_a_table_with_the_column() -> None:
    """One context of all rows: the same back-end on the table with the columns added by hand."""
    X, y = classes()
    settings = {"model": LogisticRegression(), "strategy": "full"}
    guide = LGBMClassifier(n_estimators=20, verbosity=-1)
    clf = CrumbClassifier(**settings, guide=guide, guide_folds=FOLDS).fit(X[:150], y[:150])
    known = cross_val_predict(guide, X[:150], y[:150], cv=FOLDS, method="predict_proba")
    asked = clone(guide).fit(X[:150], y[:150]).predict_proba(X[150:])
    pool = np.column_stack([X[:150], by_hand(known)[:, 0]])
    queries = np.column_stack([X[150:], by_hand(asked)[:, 0]])
    expected = LogisticRegression().fit(pool, y[:150]).predict_proba(queries)
    np.testing.assert_allclose(clf.predict_proba(X[150:]), expected, rtol=1e-6)


# No leakage


def test_a_random_target_gets_a_useless_column() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2_000, 5)), rng.integers(0, 2, 2_000)
    clf = CrumbClassifier(**CHEAP, guide="trees").fit(X, y)
    assert roc_auc_score(y, columns(clf)[:, 0]) == pytest.approx(0.5, abs=0.05)
    guide = clf.pool_.guide
    assert roc_auc_score(y, guide.answers(X)[:, 1]) > 0.6  # not so that of a model that saw them


def test_the_column_of_a_row_does_not_depend_on_its_label(monkeypatch) -> None:
    """Neither by trees and curves nor by what ends their training. (The shares of the kinds, and
    which of them the first fold leaves out, are a few numbers of the whole pool.)"""
    monkeypatch.setattr(Trees, "weigh", lambda *_: None)
    X, y = numbers(400)
    settings = {**CHEAP, "model": LinearRegression(), "guide": "trees"}
    before = CrumbRegressor(**settings).fit(X, y).pool_.guide.known
    for row in (0, 57, 399):
        other = y.copy()
        other[row] += 1_000.0
        after = CrumbRegressor(**settings).fit(X, other).pool_.guide.known
        assert after[row] == before[row]
        assert (after != before).any()


# Folds


def test_every_row_is_answered_by_a_model_that_did_not_see_it() -> None:
    y = np.arange(60) % 3
    for folds in (None, "time", FOLDS, ShuffleSplit(2, random_state=0), TimeSeriesSplit(3)):
        parts = fold_rows(folds, held(y, 3), None, 0)
        assert set(np.concatenate([test for _, test in parts])) == set(range(60))
        assert not any(np.intersect1d(train, test).size for train, test in parts)


def test_folds_in_time_answer_later_rows() -> None:
    parts = fold_rows("time", held(np.arange(60.0)), None, 0)
    *later, first = parts
    assert len(later) == 5
    assert all(train.max() < test.min() for train, test in later)
    assert first[1].tolist() == list(range(10))  # nothing comes before them: others answer


def test_groups_are_not_parted() -> None:
    X, y = classes(300)
    groups = np.repeat(np.arange(30), 10)
    clf = CrumbClassifier(**CHEAP, guide=LogisticRegression(), guide_folds="groups")
    clf.fit(X, y, groups=groups)
    about = {"cv": GroupKFold(5), "groups": groups, "method": "predict_proba"}
    expected = by_hand(cross_val_predict(LogisticRegression(), X, y, **about))[:, 0]
    np.testing.assert_allclose(columns(clf)[:, 0], expected, rtol=1e-9)
    own = clone(clf).set_params(guide_folds=GroupKFold(5)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(columns(own), columns(clf))


def test_rows_that_others_are_judged_by() -> None:
    rng, rows = np.random.default_rng(0), np.arange(20, 60)
    assert apart(rows, 4, "time", None, rng).tolist() == [36, 37, 38, 39]
    assert len(set(apart(rows, 4, None, None, rng))) == 4
    groups = np.arange(60) // 5
    found = apart(rows, 7, "groups", groups, rng)
    assert len(found) == 10  # two whole groups
    left = np.delete(rows, found)
    assert not set(groups[rows[found]]) & set(groups[left])
    assert apart(rows, 4, "groups", np.zeros(60), rng).tolist() == []  # there is only one


def test_a_class_that_a_fold_does_not_have() -> None:
    X, y = classes(120, n_classes=3)
    y[y == 2] = 0
    y[[5, 60]] = 2  # two rows: some folds teach one of them, none both and a test
    for guide in ("trees", LogisticRegression()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            clf = CrumbClassifier(**CHEAP, guide=guide).fit(X, y)
        assert columns(clf).shape == (120, 3)
        assert np.isfinite(columns(clf)).all()
        assert clf.predict_proba(X[:9]).shape == (9, 3)
    split = fold_rows(None, held(np.array([0, 0, 0, 0, 0, 0, 1])), None, 0)
    assert len(split) == 5
    alone = CrumbClassifier(**CHEAP, guide="trees").fit(X[:40], np.zeros(40))
    assert alone.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]


def test_very_small_pools() -> None:
    X, y = numbers(6)
    for folds in (None, "time"):
        reg = CrumbRegressor(model=LinearRegression(), guide="trees", guide_folds=folds)
        assert np.isfinite(reg.fit(X, y).predict(X)).all()


# Tables of all kinds


def frame(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    table = mixed(rows)
    return table.drop(columns="target"), table["target"].to_numpy()


def test_mixed_columns_and_words_that_the_pool_does_not_have() -> None:
    X, y = frame()
    clf = CrumbClassifier(n_clusters=2, context_size=60, guide="trees").fit(X[:250], y[:250])
    queries = X[250:].reset_index(drop=True)
    expected = clf.predict_proba(queries)
    odd = queries.assign(many="never seen")
    assert np.isfinite(clf.predict_proba(odd)).all()
    assert expected.shape == (50, 2)
    names = clf.pool_.hold([]).rows.columns.tolist()
    assert names == [*X.columns, "guide 0"]
    assert clf.pool_.columns == list(X.columns)  # what users and services see


def test_names_that_are_free() -> None:
    more = np.ones((2, 2))
    taken = pd.DataFrame({"guide 0": [1, 2], "x": [3, 4]})
    assert list(beside(taken, more)) == ["guide 0", "x", "guide 1", "guide 2"]
    assert list(beside(pd.DataFrame({3: [1, 2], 0: [3, 4]}), more)) == [3, 0, 1, 2]
    assert beside(np.ones((2, 1), dtype=np.float32), more).dtype == np.float32


def test_quantiles_and_medians() -> None:
    X, y = numbers()
    for guide in ("trees", "auto"):
        reg = CrumbRegressor(n_clusters=2, context_size=80, guide=guide).fit(X[:160], y[:160])
        found = reg.predict(X[160:], quantiles=[0.1, 0.5, 0.9])
        assert (np.diff(found, axis=1) >= 0).all()
        median = reg.predict(X[160:], output_type="median")
        np.testing.assert_allclose(median, found[:, 1], rtol=1e-4)


def test_many_classes() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(15), 20)
    X = rng.normal(size=(300, 4)) + rng.normal(scale=3, size=(15, 4))[y]
    clf = CrumbClassifier(n_clusters=2, context_size=150, guide="trees").fit(X[::2], y[::2])
    proba = clf.predict_proba(X[1::2])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    odds = by_hand(clf.pool_.guide.known)
    assert odds.shape == (150, 15)
    assert columns(clf).shape == (150, 10)  # principal components
    expected = PCA(10).fit(odds).explained_variance_[::-1]
    np.testing.assert_allclose(columns(clf).var(axis=0, ddof=1), expected)
    assert (proba.argmax(axis=1) == y[1::2]).mean() > 0.5


def test_the_same_seed_gives_the_same_answers() -> None:
    X, y = classes()
    settings = {**CHEAP, "guide": "trees"}
    a, b, c = (
        CrumbClassifier(**settings, random_state=seed).fit(X, y).pool_.guide.known
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_the_progress_bar_shows_the_guide(capsys) -> None:
    X, y = classes()
    CrumbClassifier(**CHEAP, guide="trees", verbose=1).fit(X, y)
    assert "guide" in capsys.readouterr().err


# Frozen plans, streams, files


def test_one_row_is_answered_as_in_a_table() -> None:
    X, y = frame()
    clf = CrumbClassifier(n_clusters=2, context_size=60, guide="trees").fit(X[:250], y[:250])
    queries = X[250:258].reset_index(drop=True)
    plan = clf.plan(queries)
    whole = clf.predict_proba(queries, plan=plan)
    for i in range(3):
        one = clf.predict_proba(queries[i : i + 1], plan=plan)
        np.testing.assert_allclose(one[0], whole[i], atol=2e-6)
    with CrumbOnline(clf, queries, plan=plan, timeout=0.01) as stream:
        whole = clf.predict_proba(queries, plan=stream.plan)
        for i in range(3):
            answer = stream.submit(queries.iloc[i]).result()
            np.testing.assert_allclose(answer.value, whole[i], atol=2e-6)


def test_a_stream_fits_its_guide_again() -> None:
    X, y = classes(300)
    clf = CrumbClassifier(**CHEAP, guide="trees").fit(X[:150], y[:150])
    with CrumbOnline(clf, timeout=0.01) as stream:
        stream.learn(X[150:250], y[150:250])
        stream.refresh()
        again = CrumbClassifier(**CHEAP, guide="trees").fit(X[:250], y[:250])
        np.testing.assert_array_equal(stream.estimator.pool_.guide.known, again.pool_.guide.known)
        answers = asyncio.run(_ask(stream, X[250:255]))
        expected = again.predict_proba(X[250:255], plan=stream.plan)
        np.testing.assert_allclose(answers, expected, rtol=1e-9)


async def _ask(stream: CrumbOnline, rows: np.ndarray) -> np.ndarray:
    return np.array([(await stream.ask(row)).value for row in rows])


def test_a_stream_does_not_forget_groups_silently() -> None:
    X, y = classes(300)
    clf = CrumbClassifier(**CHEAP, guide="trees", guide_folds="groups")
    clf.fit(X[:200], y[:200], groups=np.arange(200) // 10)
    with CrumbOnline(clf, timeout=0.01) as stream:
        stream.learn(X[200:], y[200:])
        with pytest.raises(InvalidInput, match="needs the group of each row"):
            stream.refresh()
        assert stream.version == 1


@pytest.mark.parametrize("guide", ["trees", "auto"])
def test_a_saved_estimator_and_stream_answer_the_same(tmp_path, guide: str) -> None:
    X, y = frame()
    settings = {"n_clusters": 2, "context_size": 60, "guide": guide, "guide_folds": "time"}
    clf = CrumbClassifier(**settings).fit(X[:250], y[:250])
    queries = X[250:].reset_index(drop=True)
    clf.save(tmp_path / "clf.crumb")
    again = crumb.load(tmp_path / "clf.crumb")
    assert (again.guide, again.guide_folds) == (guide, "time")
    np.testing.assert_array_equal(again.predict_proba(queries), clf.predict_proba(queries))
    for name in ("shown", "share", "facts"):
        assert getattr(again.pool_.guide, name) == getattr(clf.pool_.guide, name)
    with CrumbOnline(clf, queries, timeout=0.01) as stream:
        expected = stream.submit(queries.iloc[0]).result().value
        stream.save(tmp_path / "stream.crumb")
    with CrumbOnline.load(tmp_path / "stream.crumb") as stream:
        np.testing.assert_array_equal(stream.submit(queries.iloc[0]).result().value, expected)
        names = Schema.of(stream.estimator.pool_.rows).names
        assert names == list(X.columns)  # a service does not ask clients for the guide's column


def test_a_kind_that_the_first_fold_leaves_out_is_not_fitted_again(monkeypatch, tmp_path) -> None:
    weigh = Trees.weigh

    def without_few_leaves(trees: Trees, y: np.ndarray, answers: np.ndarray) -> None:
        trees.shares = (0.0, *trees.shares[1:])
        weigh(trees, y, answers)

    monkeypatch.setattr(Trees, "weigh", without_few_leaves)
    X, y = classes()
    settings = {"n_clusters": 2, "context_size": 60, "guide": "trees"}
    clf = CrumbClassifier(**settings).fit(X[:150], y[:150])
    whole, first, *others = clf.pool_.guide.models
    assert 0 in first[0]
    assert not any(0 in boosters for boosters, *_ in (whole, *others))
    clf.save(tmp_path / "clf.crumb")
    found = crumb.load(tmp_path / "clf.crumb").predict_proba(X[150:])
    np.testing.assert_array_equal(found, clf.predict_proba(X[150:]))
    own = CrumbClassifier(**settings, guide_folds=FOLDS).fit(X[:150], y[:150])
    assert 0 in own.pool_.guide.models[0][0]  # other folds need not be alike


def test_saved_regression_and_a_damaged_file(tmp_path) -> None:
    X, y = numbers()
    reg = CrumbRegressor(n_clusters=2, context_size=60, guide="trees").fit(X[:150], y[:150])
    reg.save(tmp_path / "reg.crumb")
    again = crumb.load(tmp_path / "reg.crumb")
    np.testing.assert_array_equal(again.predict(X[150:]), reg.predict(X[150:]))
    from crumb.files import read_archive, write_archive

    about, arrays, files = read_archive(tmp_path / "reg.crumb", "crumb-estimator", 1)
    del files[next(name for name in files if name.startswith("guide1."))]
    plain = {name: about[name] for name in about if name not in ("format", "version")}
    write_archive(tmp_path / "bad.crumb", "crumb-estimator", 1, plain, arrays, files)
    with pytest.raises(PlanMismatch, match=r"guide1\.\d\.txt"):
        crumb.load(tmp_path / "bad.crumb")


def test_pickles_answer_the_same() -> None:
    X, y = classes()
    clf = CrumbClassifier(**CHEAP, guide="trees").fit(X[:150], y[:150])
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(again.predict_proba(X[150:]), clf.predict_proba(X[150:]))


@pytest.mark.usefixtures("on_disk")
def test_a_pool_in_files(tmp_path, monkeypatch) -> None:
    """A sample teaches. Its rows have out-of-fold columns, others what the model says of them."""
    monkeypatch.setattr("crumb.scale.pool.SKETCH_ROWS", 400)
    table = mixed(900)
    table.to_parquet(tmp_path / "pool.parquet", row_group_size=200)
    clf = CrumbClassifier(n_clusters=2, context_size=60, guide="trees")
    clf.fit(tmp_path / "pool.parquet", "target")
    pool, guide = clf.pool_, clf.pool_.guide
    assert pool.on_disk
    assert len(guide.ids) == 400
    assert (np.diff(guide.ids) > 0).all()
    context = np.arange(0, 900, 7)
    rows = pool.hold([context]).rows
    whole = pool.encode(table.drop(columns="target"))[0]
    seen = np.isin(context, guide.ids)
    assert 0 < seen.sum() < len(context)
    own = log_odds(guide.known[np.searchsorted(guide.ids, context[seen])])
    np.testing.assert_array_equal(rows["guide 0"][seen], own[:, 0])
    others = log_odds(guide.answers(whole.iloc[context[~seen]]))
    np.testing.assert_array_equal(rows["guide 0"][~seen], others[:, 0])
    queries = mixed(40, seed=1).drop(columns="target")
    assert np.isfinite(clf.predict_proba(queries)).all()
    with pytest.raises(InvalidInput, match="groups= is for tables in memory"):
        clone(clf).set_params(guide_folds="groups").fit(
            tmp_path / "pool.parquet", "target", groups=np.zeros(900)
        )


@pytest.mark.usefixtures("on_disk")
def test_auto_with_a_pool_in_files(tmp_path) -> None:
    mixed(900).to_parquet(tmp_path / "pool.parquet", row_group_size=200)
    clf = CrumbClassifier(n_clusters=2, context_size=60, guide="auto")
    clf.fit(tmp_path / "pool.parquet", "target")
    assert clf.pool_.guide.facts["held_out"] == 225
    proba = clf.predict_proba(mixed(40, seed=1).drop(columns="target"))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


# What "auto" decides


class Blind(RegressorMixin, BaseEstimator):
    """A back-end that knows nothing of the rows."""

    def fit(self, X, y):
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


def test_auto_leaves_the_answers_to_the_better_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = X @ [3.0, -2.0, 1.0, 4.0]  # a line: trees are worse, means of contexts useless
    settings = {"n_clusters": 3, "context_size": 100, "guide": "auto"}
    line = CrumbRegressor(model=LinearRegression(), **settings).fit(X[:500], y[:500])
    assert line.pool_.guide.share == 0.0
    np.testing.assert_allclose(line.predict(X[500:]), y[500:], rtol=1e-6)
    blind = CrumbRegressor(model=Blind(), **settings).fit(X[:500], y[:500])
    guide = blind.pool_.guide
    assert guide.share == 1.0
    np.testing.assert_allclose(blind.predict(X[500:]), guide.answers(X[500:]))
    assert guide.facts["guide"] < guide.facts["alone"]
    assert guide.facts["guided"] == pytest.approx(guide.facts["alone"])


@pytest.mark.parametrize("folds", [None, "time"])
def test_held_out_rows_get_what_queries_would_get(folds: str | None) -> None:
    """The models of the guide, fitted without these rows: of all others, and of the folds."""
    X, y = numbers()
    settings = {**CHEAP, "model": LinearRegression(), "guide": LinearRegression()}
    reg = CrumbRegressor(**settings, guide_folds=folds).fit(X, y)
    pool, guide, some = reg.pool_, reg.pool_.guide, np.arange(0, 200, 5)
    rest = np.setdiff1d(np.arange(200), some)
    expected = LinearRegression().fit(X[rest], y[rest]).predict(X[some])
    if folds is None:  # as in Guide.answers, these have a half
        expected = (expected + guide.known[some]) / 2
    found = answers_without(guide, some, rest, pool)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    pool.y[some] += 1_000.0  # the model of the others does not see their labels
    np.testing.assert_array_equal(answers_without(guide, some, rest, pool), found)


class Echo(Blind):
    """A back-end that says what its last column says."""

    def predict(self, X):
        return np.asarray(X)[:, -1]


def test_auto_judges_by_rows_that_are_answered_like_queries() -> None:
    """By hand, with a back-end that repeats the column: the trees, and the column from them."""
    X, y = numbers(400)
    reg = CrumbRegressor(**{**CHEAP, "model": Echo()}, guide="auto").fit(X, y)
    pool, guide = reg.pool_, reg.pool_.guide
    some = apart(np.arange(400), 100, None, None, generator(reg.options_.seed, "held out"))
    own = answers_without(guide, some, np.setdiff1d(np.arange(400), some), pool)
    alone, column = losses(y[some], X[some, -1], own), guide.columns(own)[:, 0]
    facts = {"held_out": 100, "alone": alone[0], "guide": alone[-1]}
    facts |= {"guided": losses(y[some], column, own)[0]}
    assert guide.facts == pytest.approx(facts, rel=1e-5)
    assert guide.facts["guide"] < losses(y[some], own, guide.known[some])[-1]  # they know more


def test_auto_decides_the_same_for_targets_of_any_size() -> None:
    X, y = numbers()
    settings = {**CHEAP, "model": Blind(), "guide": "auto"}
    near, far = (CrumbRegressor(**settings).fit(X, size * y) for size in (1.0, 1e300))
    assert near.pool_.guide.share == far.pool_.guide.share > 0
    np.testing.assert_allclose(far.predict(X[:20]) / 1e300, near.predict(X[:20]), rtol=1e-3)


def test_auto_answers_with_the_mixture_that_it_says() -> None:
    X = np.random.default_rng(0).normal(size=(900, 6))
    y = (X[:, 0] * X[:, 1] + X[:, 2:].sum(axis=1) > 0).astype(int)
    clf = CrumbClassifier(**CHEAP, guide="auto").fit(X[:300], y[:300])
    guide = clf.pool_.guide
    own = guide.answers(X[300:])
    plain = CrumbClassifier(**CHEAP, guide="trees" if guide.shown else None).fit(X[:300], y[:300])
    expected = plain.predict_proba(X[300:]) ** (1 - guide.share) * own**guide.share
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X[300:]), expected, rtol=1e-9)
    assert 0 < guide.share < 1


@pytest.mark.parametrize("n_classes", [2, 4, 12])
def test_auto_decides_the_same_for_the_same_seed(n_classes: int) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(480) % n_classes
    X = rng.normal(size=(480, 4)) + rng.normal(scale=2, size=(n_classes, 4))[y]
    settings = {"model": GaussianNB(), "n_clusters": 3, "context_size": 120, "guide": "auto"}
    a, b = (CrumbClassifier(**settings).fit(X[:360], y[:360]) for _ in range(2))
    assert a.pool_.guide.facts == b.pool_.guide.facts
    np.testing.assert_array_equal(a.predict_proba(X[360:]), b.predict_proba(X[360:]))


def test_auto_with_a_model_without_probabilities_shows_the_guide() -> None:
    X, y = classes()
    clf = CrumbClassifier(**{**CHEAP, "model": RidgeClassifier()}, guide="auto").fit(X, y)
    assert clf.pool_.guide.shown
    assert clf.pool_.guide.share == 0.0
    assert clf.score(X, y) > 0.7


# Mistakes


@pytest.mark.parametrize(
    ("settings", "more", "said"),
    [
        ({"guide": "forest"}, {}, "guide must be None, 'trees', 'auto' or a scikit-learn class"),
        ({"guide": LinearRegression()}, {}, "guide must be None"),
        ({"guide": LogisticRegression}, {}, "guide must be None"),
        ({"guide": RidgeClassifier()}, {}, "has no predict_proba"),
        ({"guide": "trees", "guide_folds": "space"}, {}, "guide_folds must be None, 'time'"),
        ({"guide": "trees", "guide_folds": 5}, {}, "has no method split"),
        ({"guide": "trees", "guide_folds": "groups"}, {}, "needs the group of each row"),
        ({"guide": "trees"}, {"groups": np.zeros(60)}, "give guide_folds='groups'"),
        ({}, {"groups": np.zeros(60)}, "groups= is for the folds of a guide"),
        ({"guide": "trees", "guide_folds": "groups"}, {"groups": np.zeros(60)}, "two groups"),
        ({"guide": "trees", "guide_folds": "groups"}, {"groups": np.zeros(9)}, "inconsistent"),
    ],
)
def test_mistakes_are_named(settings, more, said) -> None:
    X, y = classes(60)
    with pytest.raises(ValueError, match=said):
        CrumbClassifier(**CHEAP, **settings).fit(X, y, **more)


def test_without_lightgbm(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    X, y = classes(60)
    with pytest.raises(BackendUnavailable, match=r"pip install 'crumb-pfn\[guide\]'"):
        CrumbClassifier(**CHEAP, guide="trees").fit(X, y)
    CrumbClassifier(**CHEAP, guide=LogisticRegression()).fit(X, y)


def test_what_cannot_be_saved_without_pickle(tmp_path) -> None:
    X, y = classes(60)
    plain = {"n_clusters": 2, "context_size": 20}
    own = CrumbClassifier(**plain, guide=LogisticRegression()).fit(X, y)
    with pytest.raises(InvalidInput, match="A guide given as an estimator cannot be saved"):
        own.save(tmp_path / "own.crumb")
    split = CrumbClassifier(**plain, guide="trees", guide_folds=FOLDS).fit(X, y)
    with pytest.raises(InvalidInput, match="A splitter given as guide_folds="):
        split.save(tmp_path / "split.crumb")


def test_answers_that_are_not_finite() -> None:
    class Odd(Blind):
        def predict(self, X):
            return np.full(len(X), np.nan)

    X, y = numbers(60)
    with pytest.raises(InvalidInput, match="not finite"):
        CrumbRegressor(model=LinearRegression(), guide=Odd()).fit(X, y)


def test_a_guide_is_a_parameter_like_others() -> None:
    clf = CrumbClassifier(guide="trees", guide_folds=StratifiedKFold(3))
    assert clone(clf).get_params()["guide"] == "trees"
    X, y = classes(60)
    fitted = CrumbClassifier(**CHEAP, guide="trees").fit(X, y)
    assert isinstance(fitted.pool_.guide, Guide)
    assert fitted.guide == "trees"
    assert clone(fitted).set_params(guide=None).fit(X, y).pool_.guide is None
