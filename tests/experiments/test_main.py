"""``python -m experiments`` from the outside: what it lists and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_tables import make_folder

from experiments.__main__ import main
from experiments.openml import TABARENA

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run the command in this process: exit status, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRUMB_DATA_DIR", str(tmp_path / "fetched"))

    def run(*argv: object) -> tuple[int, str, str]:
        status = main([*map(str, argv)])
        return (status, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maim"], "Unknown protocol 'maim'"),
        (["main", "--datasets", "tides"], "no data set 'tides'"),
        (["main", "--methods", "guess"], "Unknown method 'guess'"),
        (["main", "--data", "nowhere"], "needs an index.json"),
        (["main", "--device", "abacus"], "Unknown device"),
        (["main", "--models", "tabicl-v1", "--datasets", "slopes"], "None of the models does"),
        (
            ["consistency", "--models", "tabicl-v1"],
            "None of the models is on this machine (tabicl-v1)",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    command: Command, tmp_path: Path, offline: None, arguments: list[str], message: str
) -> None:
    status, out, err = command("run", *arguments, "--out", "r.jsonl")
    assert (status, out) == (1, "")
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    "arguments", [["--seeds", "0"], ["--retry-failed"], ["--timeout", "-1"], ["--jobs", "many"]]
)
def test_wrong_options_are_usage_errors(command: Command, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command("run", "main", "--out", "r.jsonl", *arguments)
    assert end.value.code == 2


def test_tables_are_listed_with_what_they_cost(command: Command, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tables")
    status, out, _ = command("datasets", "--data", folder, "--json")
    assert status == 0
    listed = json.loads(out)
    kinds, _, torn, *_ = listed["datasets"]
    assert (kinds["rows"], kinds["columns"], kinds["here"]) == (119, 3, "yes")
    assert kinds["passes"] == 1 + 24 + 20 + 10 + 1  # full, kNN, CRUMB, MICP, uniform
    assert torn["here"].startswith("no: torn.parquet cannot be read")
    assert torn["passes"] is None
    assert listed["tabarena_missing"] == [entry.name for entry in TABARENA]


def test_what_could_be_had_is_listed_without_any_data(command: Command) -> None:
    status, out, _ = command("datasets")
    assert status == 0
    assert "airfoil_self_noise" in out
    assert "OpenML 23512" in out
    assert "local-rules" in out
    assert "no: not fetched" in out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from experiments.__main__ import build_parser; build_parser().format_help();"
        "print([m for m in ('torch', 'sklearn', 'pandas', 'numpy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
