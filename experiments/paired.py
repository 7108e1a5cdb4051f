"""The methods of one file of rows compared with one of them, paired by data set.

    python -m experiments.paired docs/experiments/ideas/kernels.jsonl.gz --base "crumb exact"

Means over data sets, sets on which a method is better and worse, and Wilcoxon's p.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from scipy.stats import wilcoxon

from experiments.report.results import read_results

METRICS = {"accuracy": 1, "auc": 1, "log_loss": -1, "r2": 1}  # and whether more is better


def comparison(means: pd.DataFrame, base: str, method: str, sign: int) -> str:
    """``means``: one row a data set, one column a method."""
    lead = sign * (means[method] - means[base])
    p = wilcoxon(lead).pvalue if lead.any() else 1.0
    counts = f"better {(lead > 0).sum()}, worse {(lead < 0).sum()} of {len(means)} data sets"
    return f"  {method}: {means[method].mean():.4f}, {counts}, p = {p:.2g}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--base", default="crumb exact")
    options = parser.parse_args(argv)
    rows = read_results(options.rows).rows.query("status == 'ok'")
    for metric, sign in METRICS.items():
        runs = rows.pivot_table(index=["dataset", "seed"], columns="method", values=metric)
        usual = runs[options.base].dropna().groupby("dataset").mean().mean()
        print(f"{metric}: {options.base} {usual:.4f}")
        for method in runs.columns.drop(options.base):
            means = runs[[options.base, method]].dropna().groupby("dataset").mean()
            print(comparison(means, options.base, method, sign))


if __name__ == "__main__":
    main()
