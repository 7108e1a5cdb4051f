"""persistence.py: a fitted estimator as a file."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import crumb
from crumb import MICP, CrumbClassifier, CrumbRegressor, EarlyStopping
from crumb.errors import InvalidInput, PlanMismatch


def mixed(n: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "hole": np.where(rng.random(n) < 0.2, np.nan, 1.0),
            "text": rng.choice(["a", "b", None], n),
            "category": pd.Categorical(rng.choice([3, 10, 2], n)),
            "code": rng.integers(0, 4, n),
            "flag": rng.random(n) < 0.5,
            "when": pd.date_range("2024", periods=n),
        }
    )
    return frame, rng.choice(["no", "yes"], n)


def test_a_loaded_classifier_answers_the_same(tmp_path) -> None:
    frame, y = mixed()
    clf = CrumbClassifier(
        n_clusters=2,
        context_size=40,
        strategy=MICP(gamma=2.0),
        early_stopping=EarlyStopping(patience=2),
        categorical_features=["code"],
        random_state=None,
        model_options={"softmax_temperature": 0.8},
    ).fit(frame[:90], y[:90])
    clf.save(tmp_path / "clf.crumb")
    again = crumb.load(tmp_path / "clf.crumb")
    assert isinstance(again, CrumbClassifier)
    assert again.strategy.gamma == 2.0
    assert again.early_stopping == EarlyStopping(patience=2)
    assert again.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(again.predict_proba(frame[90:]), clf.predict_proba(frame[90:]))
    plan = clf.plan(frame[90:])
    plan.save(tmp_path / "plan.crumb")
    reloaded = crumb.Plan.load(tmp_path / "plan.crumb")
    np.testing.assert_array_equal(
        again.predict_proba(frame[90:], plan=reloaded), clf.predict_proba(frame[90:], plan=plan)
    )


def test_arrays_and_regressors(tmp_path) -> None:
    X, y = load_diabetes(return_X_y=True)
    reg = CrumbRegressor(n_clusters=2, context_size=50).fit(X[:200], y[:200])
    reg.save(tmp_path / "reg.crumb")
    again = crumb.load(str(tmp_path / "reg.crumb"))
    assert isinstance(again, CrumbRegressor)
    np.testing.assert_array_equal(again.predict(X[200:260]), reg.predict(X[200:260]))


@pytest.mark.parametrize(
    "y",
    [np.arange(60) % 3, np.arange(60) % 2 == 0, np.array([1.0, 2.0] * 30)],
    ids=["int", "bool", "float"],
)
def test_class_labels_keep_their_type(tmp_path, y: np.ndarray) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    CrumbClassifier(context_size=20).fit(X, y).save(tmp_path / "c.crumb")
    again = crumb.load(tmp_path / "c.crumb")
    assert again.classes_.dtype == y.dtype
    assert set(again.predict(X[:10])) <= set(y)


def test_what_would_need_pickle_is_refused_and_nothing_is_written(tmp_path) -> None:
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "c.crumb"
    for settings, words in (
        ({"model": KNeighborsClassifier()}, "given as an estimator"),
        ({"features": PCA(2)}, "features="),
        ({"model_options": {"random_state": np.random.RandomState(0)}}, "without pickle"),
    ):
        clf = CrumbClassifier(context_size=30, **settings).fit(X, y)
        with pytest.raises(InvalidInput, match=words):
            clf.save(path)
        assert not path.exists()


def test_other_weights_are_noticed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_iris(return_X_y=True)
    CrumbClassifier(context_size=30).fit(X, y).save(tmp_path / "c.crumb")
    monkeypatch.setattr("crumb.persistence.checksum", lambda path: "0" * 64)
    with pytest.raises(PlanMismatch, match="other weights of the model 'embedded'"):
        crumb.load(tmp_path / "c.crumb")


def test_the_file_holds_no_pickle_and_a_plan_is_no_estimator(tmp_path) -> None:
    X, y = load_iris(return_X_y=True)
    clf = CrumbClassifier(context_size=30).fit(X, y)
    clf.save(tmp_path / "c.crumb")
    with zipfile.ZipFile(tmp_path / "c.crumb") as archive:
        assert {name.rpartition(".")[2] for name in archive.namelist()} <= {
            "json",
            "npy",
            "parquet",
        }
    clf.plan(X).save(tmp_path / "p.crumb")
    with pytest.raises(PlanMismatch, match="'crumb-plan' file"):
        crumb.load(tmp_path / "p.crumb")


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical([3, 10, None, 2] * 15),
        pd.Categorical([0.5, 1.0, None, 2.0] * 15),
        pd.Categorical([True, False, None, True] * 15),
        pd.Categorical(["a", 1, None, 2.5] * 15),
        pd.cut(np.arange(60), 4),
        pd.Categorical(pd.to_datetime(["2024-01-01", "2024-01-02", None, "2024-01-03"] * 15)),
    ],
    ids=["ints", "floats", "bools", "mixed", "intervals", "dates"],
)
def test_categories_of_every_kind_make_the_trip(tmp_path, values) -> None:
    frame = pd.DataFrame({0: values, 1: np.arange(60.0)})  # column names may be numbers
    y = np.arange(60) % 2
    clf = CrumbClassifier(context_size=20, n_clusters=2).fit(frame, y)
    clf.save(tmp_path / "c.crumb")
    again = crumb.load(tmp_path / "c.crumb", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(frame), clf.predict_proba(frame))


def test_a_pool_that_was_changed_in_the_file_is_noticed(tmp_path) -> None:
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "c.crumb"
    CrumbClassifier(context_size=30).fit(X, y).save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    np.save(buffer, X + 1.0)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, buffer.getvalue() if name == "pool.npy" else data)
    with pytest.raises(PlanMismatch, match="damaged"):
        crumb.load(path)


def test_unfitted_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        CrumbClassifier().save(tmp_path / "c.crumb")
