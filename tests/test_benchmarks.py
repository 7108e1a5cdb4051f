"""Benchmarks that need a GPU at least run: their small mode on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


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
