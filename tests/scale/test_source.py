"""Tables in files: what is found, in which order, and which file is blamed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from scale_tables import mixed, numbers, write

from crumb.errors import InvalidInput
from crumb.scale import source as sources
from crumb.scale.engine import LocalEngine
from crumb.scale.pool import read_whole
from crumb.scale.reader import fetch_rows
from crumb.scale.source import count_rows, open_source


def whole(*args, **options):
    return read_whole(count_rows(open_source(*args, **options), LocalEngine(1)))


def test_path_glob_and_dataset_are_the_same_table(tmp_path):
    frame = numbers(300)
    folder = write(tmp_path / "t", frame)
    for given in (
        folder,
        str(folder),
        str(folder / "*.parquet"),
        ds.dataset(str(folder)),
        f"{tmp_path}/**/part*",
    ):
        rows, labels = whole(given, "target")
        pd.testing.assert_frame_equal(rows, frame.drop(columns="target"))
        np.testing.assert_array_equal(labels, frame["target"])
    rows, _ = whole(folder / "part-001.parquet", "target", columns=["x3", "x1"])
    pd.testing.assert_frame_equal(rows, frame.loc[100:199, ["x3", "x1"]].reset_index(drop=True))


def test_files_that_writers_leave_behind_do_not_count(tmp_path):
    frame = numbers(30)
    folder = write(tmp_path / "t", frame)
    (folder / "_temporary").mkdir()
    for name in ("_SUCCESS", ".part-000.parquet.crc", "_temporary/part-9.parquet", "notes.txt"):
        (folder / name).write_text("no table")
    assert len(whole(folder, "target")[0]) == 30


def test_where_leaves_out_rows_and_prunes_partitions(tmp_path):
    frame = numbers(400).assign(year=np.repeat([2019, 2020, 2021, 2022], 100))
    for year, rows in frame.groupby("year"):
        write(tmp_path / "t" / f"year={year}", rows.drop(columns="year"), files=2)
    expected = frame[(frame["year"] >= 2020) & (frame["x0"] > 0)]
    for where in (
        (pc.field("year") >= 2020) & (pc.field("x0") > 0),
        [("year", ">=", 2020), ("x0", ">", 0)],
    ):
        rows, labels = whole(tmp_path / "t", "target", where=where)
        np.testing.assert_allclose(rows.to_numpy(), expected.drop(columns="target").to_numpy())
        np.testing.assert_array_equal(labels, expected["target"])
    opened = open_source(tmp_path / "t", "target", where=pc.field("year") == 2021)
    assert {shard.path.split("/")[-2] for shard in opened.shards} == {"year=2021"}


def test_a_filter_on_folders_counts_each_shard_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SHARD_ROWS", 40)
    frame = numbers(100)
    write(tmp_path / "t" / "year=2019", frame.iloc[:50], files=1, groups=5)
    write(tmp_path / "t" / "year=2020", frame, files=1, groups=5)
    source = count_rows(open_source(tmp_path / "t", where=[("year", ">=", 2020)]), LocalEngine(1))
    assert [shard.rows for shard in source.shards] == [40, 40, 20]
    assert len(read_whole(source)[0]) == 100


def test_columns_in_another_order_and_of_another_width(tmp_path):
    first = pd.DataFrame(
        {"a": [1, 2], "c": pd.Categorical(["x", None]), "s": ["u", None], "target": [0, 1]}
    )
    second = pd.DataFrame(
        {"target": [1, 0], "s": ["v", "w"], "c": pd.Categorical(["z", "x"]), "a": [1.5, None]}
    )
    for number, frame in enumerate((first, second)):
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / f"{number}.parquet")
    rows, labels = whole(tmp_path, "target")
    assert list(rows.columns) == ["a", "c", "s"]
    np.testing.assert_array_equal(rows["a"], [1, 2, 1.5, np.nan])
    assert rows["c"].astype(object).where(rows["c"].notna(), None).tolist() == ["x", None, "z", "x"]
    assert isinstance(rows["c"].dtype, pd.CategoricalDtype)
    assert labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("kept", [0, 3, 400, -1, -200])
def test_a_broken_file_is_named(tmp_path, kept):
    folder = write(tmp_path / "t", mixed(300))
    broken = folder / "part-001.parquet"
    broken.write_bytes(broken.read_bytes()[:kept])
    with pytest.raises(InvalidInput, match=r"part-001\.parquet cannot be read"):
        open_source(folder, "target")


def test_a_file_with_broken_pages_is_named(tmp_path):
    folder = write(tmp_path / "t", numbers(5000), groups=1)
    broken = folder / "part-002.parquet"
    content = bytearray(broken.read_bytes())
    content[4:2000] = b"\xff" * 1996  # the first page and its header; the footer is whole
    broken.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"part-002\.parquet cannot be read"):
        whole(folder, "target")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "nothing"}, "no column 'nothing'"),
        ({"target": "target", "columns": ["x9"]}, "'x9'"),
        ({"target": "target", "where": "x0 > 1"}, "where must be"),
        ({"target": "target", "where": pc.field("x9") > 1}, "where does not fit"),
        ({"target": "target", "columns": ["target"]}, "no column besides"),
    ],
)
def test_what_is_asked_wrongly(tmp_path, options, said):
    with pytest.raises(InvalidInput, match=said):
        open_source(write(tmp_path / "t", numbers(30)), **options)


def test_nothing_there(tmp_path):
    for path, said in (
        (tmp_path / "no", "no file"),
        (tmp_path, "no Parquet"),
        (tmp_path / "*.pq", "no Parquet"),
    ):
        with pytest.raises(InvalidInput, match=said):
            open_source(path)
    with pytest.raises(InvalidInput, match="in memory"):
        open_source(ds.dataset(pa.table({"a": [1]})))
    folder = write(tmp_path / "t", numbers(30))
    with pytest.raises(InvalidInput, match="leaves none"):
        count_rows(open_source(folder, where=pc.field("x0") > 1e9), LocalEngine(1))


@pytest.mark.parametrize("where", [None, pc.field("x0") > 0])
def test_rows_by_number(tmp_path, monkeypatch, where):
    monkeypatch.setattr(sources, "SHARD_ROWS", 60)
    monkeypatch.setattr(sources, "BLOCK_ROWS", 16)
    frame = numbers(500)
    source = count_rows(
        open_source(write(tmp_path / "t", frame, groups=7), where=where), LocalEngine(1)
    )
    seen = frame if where is None else frame[frame["x0"] > 0].reset_index(drop=True)
    assert source.rows == len(seen)
    ids = np.sort(np.random.default_rng(0).choice(len(seen), 40, replace=False))
    found = fetch_rows(LocalEngine(1), source, ids).to_pandas()
    pd.testing.assert_frame_equal(found, seen.iloc[ids].reset_index(drop=True))
