"""crumb predict, queries in files: chunks, resumption, nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from cli_tables import FAST, make_table, predict_args
from scale_tables import stay_on_disk, write

from crumb import CrumbClassifier, Plan
from crumb.cli import tables
from crumb.errors import InvalidInput

LARGE = predict_args(train="train", test="test", out="out.parquet")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Folders train and test of Parquet files; a pool that stays on disk."""
    monkeypatch.chdir(tmp_path)
    stay_on_disk(monkeypatch)
    write(tmp_path / "train", make_table(600, 0).drop(columns="price"))
    write(tmp_path / "test", make_table(250, 1).drop(columns="price"))
    return tmp_path


def test_chunks_share_one_plan(crumb, files):
    status, out, err = crumb(*LARGE, *FAST, "--chunk-rows", "70", "--json")
    assert status == 0, err
    assert json.loads(out)["rows"] == 250
    written = pq.ParquetFile("out.parquet")
    assert [written.metadata.row_group(i).num_rows for i in range(4)] == [70, 70, 70, 40]
    test = pd.read_parquet("test")[["a", "b", "city"]]
    model = CrumbClassifier(context_size=60, n_clusters=3).fit("train", "animal")
    proba = model.predict_proba(test, plan=model.plan(test))
    answer = written.read().to_pandas()
    assert list(answer) == ["prediction", "probability_cat", "probability_dog"]
    np.testing.assert_allclose(answer.iloc[:, 1:], proba, atol=1e-5)
    assert sorted(path.name for path in files.iterdir()) == ["out.parquet", "test", "train"]


def test_replanning_chunks_is_predicting_each_alone(crumb, files):
    assert crumb(*LARGE, *FAST, "--chunk-rows", "125", "--replan", "--no-proba")[0] == 0
    test = pd.read_parquet("test")[["a", "b", "city"]]
    model = CrumbClassifier(context_size=60, n_clusters=3).fit("train", "animal")
    expected = np.concatenate(
        [model.predict(test.iloc[rows]) for rows in (slice(0, 125), slice(125, 250))]
    )
    assert (pd.read_parquet("out.parquet")["prediction"] == expected).mean() > 0.99


def test_kept_columns_are_copied_from_the_files(crumb, files):
    table = make_table(250, 1).assign(id=[f"{i:04d}" for i in range(250)])
    write(files / "asked", table)
    words = predict_args(train="train", test="asked", out="out.parquet")
    status, _, err = crumb(*words, *FAST, "--chunk-rows", "125", "--keep", "id,city", "--no-proba")
    assert status == 0, err
    answer = pd.read_parquet("out.parquet")
    assert list(answer) == ["id", "city", "prediction"]
    assert answer["id"].tolist() == table["id"].tolist()
    assert answer["city"].tolist() == table["city"].tolist()
    assert "has no column 'ids'" in crumb(*words, *FAST, "--chunk-rows", "125", "--keep", "ids")[2]


def test_an_interrupted_run_goes_on(crumb, files, monkeypatch):
    write_part, done = tables.write_table, []

    def interrupted(table, path):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(Path(path).name)
        write_part(table, path)

    monkeypatch.setattr(tables, "write_table", interrupted)
    words = [*LARGE, *FAST, "--chunk-rows", "60"]
    assert crumb(*words)[0] == 130
    assert not (files / "out.parquet").exists()
    assert sorted(path.name for path in (files / "out.parquet.parts").iterdir()) == [
        "000000.parquet", "000001.parquet", "job.json", "plan.zip",
    ]  # fmt: skip
    status, _, err = crumb(*words[:-1], "50")
    assert status == 1
    assert "holds parts of other answers" in err
    done.clear()
    monkeypatch.setattr(
        tables,
        "write_table",
        lambda table, path: (done.append(Path(path).name), write_part(table, path)),
    )
    monkeypatch.setattr(
        CrumbClassifier, "plan", lambda *_: pytest.fail("the plan is there already")
    )
    assert crumb(*words)[0] == 0
    assert done == ["000002.parquet", "000003.parquet", "000004.parquet"]
    resumed = pd.read_parquet("out.parquet")
    monkeypatch.undo()
    monkeypatch.chdir(files)
    stay_on_disk(monkeypatch)
    assert crumb(*words)[0] == 0
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), resumed)


def test_a_broken_query_file_leaves_nothing_under_the_name(crumb, files):
    broken = files / "test" / "part-002.parquet"
    broken.write_bytes(broken.read_bytes()[:300])
    status, _, err = crumb(*LARGE, *FAST)
    assert status == 1
    assert "part-002.parquet cannot be read" in err
    assert not (files / "out.parquet").exists()


def test_a_plan_of_the_files_is_used(crumb, files):
    words = ["--train", "train", "--test", "test", "--target", "animal"]
    status, out, err = crumb("plan", *words, *FAST, "--out", "plan.zip", "--json")
    assert status == 0, err
    assert json.loads(out)["settings"]["pool"]["rows"] == 600
    status, out, err = crumb("predict", *words, *FAST, "--plan", "plan.zip", "--out", "out.parquet")
    assert status == 0, err
    assert Plan.load("plan.zip").n_clusters == 3
    assert set(pd.read_parquet("out.parquet")["prediction"]) == {"cat", "dog"}


def test_rows_without_a_target_are_left_out_of_files(crumb, files):
    table = make_table(600, 0).drop(columns="price")
    write(files / "train", table.assign(animal=table["animal"].where(table.index >= 100)))
    words = ["--train", "train", "--test", "test", "--target", "animal", *FAST, "--json"]
    status, out, err = crumb("plan", *words, "--drop-missing-target")
    assert status == 0, err
    assert json.loads(out)["settings"]["pool"]["rows"] == 500
    status, _, err = crumb("plan", *words)
    assert (status, "labels are missing" in err) == (1, True), err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--chunk-rows", "0"], "at least 1"),
        (["--quantiles", "0.5"], "for regression"),
        (["--out", "out.csv"], "must end in .parquet"),
    ],
)
def test_what_is_asked_wrongly(crumb, files, words, said):
    status, _, err = crumb(*LARGE, *FAST, *words)
    assert (status, said in err) == (1, True), err


def test_regression_from_a_table_in_memory(crumb, files):
    make_table(200, 3).drop(columns="animal").to_csv("train.csv", index=False)
    words = predict_args("price", out="out.parquet", train="train.csv", test="test")
    assert crumb(*words, *FAST, "--quantiles", "0.1,0.9")[0] == 0
    assert list(pd.read_parquet("out.parquet")) == ["prediction", "quantile_0.1", "quantile_0.9"]


def test_queries_lack_a_column(files):
    with pytest.raises(InvalidInput, match="'c'"):
        tables.open_queries("test", ["a", "c"])
