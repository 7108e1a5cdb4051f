"""Many runs in worker processes: time-outs, deaths, failures, interruptions cost their own run.

Starting a process costs seconds, so one file of results, made once, is what all others must equal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiment_tables import make_folder, slow, timeless, troubled

from crumb.errors import InvalidInput
from experiments.__main__ import main
from experiments.campaign import Campaign
from experiments.dataset import Source
from experiments.environment import ENVIRONMENT
from experiments.protocol import IDENTITY, Overrides, Run
from experiments.protocols import PROTOCOLS, plan_runs
from experiments.run import OUTCOME
from experiments.sources import chosen, collection
from experiments.store import Store, read_rows
from experiments.worker import Tables

TINY = ["--models", "embedded", "--max-rows", "60", "--queries", "6", "--device", "cpu", "--quiet"]
SOME = [*TINY, "--datasets", "rings,slopes", "--methods", "crumb,uniform", "--seeds", "2"]
needs_proc = pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc (Linux)")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs, one process, never disturbed."""
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    assert main(["run", "main", *SOME, "--out", str(path)]) == 0
    return path


def small_runs(sources: list[Source], **changes: Any) -> list[Run]:
    given = {"models": ("embedded",), "queries": 6, "max_rows": 60, "seeds": 1, **changes}
    return plan_runs(PROTOCOLS["main"], sources, Overrides(**given))


def carry_out(path: Path, sources: list[Source], runs: list[Run], **more: Any) -> None:
    with Store(path, resume=True) as store:
        by_name = {source.name: source for source in sources}
        Campaign(by_name, store, more.pop("timeout", 60.0), "cpu", **more).carry_out(runs)


def children(parent: int) -> Iterator[int]:
    """Processes that this one has started and that still run, as far as Linux tells."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == str(parent) and fields[0] != "Z":
            yield int(status.parent.name)


def test_rows_say_what_was_run_what_came_out_and_where(whole: Path) -> None:
    rows = read_rows(whole)
    assert len(rows) == 2 * 2 * 2
    for row in rows:
        assert tuple(row) == (*IDENTITY, *OUTCOME, *ENVIRONMENT)
        assert row["status"] == "ok"
        assert row["device"] == "cpu"
        assert row["torch"]
        assert row["machine"]
        assert row["when"]


def test_a_run_that_hangs_dies_or_fails_costs_itself_only(tmp_path: Path) -> None:
    sources = collection("synthetic")[:1]
    started, path = time.monotonic(), tmp_path / "r.jsonl"
    carry_out(path, sources, small_runs(sources), execute=troubled, timeout=5.0)
    found = {row["method"]: (row["status"], row["message"]) for row in read_rows(path)}
    assert found == {
        "full": ("error", "ZeroDivisionError: by nought"),
        "knn": ("timeout", "The run took longer than 5 s."),
        "crumb": ("ok", None),
        "micp": ("error", "The process ended by itself (exit code 7), as when memory runs out."),
        "uniform": ("ok", None),
    }
    assert time.monotonic() - started < 120


def test_what_is_there_is_not_run_again(whole: Path) -> None:
    before = whole.read_bytes()
    sources = chosen(collection("synthetic"), ["rings", "slopes"])
    runs = small_runs(sources, methods=("crumb", "uniform"), seeds=2)
    carry_out(whole, sources, runs)
    assert whole.read_bytes() == before


@needs_proc
def test_an_interruption_leaves_no_process_and_a_file_that_can_be_resumed(
    whole: Path, tmp_path: Path
) -> None:
    sources = chosen(collection("synthetic"), ["rings", "slopes"])
    runs = small_runs(sources, methods=("crumb", "uniform"), seeds=2)
    path = tmp_path / "r.jsonl"

    def interrupt() -> None:
        while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    already = set(children(os.getpid()))
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        carry_out(path, sources, runs, execute=slow)
    assert not [pid for pid in set(children(os.getpid())) - already if not _is_tracker(pid)]
    finished = timeless(read_rows(path))
    assert 2 <= len(finished) < len(runs)
    assert all(row in timeless(read_rows(whole)) for row in finished)


def _is_tracker(pid: int) -> bool:
    """Python's own helper for spawned processes lives as long as the process that needed it."""
    return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()


@needs_proc
def test_kill_and_resume_with_two_jobs_give_the_same_rows(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-m", "experiments", "run", "main", *SOME, "--out", str(path)]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not (path.exists() and path.read_bytes().count(b"\n") >= 1):
        assert running.poll() is None
        time.sleep(0.01)
    workers = list(children(running.pid))
    assert workers
    running.kill()
    running.communicate()
    finished = read_rows(path)
    assert 1 <= len(finished) < 8
    with path.open("ab") as file:  # the worst moment: in the middle of a line
        file.write(b'{"protocol": "main", "dataset": "ri')
    assert main(["run", "main", *SOME, "--out", str(path), "--resume", "--jobs", "2"]) == 0
    resumed = read_rows(path)
    assert resumed[: len(finished)] == finished
    assert timeless(resumed) == timeless(read_rows(whole))
    alive = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    assert not alive, "a worker outlived its parent"


def test_resume_adds_what_is_lacking(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(shutil.copy(whole, tmp_path / "r.jsonl"))
    assert main(["run", "main", *SOME, "--out", path]) == 1
    assert "already holds results" in capsys.readouterr().err
    assert main(["run", "main", *SOME, "--out", path, "--resume"]) == 0
    said = f"8 runs (8 were there before): nothing left to do; rows in {path}\n"
    assert capsys.readouterr().out == said
    more = [*TINY, "--datasets", "rings,board", "--methods", "uniform,micp", "--seeds", "1"]
    assert main(["run", "main", *more, "--out", path, "--resume"]) == 0
    assert capsys.readouterr().out.startswith("4 runs (1 were there before): 3 ok")
    assert len(read_rows(path)) == 8 + 3


def test_broken_tables_models_and_methods_cost_their_runs_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], offline: None
) -> None:
    path = tmp_path / "r.jsonl"
    models = f"embedded,{tmp_path / 'no.ckpt'},tabicl-v2"
    command = ["run", "main", *TINY, "--models", models, "--seeds", "1", "--out", str(path)]
    command += ["--data", str(make_folder(tmp_path / "tables"))]
    assert main([*command, "--methods", "uniform,crumb+strategy=nonsense"]) == 0
    out, err = capsys.readouterr()
    rows = read_rows(path)
    assert len(rows) == 5 * 3 * 2
    assert out == f"30 runs: 2 ok, 18 error, 10 missing; rows in {path}\n"
    assert not any("\n" in (row["message"] or "") for row in rows)
    for row in rows:
        dataset, model, method = row["dataset"], row["model"], row["method"]
        if dataset == "gone":
            assert row["status"] == "missing"
        elif dataset in ("torn", "untold"):
            assert row["status"] == "error"
        elif model == "tabicl-v2":
            assert row["status"] == "missing"
        else:
            fine = model == "embedded" and method == "uniform"
            assert row["status"] == ("ok" if fine else "error")
    assert "not run: The weights of 'tabicl-v2'" in err
    assert "1 × kinds, embedded, crumb+strategy=nonsense: " in err
    said = {row["dataset"]: row["message"] for row in rows if row["method"] == "uniform"}
    assert "torn.parquet cannot be read as Parquet" in said["torn"]
    assert "The table untold has no column 'answer'" in said["untold"]
    assert "Traceback" not in err


def test_a_worker_keeps_few_tables_and_tries_a_broken_one_once(tmp_path: Path) -> None:
    made = collection("synthetic")
    tables = Tables(most=1)
    first = tables.get(made[0])
    assert tables.get(made[0]) is first
    tables.get(made[1])
    assert tables.get(made[0]) is not first
    _, prices, torn, _, _ = collection(str(make_folder(tmp_path)))
    with pytest.raises(InvalidInput):
        tables.get(torn)
    torn.path.write_bytes(prices.path.read_bytes())  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput):
        tables.get(torn)
