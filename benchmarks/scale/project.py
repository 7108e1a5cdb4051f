"""What a billion rows and a hundred million queries would take, worked out from what ``measure.py`` measured.

python benchmarks/scale/project.py benchmarks/results/scale.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def per_million(results: dict, kernel: str, key: str) -> float:
    """Seconds a million rows, from the largest table, on the cores of the machine that measured."""
    passes = [
        one for one in results["passes"] if one["kernel"] == kernel and one["engine"] == "local"
    ]
    largest = max(passes, key=lambda one: one["rows"])
    return largest[key] / largest["rows"] * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--queries", type=float, default=1e8)
    parser.add_argument("--columns", type=int, default=20, help="of eight bytes")
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--cores", type=int, default=64, help="of a machine")
    parser.add_argument("--gpus", type=int, default=8, help="of a machine")
    parser.add_argument("--chunk", type=float, default=1e5, help="queries answered together")
    parser.add_argument(
        "--pass-seconds",
        type=float,
        default=1.1 / 10_000,
        help="seconds a query on one GPU, planning left out (docs/performance.md: 10,000 queries in 1.1 s)",
    )
    options = parser.parse_args()
    results = json.loads(options.results.read_text())
    share = results["machine"]["cores"] / (options.machines * options.cores)
    fit = per_million(results, "auto", "fit_s") * options.rows / 1e6 * share
    score = per_million(results, "auto", "score_s") * options.rows / 1e6 * share
    herding = max(
        one["plan_s"] - one["score_s"] for one in results["passes"] if one["kernel"] == "auto"
    )
    passes = options.queries * options.pass_seconds / (options.machines * options.gpus)
    chunks = options.queries / options.chunk
    gigabytes = options.rows * options.columns * 8 / 1e9 / options.machines
    print(
        f"fit, computing:                      {fit:10,.1f} s, {gigabytes:,.0f} GB to read on each machine"
    )
    print(f"one plan, scoring:                   {score:10,.1f} s, and as much to read")
    print(f"one plan, herding on the driver:     {herding:10,.1f} s, whatever the rows")
    print(f"passes, one plan shared:             {passes:10,.1f} s")
    print(
        f"a plan for each of {chunks:,.0f} chunks:      {chunks * (score + herding):10,.1f} s more"
    )


if __name__ == "__main__":
    main()
