"""Paired comparisons of the methods of one file of benchmark rows with one of them, over data sets.

    python benchmarks/ideas.py docs/experiments/ideas/kernels.jsonl.gz --base "crumb exact"

Means over data sets, sets on which a method is better and worse, and Wilcoxon's p on the sets' differences.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scipy.stats import wilcoxon

from crumb.bench.report.results import read_results

METRICS = {"accuracy": 1, "auc": 1, "log_loss": -1, "r2": 1}  # and whether more is better


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--base", default="crumb exact")
    options = parser.parse_args()
    rows = read_results(options.rows).rows.query("status == 'ok'")
    for metric, sign in METRICS.items():
        runs = rows.pivot_table(index=["dataset", "seed"], columns="method", values=metric)
        print(
            f"{metric}: {options.base} {runs[options.base].dropna().groupby('dataset').mean().mean():.4f}"
        )
        for method in runs.columns.drop(options.base):
            means = runs[[options.base, method]].dropna().groupby("dataset").mean()
            lead = sign * (means[method] - means[options.base])
            p = wilcoxon(lead).pvalue if lead.any() else 1.0
            counts = (
                f"better {(lead > 0).sum()}, worse {(lead < 0).sum()} of {len(means)} data sets"
            )
            print(f"  {method}: {means[method].mean():.4f}, {counts}, p = {p:.2g}")


if __name__ == "__main__":
    main()
