"""Benchmarks at least run: their small mode on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_online_drift(tmp_path: Path) -> None:
    out = tmp_path / "drift.json"
    sizes = {"--steps": 5, "--queries": 60, "--window": 60, "--clusters": 3, "--context-size": 30}
    command = [sys.executable, BENCHMARKS / "online" / "drift.py", "--tables", "board", "--out", out]
    command += [str(word) for pair in sizes.items() for word in pair]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    records = json.loads(out.read_text())["records"]
    assert [(one["way"], one["step"], one["tau"]) for one in records] == [
        (way, step, step / 4) for way in ("drift", "never", "drift alone", "never alone", "micp") for step in range(5)
    ]
    version = {one["way"]: one["version"] for one in records}
    assert version["never"] == version["never alone"] == version["micp"] == 1 < version["drift"]


def test_fused(tmp_path: Path) -> None:
    out = tmp_path / "fused.json"
    command = [sys.executable, BENCHMARKS / "fused.py", "--small", "--repeats", "1", "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    results = json.loads(out.read_text())["results"]
    found = {(one["case"], one["way"]): one for one in results}
    assert len(found) == len(results) == 17
    for case, way in found:
        if way == "fused":
            assert found[case, way]["difference"] < 1e-5
            assert found[case, way]["network_seconds"] < found[case, way]["seconds"]


def test_load_of_a_service(tmp_path: Path) -> None:
    """Every answer is checked in it; here only that it runs and finds nothing wrong."""
    out = tmp_path / "load.json"
    words = "--minutes 0.05 --seconds 1 --rows 300 --queries 200 --clusters 2 --context 30 --clients 8 --timeouts"
    command = [
        sys.executable,
        BENCHMARKS / "online" / "load.py",
        *words.split(),
        "--refresh-every",
        "100",
        "--out",
        out,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = json.loads(out.read_text())["sustained"]
    assert found["answers"] == found["requests"] > 50
    assert found["versions"] > 1
    assert found["lost"] == found["wrong_answers"] == found["mixed_up_ids"] == found["exit_status"] == 0
    assert found["largest_difference"] < 1e-5
