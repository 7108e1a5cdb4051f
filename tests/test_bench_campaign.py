"""Many runs in worker processes: time-outs, deaths, failures, interruptions. Each costs its own run only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_tables import make_folder, slow, timeless, troubled

from crumb.bench.campaign import Campaign
from crumb.bench.dataset import Source, collection
from crumb.bench.protocol import Run, Wishes
from crumb.bench.protocols import PROTOCOLS, plan_runs
from crumb.bench.store import Store, read_rows
from crumb.bench.worker import Tables
from crumb.errors import InvalidInput


def small_runs(sources: list[Source], **wishes: Any) -> list[Run]:
    given = {"models": ("embedded",), "seeds": 1, "queries": 8, "max_rows": 60, **wishes}
    return plan_runs(PROTOCOLS["main"], sources, Wishes(**given))


def carry_out(path: Path, sources: list[Source], runs: list[Run], **more: Any) -> list[dict[str, Any]]:
    with Store(path, resume=True) as store:
        by_name = {source.name: source for source in sources}
        Campaign(by_name, store, more.pop("timeout", 60.0), "cpu", **more).carry_out(runs)
    return read_rows(path)


def children() -> Iterator[int]:
    """Processes that this one has started and that still run, so far as Linux tells."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == str(os.getpid()) and fields[0] != "Z":
            yield int(status.parent.name)


def test_a_run_that_hangs_dies_or_fails_costs_itself_only(tmp_path: Path) -> None:
    sources = collection("synthetic")[:1]
    started = time.monotonic()
    rows = carry_out(tmp_path / "r.jsonl", sources, small_runs(sources), execute=troubled, timeout=2.0)
    found = {row["method"]: (row["status"], row["message"]) for row in rows}
    assert found == {
        "full": ("error", "ZeroDivisionError: by nought"),
        "knn": ("timeout", "The run took longer than 2 s."),
        "crumb": ("ok", None),
        "micp": ("error", "The process ended by itself (exit code 7), as when memory runs out."),
        "uniform": ("ok", None),
    }
    assert time.monotonic() - started < 120
    for row in rows:
        assert row["torch"]
        assert row["machine"]
        assert row["when"]
        assert row["device"] == "cpu"


def test_broken_tables_and_models_cost_their_runs_only(tmp_path: Path) -> None:
    sources = collection(str(make_folder(tmp_path / "tables")))
    wanted = {"models": ("embedded", str(tmp_path / "no.ckpt")), "methods": ("uniform", "crumb+strategy=nonsense")}
    rows = carry_out(tmp_path / "r.jsonl", sources, small_runs(sources, **wanted), jobs=2)
    assert len(rows) == 5 * 2 * 2
    assert not any("\n" in (row["message"] or "") for row in rows)
    found = {(row["dataset"], row["model"], row["method"]): row["status"] for row in rows}
    for (dataset, model, method), status in found.items():
        if dataset == "gone":
            assert status == "missing"
        elif dataset in ("kinds", "prices") and model == "embedded" and method == "uniform":
            assert status == "ok"
        else:
            assert status == "error"
    said = {row["dataset"]: row["message"] for row in rows if row["model"] == "embedded" and row["method"] == "uniform"}
    assert "cannot be read as Parquet" in said["torn"]
    assert "no column 'answer'" in said["untold"]


def test_what_is_there_is_not_run_again_and_jobs_change_nothing(tmp_path: Path) -> None:
    sources = collection("synthetic")[:2]
    runs = small_runs(sources, methods=("crumb", "uniform"))
    one = carry_out(tmp_path / "one.jsonl", sources, runs)
    two = carry_out(tmp_path / "two.jsonl", sources, runs, jobs=2)
    assert timeless(one) == timeless(two)
    before = (tmp_path / "one.jsonl").read_bytes()
    carry_out(tmp_path / "one.jsonl", sources, runs)
    assert (tmp_path / "one.jsonl").read_bytes() == before


def test_an_interruption_leaves_no_process_and_a_file_that_can_be_resumed(tmp_path: Path) -> None:
    sources = collection("synthetic")[:2]
    runs = small_runs(sources, methods=("crumb", "uniform"), seeds=2)
    path = tmp_path / "r.jsonl"

    def interrupt() -> None:
        while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    already = set(children())
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        carry_out(path, sources, runs, execute=slow, jobs=2)
    assert set(children()) - already <= _trackers()
    assert 2 <= len(read_rows(path)) < len(runs)
    assert timeless(carry_out(path, sources, runs)) == timeless(carry_out(tmp_path / "whole.jsonl", sources, runs))


def _trackers() -> set[int]:
    """Python's own helper for spawned processes, which lives as long as the process that first needed it."""
    from multiprocessing.resource_tracker import _resource_tracker

    pid = getattr(_resource_tracker, "_pid", None)
    return {pid} if pid else set()


def test_kill_and_resume_give_the_same_table(tmp_path: Path) -> None:
    def command(out: str, *more: str) -> list[str]:
        return [
            sys.executable, "-m", "crumb", "bench", "run", "main", "--models", "embedded", "--datasets", "rings,slopes",
            "--seeds", "2", "--max-rows", "60", "--queries", "8", "--device", "cpu", "--out",
            str(tmp_path / out), *more,
        ]  # fmt: skip

    path = tmp_path / "killed.jsonl"
    running = subprocess.Popen(command("killed.jsonl"), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert running.poll() is None
        time.sleep(0.02)
    workers = _children_of(running.pid)
    assert workers
    running.kill()
    running.communicate()
    finished = read_rows(path)
    assert 3 <= len(finished) < 20
    with path.open("ab") as file:  # the worst moment: in the middle of a line
        file.write(b'{"protocol": "main", "dataset": "ri')
    subprocess.run(command("killed.jsonl", "--resume", "--jobs", "2"), check=True, capture_output=True, timeout=300)
    subprocess.run(command("whole.jsonl"), check=True, capture_output=True, timeout=300)
    resumed = read_rows(path)
    assert resumed[: len(finished)] == finished
    assert timeless(resumed) == timeless(read_rows(tmp_path / "whole.jsonl"))
    assert len(resumed) == 2 * 2 * 5
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers), "a worker outlived its parent"


def _children_of(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in listed.read_text().split()] if listed.exists() else [0]


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
