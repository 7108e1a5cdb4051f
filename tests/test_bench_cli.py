"""``crumb bench`` from the outside: what it lists, runs, refuses and leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_tables import make_folder, timeless

from crumb.bench.environment import ENVIRONMENT
from crumb.bench.openml import TABARENA
from crumb.bench.protocol import IDENTITY
from crumb.bench.run import OUTCOME
from crumb.bench.store import read_rows
from crumb.cli import main

Crumb = Callable[..., tuple[int, str, str]]
TINY = ["--models", "embedded", "--seeds", "1", "--max-rows", "60", "--queries", "8", "--device", "cpu"]


@pytest.fixture
def crumb(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crumb:
    """Run the command in this process: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRUMB_DATA_DIR", str(tmp_path / "fetched"))

    def run(*argv: object) -> tuple[int, str, str]:
        status = main(["bench", *map(str, argv)])
        return (status, *capsys.readouterr())

    return run


def test_a_protocol_from_end_to_end(crumb: Crumb) -> None:
    status, out, err = crumb("run", "main", *TINY, "--out", "r.jsonl")
    assert (status, err) == (0, "")
    assert out == "30 runs: 30 ok; rows in r.jsonl\n"
    rows = read_rows("r.jsonl")
    assert len(rows) == 6 * 5
    assert all(tuple(row) == (*IDENTITY, *OUTCOME, *ENVIRONMENT) for row in rows)
    status, out, _ = crumb("run", "main", *TINY, "--out", "again.jsonl", "--jobs", "2", "--json")
    assert json.loads(out) == {"runs": 30, "done_before": 0, "ok": 30, "out": "again.jsonl"}
    assert timeless(rows) == timeless(read_rows("again.jsonl"))


def test_resume_adds_what_is_lacking(crumb: Crumb) -> None:
    first = ["--datasets", "board", "--methods", "uniform,full", "--out", "r.jsonl"]
    assert crumb("run", "main", *TINY, *first)[0] == 0
    status, _, err = crumb("run", "main", *TINY, *first)
    assert status == 1
    assert "already holds results" in err
    status, out, _ = crumb("run", "main", *TINY, *first, "--resume")
    assert (status, out) == (0, "2 runs (2 were there before): nothing left to do; rows in r.jsonl\n")
    more = ["--datasets", "board,slopes", "--methods", "uniform,micp", "--out", "r.jsonl"]
    status, out, _ = crumb("run", "main", *TINY, *more, "--resume")
    assert out.startswith("4 runs (1 were there before): 3 ok")
    assert len(read_rows("r.jsonl")) == 5


def test_broken_tables_are_told_and_the_rest_is_run(crumb: Crumb, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tables")
    status, out, err = crumb("run", "main", *TINY, "--data", folder, "--methods", "uniform", "--out", "r.jsonl")
    assert status == 0
    assert out == "5 runs: 2 ok, 2 error, 1 missing; rows in r.jsonl\n"
    assert "1 × torn, embedded, uniform: torn.parquet cannot be read as Parquet" in err
    assert "1 × untold, embedded, uniform: The table untold has no column 'answer'" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maim"], "Unknown protocol 'maim'"),
        (["main", "--datasets", "tides"], "no data set 'tides'"),
        (["main", "--methods", "guess"], "Unknown method 'guess'"),
        (["main", "--data", "nowhere"], "needs an index.json"),
        (["main", "--device", "abacus"], "Unknown device"),
        (["main", "--models", "tabicl-v1", "--datasets", "slopes"], "None of the models does"),
        (["consistency", "--models", "tabicl-v1"], "None of the models is on this machine (tabicl-v1)"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    crumb: Crumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "models"))
    status, out, err = crumb("run", *arguments, "--out", "r.jsonl")
    assert (status, out) == (1, "")
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--retry-failed"], ["--timeout", "-1"], ["--jobs", "many"]])
def test_wrong_options_are_usage_errors(crumb: Crumb, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        crumb("run", "main", "--out", "r.jsonl", *arguments)
    assert end.value.code == 2


def test_a_model_that_is_not_here_is_listed_as_not_run(
    crumb: Crumb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setenv("CRUMB_MODEL_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    some = ["--models", "embedded,tabicl-v2", "--datasets", "board", "--methods", "uniform", "--out", "r.jsonl"]
    status, out, err = crumb("run", "main", *TINY, *some)
    assert status == 0
    assert out == "2 runs: 1 ok, 1 missing; rows in r.jsonl\n"
    assert "not run: The weights of 'tabicl-v2'" in err
    assert {row["model"]: row["status"] for row in read_rows("r.jsonl")} == {"embedded": "ok", "tabicl-v2": "missing"}


def test_tables_are_listed_with_what_they_cost(crumb: Crumb, tmp_path: Path) -> None:
    status, out, _ = crumb("datasets", "--data", make_folder(tmp_path / "tables"), "--json", "--device", "cpu")
    assert status == 0
    listed = json.loads(out)
    kinds, _, torn, *_ = listed["datasets"]
    assert (kinds["rows"], kinds["columns"], kinds["here"]) == (119, 3, "yes")
    assert kinds["passes"] == 1 + 24 + 20 + 10 + 1  # full, kNN, CRUMB, MICP, uniform
    assert kinds["seconds"] >= 0
    assert torn["here"].startswith("no: torn.parquet cannot be read")
    assert (torn["passes"], torn["seconds"]) == (None, None)
    assert listed["tabarena_missing"] == [entry[0] for entry in TABARENA]


def test_what_could_be_had_is_listed_without_any_data(crumb: Crumb) -> None:
    status, out, _ = crumb("datasets", "--no-times")
    assert status == 0
    assert "airfoil_self_noise" in out
    assert "OpenML 23512" in out
    assert "local-rules" in out
    assert "no: not fetched" in out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from crumb.cli import build_parser; build_parser().format_help();"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'numpy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
