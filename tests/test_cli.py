"""The ``crumb`` command, from the outside: what it prints, writes, refuses and leaves behind."""

from __future__ import annotations

import argparse
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crumb import CrumbClassifier, CrumbRegressor, Plan, select_contexts
from crumb.cli import build_parser, main
from crumb.cli.options import parameters
from crumb.cli.tables import infer_task
from crumb.settings import paper_configuration

FAST = ["--context-size", "60", "--n-clusters", "3"]
PNG = b"\x89PNG"


def make_table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, rows))
    city = rng.choice(["Rome", "Oslo", "Lima"], rows)
    animal = np.where(a + (city == "Rome") > 0, "cat", "dog")
    return pd.DataFrame({"a": a, "b": b, "city": city, "animal": animal, "price": 3 * b + a})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with train.csv and test.csv."""
    monkeypatch.chdir(tmp_path)
    make_table(200, 0).to_csv("train.csv", index=False)
    make_table(30, 1).to_csv("test.csv", index=False)
    return tmp_path


@pytest.fixture
def crumb(capsys):
    """Run the command in this process: exit status, standard output, standard error."""

    def run(*argv):
        status = main([str(word) for word in argv])
        return (status, *capsys.readouterr())

    return run


def predict_args(target="animal", out="out.csv", train="train.csv", test="test.csv"):
    return ["predict", "--train", train, "--test", test, "--target", target, "--out", out]


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".part"))


# --- the command itself


def test_help_is_quick_and_names_every_command():
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "crumb", "--help"], capture_output=True, text=True)
    assert time.perf_counter() - started < 2  # 0.1 s on an idle machine
    assert done.returncode == 0
    for command in ("demo", "predict", "plan", "models"):
        assert command in done.stdout


def test_building_the_parser_imports_nothing_heavy():
    code = (
        "import sys; from crumb.cli import build_parser; build_parser();"
        "print(sorted({'torch', 'sklearn', 'pandas', 'numpy', 'matplotlib', 'tqdm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version(capsys):
    from crumb import __version__

    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"crumb {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["predict"], "--train"),
        ([*predict_args(), "--context-size", "many"], "'many'"),
        ([*predict_args(), "--n-clusters", "0.5"], "'0.5'"),
        ([*predict_args(), "--bandwidth", "wide"], "'wide'"),
        ([*predict_args(), "--quantiles", "0.1,2"], "'0.1,2'"),
        ([*predict_args(), "--tas", "regression"], "--tas"),  # no guessing of shortened options
        (["plan", "--train", "a.csv", "--test", "b.csv", "--compare", "--out", "p.crumb"], "--compare"),
        (["plan", "--train", "a.csv", "--test", "b.csv", "--compare", "--strategy", "mmd"], "--compare"),
    ],
)
def test_wrong_usage_exits_with_2(argv, told, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert told in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "crumb", "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""


# --- options


def parsed(*argv):
    return build_parser().parse_args([*predict_args(), *argv])


def test_options_that_are_not_given_are_left_to_the_estimator():
    assert parameters(parsed()) == {"verbose": 0}


def test_every_option_reaches_its_parameter():
    argv = (
        "--strategy uniform --model tabicl-v2 --n-clusters none --context-size 0.25 --kernel rff "
        "--rff-dim 32 --herd-batch auto --bandwidth 2.5 --early-stopping --min-per-class 2 --n-estimators 4 "
        "--device cpu --random-state 7 --n-jobs 2 --categorical-features a,city"
    )
    chosen = parameters(parsed(*argv.split()))
    assert chosen == {
        "strategy": "uniform", "model": "tabicl-v2", "n_clusters": None, "context_size": 0.25,
        "kernel": "rff", "rff_dim": 32, "herd_batch": "auto", "bandwidth": 2.5, "early_stopping": True,
        "min_per_class": 2, "n_estimators": 4, "device": "cpu", "random_state": 7, "n_jobs": 2,
        "categorical_features": ["a", "city"], "verbose": 0,
    }  # fmt: skip
    assert set(chosen) <= set(CrumbClassifier().get_params())


def test_counts_stay_counts_and_shares_stay_shares():
    assert isinstance(parameters(parsed("--context-size", "1"))["context_size"], int)
    assert isinstance(parameters(parsed("--context-size", "1.0"))["context_size"], float)


def test_paper_is_a_base_that_options_change():
    chosen = parameters(parsed("--paper", "--n-clusters", "5"))
    assert chosen == {**paper_configuration(), "n_clusters": 5, "verbose": 0}


def test_progress_bars_show_on_a_terminal_unless_quiet(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert parameters(parsed())["verbose"] == 1
    assert parameters(parsed("--quiet"))["verbose"] == 0


# --- models


def test_models_says_what_is_here_and_where_the_rest_would_go(crumb, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path))
    (tmp_path / "tabicl-classifier-v2-20260212.ckpt").write_bytes(b"weights")
    status, out, _ = crumb("models", "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["model_dir"] == str(tmp_path)
    found = {(model["model"], model["task"]): model for model in answer["models"]}
    assert found["embedded", "classification"]["present"]
    assert Path(found["embedded", "regression"]["file"]).is_file()
    assert found["tabicl-v2", "classification"]["present"]
    assert not found["tabicl-v2", "regression"]["present"]
    assert found["tabicl-v2", "regression"]["file"] == str(tmp_path / "tabicl-regressor-v2-20260212.ckpt")
    assert found["tabpfn-v2", "classification"]["licence"]
    assert found["tabpfn-v2", "classification"]["window"] == 10_000


def test_models_prints_a_line_a_model(crumb):
    from crumb.pfn.weights import CARDS

    _, out, _ = crumb("models")
    lines = out.splitlines()
    assert lines[0].split() == ["model", "task", "window", "licence", "present", "file"]
    assert [line.split()[:2] for line in lines[1 : len(CARDS) + 1]] == [[c.name, c.task] for c in CARDS]


def test_models_needs_no_torch():
    code = "import sys; from crumb.cli import main; main(['models']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# --- predict: answers


def test_classification_gives_what_the_library_gives(crumb, folder):
    status, out, err = crumb(*predict_args(), *FAST)
    answer = pd.read_csv("out.csv")
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = CrumbClassifier(context_size=60, n_clusters=3).fit(train.drop(columns="animal"), train["animal"])
    proba = model.predict_proba(test.drop(columns="animal"))
    assert status == 0
    assert list(answer) == ["prediction", "probability_cat", "probability_dog"]
    np.testing.assert_allclose(answer.iloc[:, 1:], proba, atol=1e-6)
    assert (answer["prediction"] == model.classes_[proba.argmax(axis=1)]).all()
    accuracy = (answer["prediction"] == test["animal"]).mean()
    assert f"accuracy {accuracy:.4f}, roc_auc" in out
    assert "classification (--task overrides)" in err


def test_regression_with_quantiles_gives_what_the_library_gives(crumb, folder):
    status, out, _ = crumb(*predict_args("price"), *FAST, "--quantiles", "0.1,0.9", "--json")
    answer = pd.read_csv("out.csv")
    train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
    model = CrumbRegressor(context_size=60, n_clusters=3).fit(train.drop(columns="price"), train["price"])
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


def test_csv_gz_and_parquet_give_the_same_predictions(crumb, folder):
    pd.read_csv("train.csv").to_parquet("train.parquet")
    pd.read_csv("test.csv").to_csv("test.csv.gz", index=False)
    assert crumb(*predict_args(), *FAST)[0] == 0
    assert crumb(*predict_args(train="train.parquet", test="test.csv.gz", out="out.parquet"), *FAST)[0] == 0
    assert crumb(*predict_args(out="out.csv.gz"), *FAST)[0] == 0
    expected = pd.read_csv("out.csv")
    assert Path("out.csv.gz").read_bytes()[:2] == b"\x1f\x8b"
    pd.testing.assert_frame_equal(pd.read_csv("out.csv.gz"), expected)
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), expected, check_dtype=False)


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
    crumb(*predict_args(), *FAST, "--no-proba")
    assert list(pd.read_csv("out.csv")) == ["prediction"]


def test_the_task_can_be_said(crumb, folder):
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(name)
        table.assign(price=table["price"].round().astype(int)).to_csv(name, index=False)
    _, out, err = crumb(*predict_args("price"), *FAST, "--task", "regression", "--json")
    assert json.loads(out)["task"] == "regression"
    assert "--task" not in err
    _, out, _ = crumb(*predict_args("price"), *FAST, "--json")
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
    status, _, err = crumb(*predict_args(), *FAST)
    assert status == 1
    assert "missing in 5 of 200 rows" in err
    assert "--drop-missing-target" in err
    assert not Path("out.csv").exists()
    status, _, err = crumb(*predict_args(), *FAST, "--drop-missing-target")
    assert status == 0
    assert "5 rows of train.csv" in err
    # The gap had made floats of the classes; the user never wrote 1.0.
    assert list(pd.read_csv("out.csv")) == ["prediction", "probability_0", "probability_1"]


def test_codes_keep_their_leading_zeros(crumb, folder):
    """ "007" and "7" are different codes, also where the test file has nothing but digits in that column."""
    rng = np.random.default_rng(0)
    code = rng.choice(["007", "7", "A1"], 200)
    pd.DataFrame({"a": rng.normal(size=200), "code": code, "y": np.where(code == "007", "p", "q")}).to_csv(
        "train.csv", index=False
    )
    pd.DataFrame({"a": [0.0, 0.1, 0.0, 0.1], "code": ["007", "007", "7", "7"]}).to_csv("test.csv", index=False)
    assert crumb(*predict_args("y"), *FAST)[0] == 0
    assert list(pd.read_csv("out.csv")["prediction"]) == ["p", "p", "q", "q"]


def test_classes_that_training_has_not_seen_count_as_wrong(crumb, folder):
    test = pd.read_csv("test.csv")
    test.loc[0, "animal"] = "emu"
    test.to_csv("test.csv", index=False)
    _, out, _ = crumb(*predict_args(), *FAST, "--json")
    score = json.loads(out)["score"]
    assert score["accuracy"] == pytest.approx((pd.read_csv("out.csv")["prediction"] == test["animal"]).mean())
    assert score["roc_auc"] is None


def test_json_is_all_there_is_on_standard_output(crumb, folder):
    _, out, _ = crumb(*predict_args(), *FAST, "--json")
    answer = json.loads(out)
    assert answer["rows"] == 30
    assert answer["contexts"] == 3
    assert answer["context_size"] == 60
    assert answer["out"] == "out.csv"


# --- predict: refusals and accidents


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
    for out, told in (("file/out.csv", "not a folder"), ("sub", "must end in"), ("sub.csv", "is a folder")):
        Path("sub.csv").mkdir(exist_ok=True)
        status, _, err = crumb(*predict_args(train="nowhere.csv", out=out))
        assert status == 1
        assert told in err
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    status, _, err = crumb(*predict_args(train="nowhere.csv", out="sub/out.csv"))
    assert status == 1
    assert "no permission to write" in err


def test_missing_folders_are_made(crumb, folder):
    assert crumb(*predict_args(out="new/deep/out.csv"), *FAST)[0] == 0
    assert Path("new/deep/out.csv").is_file()


@pytest.fixture
def small_files():
    """The system refuses files over 100 bytes, as a full disk would."""
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
    status, _, err = crumb(*predict_args(out=out), *FAST)
    assert status == 1
    assert os.strerror(errno.EFBIG) in err
    assert Path(out).read_text() == "older"
    assert leftovers(folder) == []


@pytest.mark.parametrize("seconds", [0.5, 5])  # while the libraries load, and while the network runs
def test_interrupting_leaves_nothing_behind(seconds, folder):
    make_table(4_000, 0).to_csv("train.csv", index=False)
    make_table(3_000, 1).to_csv("test.csv", index=False)
    Path("out.csv").write_text("older")
    slow = ["--context-size", "3000", "--n-estimators", "32"]
    process = subprocess.Popen(
        [sys.executable, "-m", "crumb", *predict_args(), *slow],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "classification" in process.stderr.readline()  # the tables are read: the long work begins
    time.sleep(seconds)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "crumb: interrupted"
    assert "Traceback" not in err
    assert Path("out.csv").read_text() == "older"
    assert sorted(path.name for path in folder.iterdir()) == ["out.csv", "test.csv", "train.csv"]


def test_an_interrupt_inside_a_destructor_is_not_lost(monkeypatch, capsys):
    class Unlucky:
        def __del__(self):
            raise KeyboardInterrupt

    def run(args):
        unlucky = Unlucky()
        del unlucky
        for _ in range(50):
            time.sleep(0.1)

    monkeypatch.setattr(
        "crumb.cli.build_parser", lambda: argparse.Namespace(parse_args=lambda argv: argparse.Namespace(run=run))
    )
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # pytest's own hook comes back afterwards
    started = time.perf_counter()
    assert main([]) == 130
    assert time.perf_counter() - started < 4
    assert capsys.readouterr().err == "crumb: interrupted\n"


def test_warnings_are_notes_of_one_line(crumb, folder):
    status, _, err = crumb(*predict_args(), "--context-size", "5000", "--n-clusters", "2")
    assert status == 0
    assert "crumb: note: context_size=5000 is larger than the pool: all 200 rows are used." in err.splitlines()


def test_debug_shows_the_traceback(folder, monkeypatch):
    monkeypatch.setenv("CRUMB_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(predict_args(train="nowhere.csv"))


# --- plan


def plan_args(*more):
    return ["plan", "--train", "train.csv", "--test", "test.csv", *FAST, *more]


def test_plan_is_the_librarys_plan(crumb, folder):
    status, out, _ = crumb(*plan_args("--out", "plan.crumb", "--picture", "plan.png"))
    assert status == 0
    expected = select_contexts(pd.read_csv("train.csv"), pd.read_csv("test.csv"), context_size=60, n_clusters=3)
    found = Plan.load("plan.crumb")
    assert all((one == other).all() for one, other in zip(found.contexts, expected.contexts, strict=True))
    assert Path("plan.png").read_bytes().startswith(PNG)
    lines = out.splitlines()
    assert lines[0].split() == ["cluster", *expected.summary().columns]
    assert [line.split()[1] for line in lines[1:4]] == [str(n) for n in expected.summary()["queries"]]
    assert lines[4:] == ["plan in plan.crumb", "picture in plan.png"]


def test_plan_as_json(crumb, folder):
    _, out, _ = crumb(*plan_args("--json"))
    answer = json.loads(out)
    assert [row["context"] for row in answer["summary"]] == [60, 60, 60]
    assert sum(row["queries"] for row in answer["summary"]) == 30
    assert answer["settings"]["strategy"] == "mmd"
    assert answer["out"] is None


def test_what_was_not_measured_is_null_in_json_and_a_dash_in_the_table(crumb, folder, monkeypatch):
    monkeypatch.setattr("crumb.evidence.EVIDENCE_VALUES", 0)
    _, out, _ = crumb(*plan_args("--strategy", "uniform", "--json"))
    assert [row["mmd2"] for row in json.loads(out)["summary"]] == [None] * 3
    _, out, _ = crumb(*plan_args("--strategy", "uniform"))
    assert out.splitlines()[1].split()[3] == "–"


def test_the_target_is_no_feature_and_guards_rare_classes(crumb, folder):
    train = make_table(200, 0)
    train["animal"] = "cat"
    train.loc[train["a"].nlargest(3).index, "animal"] = "yak"
    train.to_csv("train.csv", index=False)
    make_table(30, 1).query("a < 0").to_csv("test.csv", index=False)
    args = plan_args("--target", "animal", "--context-size", "10", "--out", "plan.crumb", "--json")
    _, out, _ = crumb(*args, "--min-per-class", "1")
    guarded = Plan.load("plan.crumb")
    assert sum(row["swapped"] for row in json.loads(out)["summary"]) > 0
    assert all((train["animal"].to_numpy()[context] == "yak").any() for context in guarded.contexts)
    # Were the target a feature, the saved plan would not belong to the table that predict makes.
    status, _, _ = crumb(*predict_args(), "--plan", "plan.crumb")
    assert status == 0
    _, out, _ = crumb(*args, "--min-per-class", "0")
    assert sum(row["swapped"] for row in json.loads(out)["summary"]) == 0


def test_predict_uses_a_saved_plan(crumb, folder):
    crumb(*plan_args("--target", "animal", "--out", "plan.crumb"))
    _, out, _ = crumb(*predict_args(), "--plan", "plan.crumb", "--json")
    answer = json.loads(out)
    assert (answer["contexts"], answer["context_size"]) == (3, 60)
    make_table(150, 5).to_csv("train.csv", index=False)
    Path("out.csv").unlink()
    status, _, err = crumb(*predict_args(), "--plan", "plan.crumb")
    assert status == 1
    assert "another pool" in err
    assert not Path("out.csv").exists()


def test_compare_prints_a_line_a_strategy_and_draws(crumb, folder):
    status, out, _ = crumb(*plan_args("--compare", "--json"))
    answer = json.loads(out)
    assert status == 0
    lines = {line["strategy"]: line for line in answer["strategies"]}
    assert list(lines) == ["uniform", "micp", "mmd"]
    assert lines["mmd"]["contexts"] == answer["query_groups"] == 3
    assert {line["rows"] for line in lines.values()} == {60}
    assert lines["mmd"]["mmd2"] < min(lines["uniform"]["mmd2"], lines["micp"]["mmd2"])
    assert answer["picture"] == "crumb-compare.png"
    assert Path("crumb-compare.png").read_bytes().startswith(PNG)


def test_compare_takes_strategies_and_a_picture(crumb, folder):
    status, out, _ = crumb(*plan_args("--compare", "full,knn,mmd", "--picture", "three.svg"))
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["full", "knn", "mmd"]
    assert b"<svg" in Path("three.svg").read_bytes()
    status, _, err = crumb(*plan_args("--compare", "mmd,magic"))
    assert status == 1
    assert "Unknown strategy 'magic'" in err


def test_pictures_of_unknown_kinds_are_refused_before_the_work(crumb, folder):
    status, _, err = crumb(*plan_args("--train", "nowhere.csv", "--picture", "plan.doc"))
    assert status == 1
    assert "must end in .png, .pdf, .svg or .jpg" in err


def test_bools_with_gaps_in_features_and_target(crumb, folder):
    rng = np.random.default_rng(0)
    flag = rng.random(80) < 0.5
    table = pd.DataFrame({"flag": flag, "x": rng.normal(size=80), "y": flag})
    holes = table.astype({"flag": object, "y": object})
    holes.loc[[3, 5], "flag"] = None
    holes.loc[[7], "y"] = None
    holes.to_csv("train.csv", index=False)
    table.drop(columns="y").to_csv("test.csv", index=False)
    status, _, err = crumb(
        "predict",
        "--train",
        "train.csv",
        "--test",
        "test.csv",
        "--target",
        "y",
        "--out",
        "out.csv",
        "--drop-missing-target",
    )
    assert status == 0, err
    assert (pd.read_csv("out.csv")["prediction"].to_numpy() == flag).mean() > 0.9
