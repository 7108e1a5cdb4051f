"""The methods of one file of rows compared with one of them, paired by data set.

    python -m experiments.paired docs/experiments/ideas/kernels.jsonl.gz --base "crumb exact"
    python -m experiments.paired docs/experiments/rows/drift.jsonl.gz --base micp --along tau

Means over data sets, sets on which a method is better and worse, and Wilcoxon's p. With ``--along``
the slopes of the leads along a column take the place of the means. ``--where`` takes some rows,
by a pandas query.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import wilcoxon

from experiments.report.results import read_results

METRICS = {"accuracy": 1, "auc": 1, "log_loss": -1, "r2": 1}  # and whether more is better


def comparison(means: pd.DataFrame, base: str, method: str, sign: int) -> str:
    """``means``: one row a data set, one column a method."""
    lead = sign * (means[method] - means[base])
    counts = f"better {(lead > 0).sum()}, worse {(lead < 0).sum()} of {len(means)} data sets"
    return f"  {method}: {means[method].mean():.4f}, {counts}, p = {p_value(lead):.2g}"


def trend(means: pd.DataFrame, base: str, method: str, sign: int) -> str:
    """``means``: one row a data set and value of the column along which the lead may grow."""
    lead = (sign * (means[method] - means[base])).unstack().dropna()  # a row a data set
    slopes = np.polyfit(lead.columns.astype(float), lead.T, 1)[0]
    ends = f"lead {lead.iloc[:, 0].mean():+.4f} to {lead.iloc[:, -1].mean():+.4f}"
    counts = f"grows on {(slopes > 0).sum()} of {len(slopes)} data sets"
    return f"  {method}: {ends}, slope {slopes.mean():+.4f}, {counts}, p = {p_value(slopes):.2g}"


def p_value(leads: pd.Series | np.ndarray) -> float:
    return float(wilcoxon(leads).pvalue) if leads.any() else 1.0


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--base", default="crumb exact")
    parser.add_argument("--along", metavar="COLUMN", help="such as tau")
    parser.add_argument("--where", metavar="QUERY", help="such as \"kernel == 'exact'\"")
    options = parser.parse_args(argv)
    rows = read_results(options.rows).rows.query("status == 'ok'")
    rows = rows.query(options.where) if options.where else rows
    compare = trend if options.along else comparison
    by = ["dataset", *filter(None, [options.along])]
    for metric, sign in METRICS.items():
        runs = rows.pivot_table(index=[*by, "seed"], columns="method", values=metric)
        if runs.empty:
            continue
        usual = runs[options.base].dropna().groupby("dataset").mean().mean()
        print(f"{metric}: {options.base} {usual:.4f}")
        for method in runs.columns.drop(options.base):
            means = runs[[options.base, method]].dropna().groupby(by).mean()
            print(compare(means, options.base, method, sign))


if __name__ == "__main__":
    main()
