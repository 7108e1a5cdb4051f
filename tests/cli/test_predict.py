"""crumb predict."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_tables import FAST, FASTEST, leftovers, make_table, predict_args

from crumb import CrumbClassifier, CrumbRegressor
from crumb.cli.tables import infer_task


def test_classification_gives_what_the_library_gives(crumb, folder):
    status, out, err = crumb(*predict_args(), *FAST)
    answer = pd.read_csv("out.csv")
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = CrumbClassifier(context_size=60, n_clusters=3).fit(
        train.drop(columns="animal"), train["animal"]
    )
    proba = model.predict_proba(test.drop(columns="animal"))
    assert status == 0
    assert list(answer) == ["prediction", "probability_cat", "probability_dog"]
    np.testing.assert_allclose(answer.iloc[:, 1:], proba, atol=1e-5)
    assert (answer["prediction"] == model.classes_[proba.argmax(axis=1)]).all()
    accuracy = (answer["prediction"] == test["animal"]).mean()
    assert f"accuracy {accuracy:.4f}, roc_auc" in out
    assert "classification (--task overrides)" in err


def test_regression_with_quantiles_gives_what_the_library_gives(crumb, folder):
    status, out, _ = crumb(*predict_args("price"), *FAST, "--quantiles", "0.1,0.9", "--json")
    answer = pd.read_csv("out.csv")
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = CrumbRegressor(context_size=60, n_clusters=3).fit(
        train.drop(columns="price"), train["price"]
    )
    queries = test.drop(columns="price")
    assert status == 0
    assert list(answer) == ["prediction", "quantile_0.1", "quantile_0.9"]
    np.testing.assert_allclose(answer["prediction"], model.predict(queries), rtol=1e-5, atol=1e-5)
    quantiles = model.predict(queries, output_type="quantiles", quantiles=[0.1, 0.9])
    np.testing.assert_allclose(answer.iloc[:, 1:], quantiles, rtol=1e-5, atol=1e-5)
    rmse = np.sqrt(((answer["prediction"] - test["price"]) ** 2).mean())
    report = json.loads(out)
    assert report["task"] == "regression"
    assert report["score"]["rmse"] == pytest.approx(rmse)
    assert report["score"]["r2"] == pytest.approx(1 - rmse**2 / test["price"].var(ddof=0))


def test_dates_of_a_csv_file_and_words_that_it_never_had(crumb, folder):
    """Of a column that is written otherwise there is one note, though plan and answers see it."""
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(name)
        day = pd.Timestamp("2020-01-01") + pd.to_timedelta(table["b"].rank(), unit="h")
        table = table.assign(
            city=table["city"].str.upper() if name == "test.csv" else table["city"]
        )
        table.assign(day=day.dt.strftime("%Y-%m-%d %H:%M:%S")).to_csv(name, index=False)
    status, _, err = crumb(*predict_args(), *FAST)
    assert status == 0
    assert "categories" not in err.replace("text or categories", "")
    assert err.count("none of the values that the queries hold in 'city'") == 1
    table.assign(day="soon").to_csv("test.csv", index=False)
    status, _, err = crumb(*predict_args(), *FAST)
    assert status == 1
    assert "Column 'day' held numbers or dates in the training table, but row 0" in err


def test_kept_columns_stand_before_the_predictions(crumb, folder):
    test = pd.read_csv("test.csv")
    test.insert(0, "id", [f"{i:03d}" for i in range(len(test))])
    test.to_csv("test.csv", index=False)
    status, _, err = crumb(*predict_args(), *FASTEST, "--no-proba", "--keep", "id,city,animal")
    assert status == 0
    assert "ignored" not in err
    answer = pd.read_csv("out.csv", dtype={"id": str})
    assert list(answer) == ["id", "city", "animal", "prediction"]
    assert answer["id"].tolist() == test["id"].tolist()  # not 0, 1, 2
    assert answer["animal"].tolist() == test["animal"].tolist()
    status, _, err = crumb(*predict_args(), *FASTEST, "--keep", "ids")
    assert status == 1
    assert "--keep: test.csv has no column 'ids'; did you mean 'id'?" in err
    test.rename(columns={"id": "prediction"}).to_csv("test.csv", index=False)
    assert "rename it" in crumb(*predict_args(), *FASTEST, "--keep", "prediction")[2]


def test_csv_gz_and_parquet_give_the_same_predictions(crumb, folder):
    pd.read_csv("train.csv").to_parquet("train.parquet")
    pd.read_csv("test.csv").to_csv("test.csv.gz", index=False)
    assert crumb(*predict_args(), *FASTEST)[0] == 0
    assert (
        crumb(
            *predict_args(train="train.parquet", test="test.csv.gz", out="out.parquet"), *FASTEST
        )[0]
        == 0
    )
    assert crumb(*predict_args(out="out.csv.gz"), *FASTEST)[0] == 0
    expected = pd.read_csv("out.csv")
    assert Path("out.csv.gz").read_bytes()[:2] == b"\x1f\x8b"
    pd.testing.assert_frame_equal(pd.read_csv("out.csv.gz"), expected)
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), expected, check_dtype=False)


def test_folders_of_csv_give_the_same_predictions(crumb, folder):
    for name in ("train", "test"):
        Path(name).mkdir()
        table = pd.read_csv(f"{name}.csv")
        table[:70].to_csv(f"{name}/a.csv", index=False)
        table[70:].to_csv(f"{name}/b.csv.gz", index=False)
    assert crumb(*predict_args())[0] == 0
    assert crumb(*predict_args(train="train", test="test/*", out="o.csv"))[0] == 0
    assert Path("o.csv").read_bytes() == Path("out.csv").read_bytes()
    Path("train/b.csv.gz").write_text("no gzip\n")
    status, _, err = crumb(*predict_args(train="train"))
    assert status == 1
    assert err.startswith(f"crumb: error: {Path('train/b.csv.gz')} cannot be read")


def test_columns_are_found_by_name(crumb, folder):
    crumb(*predict_args(), *FAST)
    expected = Path("out.csv").read_text()
    test = pd.read_csv("test.csv").drop(columns="animal")
    test.assign(colour="red")[["price", "colour", "city", "b", "a"]].to_csv("test.csv", index=False)
    status, out, err = crumb(*predict_args(), *FAST)
    assert status == 0
    assert Path("out.csv").read_text() == expected
    assert "ignored: 'colour'" in err
    assert "accuracy" not in out  # without the target in the test table there is nothing to score


def test_no_proba_leaves_the_probabilities_out(crumb, folder):
    crumb(*predict_args(), *FASTEST, "--no-proba")
    assert list(pd.read_csv("out.csv")) == ["prediction"]


def test_the_task_can_be_said(crumb, folder):
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(name)
        table.assign(price=table["price"].round().astype(int)).to_csv(name, index=False)
    _, out, err = crumb(*predict_args("price"), *FASTEST, "--task", "regression", "--json")
    assert json.loads(out)["task"] == "regression"
    assert "--task" not in err
    _, out, _ = crumb(*predict_args("price"), *FASTEST, "--json")
    assert json.loads(out)["task"] == "classification"


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["x", "y", None], "classification"),
        ([True, False, True], "classification"),
        (pd.Categorical([1.5, 2.5, 1.5]), "classification"),
        ([1, 2, 3], "classification"),
        ([1.0, 2.0, None], "classification"),
        (list(range(20)), "classification"),
        (list(range(21)), "regression"),
        ([0.5, 1.0, 2.0], "regression"),
    ],
)
def test_the_task_is_inferred_from_the_target(values, task):
    assert infer_task(pd.Series(values))[0] == task


def test_training_rows_without_a_target_are_dropped_only_when_asked(crumb, folder):
    table = make_table(200, 0).assign(animal=lambda t: (t["animal"] == "cat").astype(float))
    table.loc[:4, "animal"] = None
    table.to_csv("train.csv", index=False)
    status, _, err = crumb(*predict_args(), *FASTEST)
    assert status == 1
    assert "missing in 5 of 200 rows" in err
    assert "--drop-missing-target" in err
    assert not Path("out.csv").exists()
    status, _, err = crumb(*predict_args(), *FASTEST, "--drop-missing-target")
    assert status == 0
    assert "5 rows of train.csv" in err
    # The gap had made floats of the classes; the user never wrote 1.0.
    assert list(pd.read_csv("out.csv")) == ["prediction", "probability_0", "probability_1"]


def test_codes_keep_their_leading_zeros(crumb, folder):
    """ "007" and "7" are different codes, also where the test file has only digits there."""
    rng = np.random.default_rng(0)
    code = rng.choice(["007", "7", "A1"], 200)
    pd.DataFrame(
        {"a": rng.normal(size=200), "code": code, "y": np.where(code == "007", "p", "q")}
    ).to_csv("train.csv", index=False)
    pd.DataFrame({"a": [0.0, 0.1, 0.0, 0.1], "code": ["007", "007", "7", "7"]}).to_csv(
        "test.csv", index=False
    )
    assert crumb(*predict_args("y"), *FASTEST)[0] == 0
    assert list(pd.read_csv("out.csv")["prediction"]) == ["p", "p", "q", "q"]


def test_classes_that_training_has_not_seen_count_as_wrong(crumb, folder):
    test = pd.read_csv("test.csv")
    test.loc[0, "animal"] = "emu"
    test.to_csv("test.csv", index=False)
    _, out, _ = crumb(*predict_args(), *FASTEST, "--json")
    score = json.loads(out)["score"]
    assert score["accuracy"] == pytest.approx(
        (pd.read_csv("out.csv")["prediction"] == test["animal"]).mean()
    )
    assert score["roc_auc"] is None


def test_json_is_all_there_is_on_standard_output(crumb, folder):
    _, out, _ = crumb(*predict_args(), *FAST, "--json")
    answer = json.loads(out)
    assert answer["rows"] == 30
    assert answer["contexts"] == 3
    assert answer["context_size"] == 60
    assert answer["out"] == "out.csv"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read"),
        (b"\n\n", "cannot be read"),
        (b"a,b,city,animal,price\n", "has no rows"),
        (b"a,b,city,animal,price\n1,2,Rome,cat,3\n", "minimum of 2"),
        (bytes(range(256)) * 20, "cannot be read"),
        (b"a,b\n1,2\n1,2,3,4\n", "line 3"),
        (b"a;b;city;animal;price\n1;2;Rome;cat;3\n", "separated by commas"),
        (b"animal\ncat\ndog\n", "no column besides the target"),
        (b"a,b,city,animal,price\n1,2,Rome,,3\n1,2,Rome,,3\n", "missing in all 2 rows"),
    ],
)
def test_bad_training_files_get_one_sentence(content, told, crumb, folder):
    Path("train.csv").write_bytes(content)
    status, out, err = crumb(*predict_args())
    assert status == 1
    assert out == ""
    assert told in err
    error = [line for line in err.splitlines() if line.startswith("crumb: error: ")]
    assert error == err.splitlines()[-1:]
    assert "Traceback" not in err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("name", ["train.parquet", "train.csv.gz"])
def test_truncated_files_get_one_sentence(name, crumb, folder):
    whole = make_table(200, 0)
    whole.to_parquet(name) if name.endswith("parquet") else whole.to_csv(name, index=False)
    Path(name).write_bytes(Path(name).read_bytes()[:-20])
    status, _, err = crumb(*predict_args(train=name))
    assert status == 1
    assert err.startswith(f"crumb: error: {name} cannot be read")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (predict_args(train="nowhere.csv"), "No such file or directory: nowhere.csv"),
        (predict_args(train="train.xlsx"), "must end in .csv, .csv.gz or .parquet"),
        (predict_args(out="out.txt"), "must end in .csv, .csv.gz or .parquet"),
        (predict_args("Animl"), "did you mean 'animal'?"),
        (predict_args("PRICE"), "did you mean 'price'?"),
        (predict_args("xyz"), "it has 'a', 'b', 'city', 'animal', 'price'"),
        ([*predict_args(), "--strategy", "magic"], "Unknown strategy 'magic'"),
        ([*predict_args(), "--model", "gpt"], "Unknown model 'gpt'"),
        ([*predict_args(), "--context-size", "0"], "context_size"),
        ([*predict_args(), "--categorical-features", "zoo"], "'zoo'"),
        ([*predict_args(), "--task", "regression"], "numbers as labels"),
        ([*predict_args(), "--quantiles", "0.5"], "--quantiles are for regression"),
        ([*predict_args("price"), "--no-proba"], "--no-proba is for classification"),
        ([*predict_args(), "--plan", "nowhere.crumb"], "nowhere.crumb"),
        (predict_args(out="train.csv"), "one of the inputs"),
    ],
)
def test_mistakes_get_one_sentence_and_status_1(args, told, crumb, folder):
    before = Path("train.csv").read_bytes()
    status, out, err = crumb(*args)
    assert status == 1
    assert out == ""
    assert told in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("crumb: error: ")
    assert Path("train.csv").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["test.csv", "train.csv"]


def test_missing_columns_are_named(crumb, folder):
    pd.read_csv("test.csv").drop(columns=["b", "city"]).to_csv("test.csv", index=False)
    status, _, err = crumb(*predict_args())
    assert status == 1
    assert "lacks 2 of the columns of train.csv: 'b', 'city'" in err


def test_tables_without_a_common_column_are_refused(crumb, folder):
    pd.DataFrame({"x": [1], "y": [2]}).to_csv("test.csv", index=False)
    status, _, err = crumb(*predict_args())
    assert status == 1
    assert "no column in common" in err


def test_where_the_output_goes_is_checked_before_anything_is_read(crumb, folder, monkeypatch):
    Path("file").write_text("")
    Path("sub").mkdir()
    for out, told in (
        ("file/out.csv", "not a folder"),
        ("sub", "must end in"),
        ("sub.csv", "is a folder"),
    ):
        Path("sub.csv").mkdir(exist_ok=True)
        status, _, err = crumb(*predict_args(train="nowhere.csv", out=out))
        assert status == 1
        assert told in err
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    status, _, err = crumb(*predict_args(train="nowhere.csv", out="sub/out.csv"))
    assert status == 1
    assert "no permission to write" in err


def test_missing_folders_are_made(crumb, folder):
    assert crumb(*predict_args(out="new/deep/out.csv"), *FASTEST)[0] == 0
    assert Path("new/deep/out.csv").is_file()


@pytest.fixture
def small_files():
    """The system refuses files over 100 bytes, as a full disk would."""
    resource = pytest.importorskip("resource", reason="Windows has no limits on files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("out", ["out.csv", "out.csv.gz", "out.parquet"])
def test_an_output_that_does_not_fit_leaves_the_older_one(out, crumb, folder, request):
    Path(out).write_text("older")
    request.getfixturevalue("small_files")
    status, _, err = crumb(*predict_args(out=out), *FASTEST)
    assert status == 1
    assert os.strerror(errno.EFBIG) in err
    assert Path(out).read_text() == "older"
    assert leftovers(folder) == []


def test_bools_with_gaps_in_features_and_target(crumb, folder):
    rng = np.random.default_rng(0)
    flag = rng.random(80) < 0.5
    table = pd.DataFrame({"flag": flag, "x": rng.normal(size=80), "y": flag})
    holes = table.astype({"flag": object, "y": object})
    holes.loc[[3, 5], "flag"] = None
    holes.loc[[7], "y"] = None
    holes.to_csv("train.csv", index=False)
    table.drop(columns="y").to_csv("test.csv", index=False)
    status, _, err = crumb(*predict_args("y"), *FASTEST, "--drop-missing-target")
    assert status == 0, err
    assert (pd.read_csv("out.csv")["prediction"].to_numpy() == flag).mean() > 0.9
