"""Pools in Parquet, measured: time of each pass beside pyarrow's mere read, memory, growth with N, Ray, faults.

    python benchmarks/scale/measure.py --out benchmarks/results/scale.json
    python benchmarks/scale/measure.py --rows 200000 --engine-rows 200000 --folder /tmp/scale

Tables are written under --folder (9 GB for 50 million rows) and removed afterwards. Every measurement runs in a process
of its own; several hours are not needed: about half an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import generate

from crumb.files import atomic_write

HERE = Path(__file__).parent


def one(table: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "one.py"), "--table", str(table), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 10_000_000, 50_000_000]
    )
    parser.add_argument(
        "--engine-rows", type=int, default=10_000_000, help="rows of the comparison of engines"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the tables are written for the time being"
    )
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crumb-scale-", dir=options.folder))
    results: dict[str, Any] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "queries": 1_000,
        "passes": [],
        "engines": [],
        "faults": [],
    }
    try:
        for rows in options.rows:
            table = generate.write(folder, rows)
            results["passes"] += [
                one(table, "--kernel", kernel) for kernel in ("auto", "rff", "exact")
            ]
            if rows != options.engine_rows:
                shutil.rmtree(table)
        table = generate.write(folder, options.engine_rows)
        for engine in ("local", "ray"):
            results["engines"].append(one(table, "--engine", engine, "--jobs", "2"))
        save(results, options.out)  # whatever the faults do to this process
        if not options.no_faults:
            from faults import cases

            results["faults"] = cases(folder / "faults")
            save(results, options.out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save(results: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        with atomic_write(out) as file:
            file.write(json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
