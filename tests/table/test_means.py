"""means.py: mean targets of columns of very many words, for distances and for the network."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scale_tables import stay_on_disk
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

import crumb
from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidInput
from crumb.guide import weigh
from crumb.online import CrumbOnline
from crumb.table import space as space_module
from crumb.table.encoder import TableEncoder
from crumb.table.means import MOST_CLASSES, MOST_WIDTH, SMOOTH, WIDE, MeanTargets, learn_means

FEW = {"n_clusters": 3, "context_size": 60, "device": "cpu"}


@pytest.fixture(autouse=True)
def small_pools_count(monkeypatch):
    monkeypatch.setattr(space_module, "LEAST_POOL", 100)


def towns(rows: int = 600, n_classes: int = 2, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """The label depends on a town, of which there are many, and on x."""
    rng = np.random.default_rng(seed)
    town, x = rng.integers(0, 60, rows), rng.normal(size=rows)
    score = x + np.random.default_rng(1).normal(scale=2, size=60)[town]
    names = pd.Series([f"town {i}" for i in town], dtype=object)
    names[rng.random(rows) < 0.05] = None
    frame = pd.DataFrame({"x": x, "town": names, "size": rng.choice(["s", "m"], rows)})
    return frame, np.clip((score + n_classes) // 2, 0, n_classes - 1).astype(int)


def learned(
    frame: pd.DataFrame, y: np.ndarray, **about
) -> tuple[MeanTargets, np.ndarray, pd.DataFrame]:
    """Mean targets, those of the rows that taught them, and these rows as encoded."""
    encoder = TableEncoder()
    rows = encoder.fit_transform(frame)
    found = learn_means(rows, encoder, y, int(y.max()) + 1, **about)
    assert found is not None
    return found[0], found[1].reshape(len(rows), -1), rows


@pytest.mark.parametrize("n_classes", [2, 4])
def test_means_are_those_of_scikit_learn(n_classes: int) -> None:
    frame, y = towns(n_classes=n_classes)
    means, known, rows = learned(frame, y)
    words = frame[["town"]].fillna("none")
    codes = np.unique(words, return_inverse=True)[1].reshape(-1, 1)
    encoder = TargetEncoder(random_state=0, smooth=SMOOTH)
    expected = encoder.fit_transform(codes, y)
    np.testing.assert_allclose(known, expected)
    bounds = expected.min(axis=0), expected.max(axis=0)
    np.testing.assert_allclose(means.of(rows), np.clip(encoder.transform(codes), *bounds))
    assert means.width == (1 if n_classes == 2 else n_classes)
    for i in (0, int(np.flatnonzero(frame["town"].isna())[0])):
        np.testing.assert_array_equal(means.of_one(rows.iloc[i].tolist()), means.of(rows.iloc[[i]]))


def test_by_hand() -> None:
    """All rows: (hits + 10 · mean of all) / (rows + 10). A row: the same, from four other folds."""
    frame, y = towns()
    means, known, rows = learned(frame, y)
    of_town = (frame["town"] == "town 7").to_numpy()
    expected = (y[of_town].sum() + SMOOTH * y.mean()) / (of_town.sum() + SMOOTH)
    expected = np.clip(expected, *means.bounds)
    np.testing.assert_allclose(means.of(rows[of_town]), np.tile(expected, (of_town.sum(), 1)))
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(frame, y)
    for others, mine in folds:
        hits, count = y[others][of_town[others]].sum(), of_town[others].sum()
        expected = (hits + SMOOTH * y[others].mean()) / (count + SMOOTH)
        np.testing.assert_allclose(known[mine][of_town[mine]], expected)


def test_a_row_does_not_learn_its_own_label() -> None:
    """Every row has a word of its own, or shares it with one or two others: words say nothing."""
    y = np.random.default_rng(0).integers(0, 2, 300)
    encoder = TableEncoder()
    names = encoder.fit_transform(pd.DataFrame({"id": [f"i{i}" for i in range(300)]}))
    assert learn_means(names, encoder, y, 2) is None
    for share in (2, 3):
        ids = pd.DataFrame({"id": [f"i{i // share}" for i in range(300)]})
        means, known, rows = learned(ids, y)
        assert abs(known[y == 1].mean() - known[y == 0].mean()) < 0.03
        # Known words are no far points: they are within what rows of the pool have.
        assert np.abs(means.standard(means.of(rows), np.ones(1))).max() < 4


def test_rare_words_share_a_mean_and_new_ones_have_it_too() -> None:
    frame, y = towns()
    frame["town"] = frame["town"].astype(object)
    frame.loc[:9, "town"] = [f"hamlet {i}" for i in range(10)]
    means, _, rows = learned(frame, y)
    assert np.ptp(means.of(rows)) > 0.3
    alone = frame["town"].map(frame["town"].value_counts()) == 1
    expected = (y[alone].sum() + SMOOTH * y.mean()) / (alone.sum() + SMOOTH)
    new = pd.DataFrame({"x": [0.0, 1.0], "town": ["nowhere", "hamlet 3"], "size": ["s", "m"]})
    np.testing.assert_allclose(means.of(new)[:, 0], expected)


def test_very_many_columns_are_cut_to_those_that_tell_most() -> None:
    rng = np.random.default_rng(0)
    frame, y = towns(n_classes=4)
    many = {f"noise {j}": [f"n{i}" for i in rng.integers(0, 50, len(y))] for j in range(15)}
    means = learned(frame.assign(**many), y)[0]
    assert means.width == MOST_WIDTH
    assert frame.columns.get_loc("town") in means.columns
    assert means.columns == sorted(means.columns)


def test_where_there_are_none() -> None:
    frame, y = towns()
    narrow = frame[frame["town"].isin([f"town {i}" for i in range(WIDE)]) | frame["town"].isna()]
    encoder = TableEncoder()
    rows = encoder.fit_transform(narrow)
    assert learn_means(rows, encoder, y[: len(rows)], 2) is None
    rows = encoder.fit_transform(frame)
    assert learn_means(rows, encoder, y, 2) is not None
    assert learn_means(rows, encoder, np.arange(len(y)) % 11, MOST_CLASSES + 1) is None
    assert learn_means(rows, encoder, np.zeros(len(y), dtype=int), 1) is None
    assert learn_means(rows, encoder, y.astype(float), None) is None
    assert CrumbClassifier(**FEW, features=None).fit(frame, y).pool_.means is None
    assert CrumbRegressor(features="auto").fit(frame, y.astype(float)).pool_.means is None
    # Random folds would tell too much of rows that the user wants apart.
    apart = CrumbClassifier(**FEW, guide="trees", guide_folds="time").fit(frame, y)
    assert apart.pool_.means is None
    assert apart.pool_.space.means is None


def seen(model: CrumbClassifier, queries: pd.DataFrame) -> np.ndarray:
    """What the network is shown of queries beside the table's columns."""
    shown = model.pool_.means.queries(model.encode(queries)[0])
    return shown.iloc[:, queries.shape[1] :].to_numpy()


def test_the_network_and_distances_see_them() -> None:
    frame, y = towns()
    clf = CrumbClassifier(**FEW).fit(frame[100:], y[100:])
    means, known, _ = learned(frame[100:].reset_index(drop=True), y[100:])
    held = clf.pool_.hold([np.arange(5)]).rows
    np.testing.assert_array_equal(held.iloc[:, 3:], known)
    np.testing.assert_array_equal(seen(clf, frame[:100]), means.of(frame[:100]))
    # The last coordinate is the standardised mean, by its weight.
    assert len(clf.pool_.space.weights) == 4
    expected = (known - known.mean()) / known.std() * clf.pool_.space.weights[3]
    np.testing.assert_allclose(clf.pool_.points[:, -1:], expected, atol=1e-12)
    # One row by itself gets the point that it has in a table.
    points = clf.encode(frame[:100])[1]
    for i in range(20):
        point = clf.encode_row(frame.iloc[i].to_dict())[1]
        np.testing.assert_allclose(point[0], points[i], atol=1e-12)


def test_they_help(monkeypatch) -> None:
    frame, y = towns(2_500)
    losses = {}
    for used in (True, False):
        monkeypatch.setattr("crumb.learning._may_use_means", lambda asked, used=used: used)
        clf = CrumbClassifier(**FEW | {"context_size": 200}).fit(frame[500:], y[500:])
        proba = clf.predict_proba(frame[:500])
        losses[used] = -np.log(proba[np.arange(500), y[:500]]).mean()
    assert losses[True] < 0.9 * losses[False]


def test_a_loaded_model_answers_the_same(tmp_path) -> None:
    frame, y = towns()
    for more in ({}, {"guide": "trees"}, {"plan_at": "fit"}):
        clf = CrumbClassifier(**FEW, **more).fit(frame[100:], y[100:])
        clf.save(tmp_path / "clf.crumb")
        again = crumb.load(tmp_path / "clf.crumb")
        expected = clf.predict_proba(frame[:50])
        np.testing.assert_array_equal(again.predict_proba(frame[:50]), expected)
        if "guide" in more:  # the saved weights say what there was, not the parameters
            apart = crumb.load(tmp_path / "clf.crumb", guide_folds="time")
            np.testing.assert_array_equal(apart.predict_proba(frame[:50]), expected)
        pickled = pickle.loads(pickle.dumps(clf))
        np.testing.assert_array_equal(pickled.predict_proba(frame[:50]), expected)


def test_weights_of_ones_own_are_of_columns_alone() -> None:
    frame, y = towns()
    clf = CrumbClassifier(**FEW, features=[1.0, 2.0, 3.0]).fit(frame, y)
    assert clf.pool_.means is None
    with pytest.raises(InvalidInput, match="one for each of the 3 columns"):
        CrumbClassifier(**FEW, features=[1.0] * 5).fit(frame, y)


def test_a_guide_stands_before_them() -> None:
    frame, y = towns()
    clf = CrumbClassifier(**FEW, guide="trees").fit(frame[100:], y[100:])
    held = clf.pool_.hold([np.arange(5)]).rows
    guide = clf.pool_.guide
    np.testing.assert_allclose(held.iloc[:, 3], guide.columns(guide.known)[:, 0])
    np.testing.assert_array_equal(held.iloc[:, 4:], clf.pool_.means.known)
    assert clf.predict_proba(frame[:100]).shape == (100, 2)


def test_held_out_rows_of_a_guide_do_not_know_their_labels(monkeypatch) -> None:
    """``weigh`` asks rows of the pool: they get what other rows say of them."""
    frame, y = towns()
    clf = CrumbClassifier(**FEW, guide="trees").fit(frame, y)
    asked, pool = [], clf.pool_
    guide = pool.guide

    def infer(backend, table, contexts, labels, rows, output, *more, **how):
        asked.append(rows)
        return np.full((len(rows), 2), 0.5)

    monkeypatch.setattr("crumb.guide.infer", infer)
    weigh(guide, None, None, pool, clf.backend_, clf.options_)
    known = pd.Series(pool.means.known[:, 0], index=pool.rows["x"])
    assert len(asked) == 2  # without the guide's column, and with it
    for rows in asked:
        np.testing.assert_array_equal(rows["mean 0"], known[rows["x"]])


def test_models_with_a_limit_of_columns_do_without_them(monkeypatch) -> None:
    frame, y = towns()
    monkeypatch.setattr("crumb.pfn.base.Backend.max_columns", 3)
    clf = CrumbClassifier(**FEW).fit(frame, y)
    assert clf.pool_.means is None
    assert clf.pool_.space.means is not None  # distances still have them
    assert clf.predict_proba(frame[:9]).shape == (9, 2)


def test_estimators_of_the_users_own_see_their_columns_alone() -> None:
    frame, y = towns()
    encoded = ColumnTransformer(
        [("words", OneHotEncoder(handle_unknown="ignore"), ["town", "size"])]
    )
    clf = CrumbClassifier(**FEW, model=make_pipeline(encoded, LogisticRegression()))
    assert clf.fit(frame, y).pool_.means is None
    assert clf.pool_.space.means is not None


def test_a_pool_in_files(monkeypatch, tmp_path) -> None:
    stay_on_disk(monkeypatch)
    frame, y = towns(2_000)
    names = np.array(["no", "yes"])
    frame.assign(label=names[y]).to_parquet(tmp_path / "towns.parquet", index=False)
    clf = CrumbClassifier(**FEW).fit(tmp_path / "towns.parquet", "label")
    assert clf.pool_.on_disk
    held = clf.pool_.hold([np.arange(40, 90)])
    np.testing.assert_array_equal(held.rows.iloc[:, 3:], clf.pool_.means.known[held.ids])
    memory = CrumbClassifier(**FEW).fit(frame, names[y])
    assert clf.pool_.space.width == memory.pool_.space.width
    np.testing.assert_allclose(
        clf.predict_proba(frame[:50]), memory.predict_proba(frame[:50]), atol=0.35
    )
    same = clf.predict(frame) == memory.predict(frame)
    assert same.mean() > 0.9


def test_files_whose_forest_sees_fewer_words(monkeypatch, tmp_path) -> None:
    """The forest learns from some rows; which columns are wide is a matter of more rows."""
    stay_on_disk(monkeypatch)
    monkeypatch.setattr(space_module, "MOST_ROWS", 30)
    frame, y = towns(2_000)
    frame.assign(label=y).to_parquet(tmp_path / "towns.parquet", index=False)
    pool = CrumbClassifier(**FEW).fit(tmp_path / "towns.parquet", "label").pool_
    assert pool.space.means.columns == [1]
    assert len(pool.space.weights) == 4


def test_streams(tmp_path) -> None:
    frame, y = towns()
    clf = CrumbClassifier(**FEW, contexts_per_query=1, plan_at="fit").fit(frame[100:], y[100:])
    with CrumbOnline(clf, timeout=0.01) as stream:
        answers = [stream.submit(frame.iloc[i].to_dict()).result(60).value for i in range(3)]
        stream.learn(frame[:50], y[:50])
        stream.refresh()
        stream.submit(frame.iloc[60].to_dict()).result(60)
    np.testing.assert_allclose(answers, clf.predict_proba(frame[:3]), atol=1e-4)
