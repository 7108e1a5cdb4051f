"""Tables as they come: files (table/csv.py), lists, arrays of text, frames; the target by name."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier

from crumb import CrumbClassifier, select_contexts
from crumb.errors import InvalidInput
from crumb.table.encoder import TableEncoder, fingerprint, to_rows


def mixed(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "c": rng.choice(["a", "b", "c"], rows)})
    return frame, ((frame["x"] > 0) ^ (frame["c"] == "a")).astype(int).to_numpy()


def test_lists_of_mixed_rows_keep_their_types() -> None:
    frame, y = mixed()
    rows = frame.to_numpy(dtype=object).tolist()
    clf = CrumbClassifier(n_clusters=1, context_size=90).fit(rows[:90], y[:90])
    assert clf.pool_.encoder.kinds_ == ["number", "text"]
    by_frame = CrumbClassifier(n_clusters=1, context_size=90).fit(frame[:90], y[:90])
    np.testing.assert_array_equal(clf.predict_proba(rows[90:]), by_frame.predict_proba(frame[90:]))
    assert clf.score(rows[90:], y[90:]) > 0.9


def test_an_array_of_text_has_columns_of_numbers() -> None:
    frame, _ = mixed()
    array = np.array(frame.to_numpy(dtype=object).tolist())  # numpy makes text of it all
    assert array.dtype.kind == "U"
    encoder = TableEncoder()
    rows = encoder.fit_transform(to_rows(array, learning=True))
    assert encoder.kinds_ == ["number", "text"]
    np.testing.assert_array_equal(rows[0], frame["x"])
    queries = encoder.transform(to_rows(array[:5]))
    pd.testing.assert_frame_equal(queries, rows[:5])


@pytest.mark.parametrize("dtype", ["Float64", "Int64", "float64[pyarrow]", object, "float32"])
def test_frames_on_a_pool_that_is_an_array(dtype) -> None:
    X = np.random.default_rng(0).integers(0, 9, (60, 3)).astype(float)
    clf = CrumbClassifier(model=DummyClassifier(), strategy="full").fit(X, np.arange(60) % 2)
    frame = pd.DataFrame(X).astype(dtype)
    np.testing.assert_array_equal(clf.encode(frame)[0], X)
    frame.iloc[0, 0] = pd.NA if dtype != "float32" else np.nan
    assert np.isnan(clf.encode(frame)[0][0, 0])
    with pytest.raises(InvalidInput, match="Column 'b' held numbers"):
        clf.encode(pd.DataFrame({"a": [1.0], "b": ["text"], "c": [1.0]}))


def test_masked_cells_are_missing() -> None:
    X = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(to_rows(X), [[1.0, np.nan], [3.0, 4.0]])


def peak(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_fit_and_of_queries() -> None:
    """Beside the table: its points (float64), and nothing else as large."""
    X = np.random.default_rng(0).normal(size=(150_000, 20))
    # One column tells all: the forest that weighs the columns has little to do.
    y, clf = X[:, 0] > 0, CrumbClassifier(model=DummyClassifier(), context_size=50)
    fixed = 14e6  # distances between 1,000 rows, for the bandwidth
    assert peak(lambda: clf.fit(X, y)) < 1.1 * X.nbytes + fixed
    frame = pd.DataFrame(X)
    assert peak(lambda: clf.encode(frame)) < 2.2 * X.nbytes  # numbers and points
    named = frame.rename(columns=str)
    assert peak(lambda: clf.fit(named, y)) < 2.2 * X.nbytes + fixed  # numbers and points
    assert np.shares_memory(clf.pool_.numbers.columns[3].cells, clf.pool_.rows["3"].to_numpy())
    clf.fit(frame, y)
    single = X.astype(np.float32)
    assert peak(lambda: clf.fit(single, y)) < 2.2 * single.nbytes + fixed


def test_memory_of_fit_with_categories() -> None:
    """Beside the table: its encoded rows and its points, and nothing else as large."""
    rng, names = np.random.default_rng(0), "abcdefgh"
    frame = pd.DataFrame(rng.normal(size=(150_000, 8)), columns=list(names))
    for name in names.upper():
        frame[name] = pd.Categorical.from_codes(rng.integers(0, 3, len(frame)), list("xyz"))
    y, clf = frame["a"] > 0, CrumbClassifier(model=DummyClassifier(), context_size=50)
    taken = peak(lambda: clf.fit(frame, y))
    rows = frame.memory_usage(index=False).sum()
    fixed = 14e6  # as above
    assert taken < 1.1 * (rows + clf.pool_.points.nbytes) + fixed


def test_fingerprints_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    frame = pd.DataFrame(X, columns=list("abc")).assign(word=["x", None, "y", "x", "z"] * 10)
    frame["kind"] = frame["word"].astype("category")
    arrays, frames = fingerprint(X), fingerprint(frame)
    monkeypatch.setattr("crumb.table.encoder.BLOCK_CELLS", 17)
    assert fingerprint(X) == fingerprint(np.asfortranarray(X)) == arrays
    assert fingerprint(frame) == frames


@pytest.mark.parametrize("place", ["queries.csv", Path("queries.parquet")])
def test_files_in_the_place_of_queries(place) -> None:
    frame, y = mixed()
    clf = CrumbClassifier(model=DummyClassifier()).fit(frame, y)
    with pytest.raises(InvalidInput, match=r"A table is needed here, not files: read .*queries"):
        clf.predict(place)


def test_the_target_by_name(tmp_path) -> None:
    frame, y = mixed()
    frame["x"] = (8 * frame["x"]).round() / 8  # pandas 2 reads other numbers with a wrong last bit
    table = frame.assign(y=np.where(y == 1, "yes", "no"))
    table.to_csv(tmp_path / "table.csv", index=False)
    table.to_csv(tmp_path / "table.csv.gz", index=False)
    tree = DecisionTreeClassifier(random_state=0)
    expected = CrumbClassifier(model=tree, features=None).fit(frame[["x"]], table["y"])
    inputs = [table[["x", "y"]], tmp_path / "numbers.csv", str(tmp_path / "numbers.csv")]
    table[["x", "y"]].to_csv(tmp_path / "numbers.csv", index=False)
    pl = pytest.importorskip("polars")
    for X in (*inputs, pl.from_pandas(table[["x", "y"]])):
        clf = CrumbClassifier(model=tree).fit(X, "y")
        assert clf.feature_names_in_.tolist() == ["x"]
        assert clf.classes_.tolist() == ["no", "yes"]
        assert clf.pool_.fingerprint == expected.pool_.fingerprint
    zipped = CrumbClassifier(strategy="full").fit(tmp_path / "table.csv.gz", "y")
    assert zipped.score(frame, table["y"]) > 0.9
    plan = select_contexts(table, frame, y_pool="y", n_clusters=2, context_size=20)
    assert plan.sizes.tolist() == [20, 20]


def test_a_folder_of_csv_is_the_table_that_was_cut(tmp_path) -> None:
    """Columns in any order, gaps in one file, and codes that only one file shows to be text."""
    frame, y = mixed()
    first = np.arange(len(frame)) < 20
    table = frame.assign(y=y, code=np.where(first, "007", "A12"), late=np.where(first, None, "yes"))
    table["year"] = np.where(first, 2020, 2021)
    table.to_csv(tmp_path / "whole.csv", index=False)
    for name, part in {"a": table[:10], "b": table[10:20], "c": table[20:]}.items():
        folder = tmp_path / "parts" / f"year={part['year'].iloc[0]}"
        folder.mkdir(parents=True, exist_ok=True)
        order = part.columns if name == "a" else part.columns[::-1]
        part[order].drop(columns="year").to_csv(folder / f"{name}.csv", index=False)
    (tmp_path / "parts" / "_SUCCESS").touch()
    (tmp_path / "parts" / ".hidden.csv").write_text("no,table\n")
    tree = DecisionTreeClassifier(random_state=0)
    whole = CrumbClassifier(model=tree).fit(tmp_path / "whole.csv", "y")
    for path in (tmp_path / "parts", str(tmp_path / "parts" / "*" / "*.csv")):
        parts = CrumbClassifier(model=tree).fit(path, "y")
        assert parts.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
        assert parts.pool_.fingerprint == whole.pool_.fingerprint
        plan = select_contexts(
            path, table.drop(columns="y"), y_pool="y", n_clusters=2, context_size=20
        )
        assert plan.sizes.tolist() == [20, 20]


def test_dates_in_csv_lists_and_single_rows_are_those_of_a_frame(tmp_path) -> None:
    frame, y = mixed()
    frame["day"] = pd.date_range("2020-01-01", periods=len(frame), freq="7h", unit="us")
    frame.loc[3, "day"] = pd.NaT
    usual = CrumbClassifier(model=DummyClassifier(), strategy="full").fit(frame, y)
    written = frame.assign(day=frame["day"].dt.strftime("%Y-%m-%dT%H:%M:%S"))
    written.assign(y=y).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "parts").mkdir()
    for name, part in (("a", slice(60)), ("b", slice(60, None))):
        written.assign(y=y)[part].to_csv(tmp_path / "parts" / f"{name}.csv", index=False)
    table, parts = (clone(usual).fit(tmp_path / name, "y") for name in ("table.csv", "parts"))
    for one in (clone(usual).fit(written, y), table, parts):
        assert one.pool_.encoder.kinds_ == ["number", "text", "number"]
        assert one.pool_.fingerprint == usual.pool_.fingerprint
        for row in (5, 3):
            point = usual.pool_.points[row : row + 1]
            asked = written.iloc[row].to_dict()
            np.testing.assert_array_equal(one.encode_row(asked)[1], point)
            np.testing.assert_array_equal(one.encode(written[row : row + 1])[1], point)
    rows = written.to_numpy(dtype=object).tolist()
    listed = clone(usual).fit(rows, y)
    np.testing.assert_array_equal(listed.pool_.points, usual.pool_.points)
    np.testing.assert_array_equal(listed.encode(rows[:9])[1], usual.pool_.points[:9])


def test_what_is_wrong_with_a_folder_of_csv(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text('x,y\n1,"2\n')
    with pytest.raises(InvalidInput, match=r"b\.csv cannot be read"):
        CrumbClassifier(model=DummyClassifier()).fit(tmp_path, "y")
    (tmp_path / "b.csv").unlink()
    with pytest.raises(InvalidInput, match="filter this one yourself"):
        CrumbClassifier(model=DummyClassifier()).fit(tmp_path, "y", columns=["x"])


def test_what_is_wrong_with_a_target_by_name(tmp_path) -> None:
    frame, _ = mixed()
    (tmp_path / "no.csv").write_bytes(b'a,b\n1,"2\n')
    for X, target, words in (
        (frame, "y", "no column 'y' to predict; it has 'x', 'c'"),
        (frame[["x"]].to_numpy(), "y", "y='y' names a column, but X has no names"),
        (tmp_path / "no.csv", "y", "cannot be read as a .csv table"),
    ):
        with pytest.raises(InvalidInput, match=words):
            CrumbClassifier(model=DummyClassifier()).fit(X, target)
    with pytest.raises(FileNotFoundError):
        CrumbClassifier(model=DummyClassifier()).fit(tmp_path / "gone.csv", "y")
