"""What the results of ``embedded.py`` say: ranks and tests, growth, calibration, weak spots, targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import wilcoxon

MEMBERS = {"embedded": 1, "embedded x4": 4, "embedded x8": 8}
BASELINES = ("random forest", "gradient boosting", "nearest neighbours", "linear")
METHODS = (*MEMBERS, *BASELINES)

LARGER_IS_BETTER = {
    "auc": True,
    "log_loss": False,
    "accuracy": True,
    "ece": False,
    "rmse": False,
    "r2": True,
}
TITLES = {
    "auc": "AUC",
    "log_loss": "log-loss",
    "accuracy": "accuracy",
    "ece": "ECE",
    "rmse": "RMSE",
    "r2": "R²",
}


class Findings:
    """Means over seeds, by table and method, of the tables and seeds for which all compared methods have a result."""

    def __init__(self, results: dict[str, Any]):
        self.tables = results["tables"]
        self.records = pd.DataFrame(
            [record for record in results["records"] if "error" not in record]
        )
        self.errors = [record for record in results["records"] if "error" in record]
        for name in LARGER_IS_BETTER:
            if name not in self.records:
                self.records[name] = np.nan
        found = set(self.records["method"])
        self.embedded = [method for method in MEMBERS if method in found]
        self.baselines = [method for method in BASELINES if method in found]
        self.sizes = sorted(map(int, self.records["size"].unique()))

    def means(self, metric: str, size: int, methods: list[str]) -> pd.DataFrame:
        chosen = self.records[(self.records["size"] == size) & self.records["method"].isin(methods)]
        by_seed = chosen.pivot_table(index=["table", "seed"], columns="method", values=metric)
        return by_seed.reindex(columns=methods).dropna().groupby("table").mean()

    def ranks(self, metric: str, size: int, methods: list[str]) -> pd.Series:
        means = self.means(metric, size, methods)
        return means.rank(axis=1, ascending=not LARGER_IS_BETTER[metric]).mean()

    def growth(self, metric: str, method: str, small: int = 1_000, large: int = 5_000) -> pd.Series:
        """By how much the larger context is better, table by table (for RMSE as a share of the smaller's)."""
        chosen = self.records[
            (self.records["method"] == method) & self.records["size"].isin([small, large])
        ]
        by_seed = chosen.pivot_table(index=["table", "seed"], columns="size", values=metric)
        means = by_seed.reindex(columns=[small, large]).dropna().groupby("table").mean()
        gain = means[large] - means[small]
        return gain if LARGER_IS_BETTER[metric] else -gain / means[small]

    def facts(self, table: str) -> str:
        about = self.tables[table]
        words = f"{about['n_rows']:,} rows, {about['n_features']} features, {about['n_categorical']} categorical"
        return words + (f", {about['n_classes']} classes" if about["n_classes"] else "")


def markdown(rows: list[list[Any]], head: list[str]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float, digits: int = 3) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}f}"


def significant(value: float) -> str:
    if not np.isfinite(value):
        return "–"
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, 3 - magnitude)}f}" if -3 < magnitude < 6 else f"{value:.4g}"


def compare(findings: Findings, metric: str, size: int, ours: str, other: str) -> str:
    means = findings.means(metric, size, [ours, other])
    gap = means[ours] - means[other]
    if LARGER_IS_BETTER[metric]:
        gap = -gap
    p = wilcoxon(gap).pvalue if gap.any() else 1.0
    return f"{(gap < 0).sum()}–{(gap > 0).sum()}, p = {p:.2g}" if len(gap) else "–"


def ranking(findings: Findings, ours: str) -> list[str]:
    parts, methods = [], [ours, *findings.baselines]
    for size in findings.sizes:
        tasks: list[tuple[str, list[str]]] = [
            ("classification", ["auc", "log_loss", "accuracy", "ece"]),
            ("regression", ["rmse", "r2"]),
        ]
        for task, metrics in tasks:
            means = {metric: findings.means(metric, size, methods) for metric in metrics}
            if means[metrics[0]].empty:
                continue
            ranked = [metric for metric in metrics if metric != "r2"]
            tested = [metric for metric in ranked if metric not in ("accuracy", "ece")]
            head = [
                "method",
                *(f"rank, {TITLES[m]}" for m in ranked),
                *(f"mean {TITLES[m]}" for m in metrics),
            ]
            head = [title for title in head if title != "mean RMSE"]
            head += [f"{ours}'s wins–losses, {TITLES[m]}" for m in tested]
            ranks = {metric: findings.ranks(metric, size, methods) for metric in ranked}
            rows = [
                [
                    method,
                    *(number(ranks[m][method], 2) for m in ranked),
                    *(number(means[m][method].mean(), 4) for m in metrics if m != "rmse"),
                    *(
                        "" if method == ours else compare(findings, m, size, ours, method)
                        for m in tested
                    ),
                ]
                for method in methods
            ]
            title = f"**{size:,} training rows, {task}, {len(means[metrics[0]])} tables**"
            parts += [title, markdown(rows, head)]
    return parts


def larger_contexts(findings: Findings) -> list[str]:
    rows, lists = [], []
    for method in (*findings.embedded, *findings.baselines):
        counts, total, fine = [], 0, 0
        for metric in ("auc", "rmse"):
            gain = findings.growth(metric, method)
            total, fine = total + len(gain), fine + int((gain >= 0).sum())
            counts.append(
                f"{(gain >= 0).sum()} of {len(gain)}"
                + (f" ({(gain >= 0).mean():.0%})" if len(gain) else "")
            )
            worse = gain[gain < 0].sort_values()
            if method in MEMBERS and len(worse):
                unit = "AUC" if metric == "auc" else "RMSE, relative"
                named = ", ".join(
                    f"{table} {value:+.2g}" if metric == "auc" else f"{table} {-value:+.2%}"
                    for table, value in worse.items()
                )
                lists.append(f"{method}, worse at 5,000 ({unit}): {named}.")
        rows.append(
            [method, *counts, f"{fine} of {total}" + (f" ({fine / total:.0%})" if total else "")]
        )
    return [markdown(rows, ["method", "AUC", "RMSE", "together"]), *lists]


def calibration(findings: Findings) -> list[str]:
    methods = [*findings.embedded, *findings.baselines]
    means = {size: findings.means("ece", size, methods) for size in findings.sizes}
    head = ["method", *(f"{size:,} ({len(means[size])} tables)" for size in findings.sizes)]
    rows = [[m, *(number(means[size][m].mean(), 4) for size in findings.sizes)] for m in methods]
    return [markdown(rows, head)]


def weakest(findings: Findings, ours: str, size: int, count: int = 8) -> list[str]:
    parts = []
    for metric in ("auc", "log_loss", "rmse"):
        means = findings.means(metric, size, [ours, *findings.baselines])
        if means.empty or not findings.baselines:
            continue
        others, larger = means[findings.baselines], LARGER_IS_BETTER[metric]
        best = others.max(axis=1) if larger else others.min(axis=1)
        behind = (
            means[ours] / best if metric == "rmse" else (best - means[ours]) * (1 if larger else -1)
        )
        title = "RMSE over that of the best" if metric == "rmse" else "behind by"
        rows = [
            [
                table,
                significant(means.loc[table, ours]),
                f"{(others.loc[table].idxmax() if larger else others.loc[table].idxmin())}, {significant(best[table])}",
                number(behind[table]),
                findings.facts(str(table)),
            ]
            for table in behind.sort_values(ascending=False).index[:count]
        ]
        parts += [
            f"**{TITLES[metric]}**",
            markdown(rows, ["table", ours, "best baseline", title, "facts"]),
        ]
    return parts


def per_table(findings: Findings, size: int) -> list[str]:
    methods, parts = [*findings.embedded, *findings.baselines], []
    for metric in ("auc", "log_loss", "rmse"):
        means = findings.means(metric, size, methods)
        if means.empty:
            continue
        order = sorted(map(str, means.index), key=str.lower)
        rows = [[table, *(significant(means.loc[table, m]) for m in methods)] for table in order]
        parts += [f"**{TITLES[metric]}**", markdown(rows, ["table", *methods])]
    return parts


def report(results: dict[str, Any]) -> str:
    findings = Findings(results)
    size = 1_000 if 1_000 in findings.sizes else findings.sizes[0]
    parts = []
    for ours in findings.embedded:
        parts += [f"## Ranks: {ours} and the baselines", *ranking(findings, ours)]
    if {1_000, 5_000} <= set(findings.sizes):
        parts += ["## At least as good with 5,000 rows as with 1,000", *larger_contexts(findings)]
    parts += ["## Mean calibration error", *calibration(findings)]
    for ours in findings.embedded[:1]:
        parts += [
            f"## Where {ours} is weakest, {size:,} training rows",
            *weakest(findings, ours, size),
        ]
    parts += [f"## Every table, {size:,} training rows", *per_table(findings, size)]
    if findings.errors:
        parts.append("## Errors")
        parts += [
            f"{r['table']}, seed {r['seed']}, {r['size']}, {r['method']}: {r['error']}"
            for r in findings.errors
        ]
    used = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    seen = sorted(
        {
            f"{r['method']}, {'regressor' if r['task'] == 'regression' else 'classifier'} {r['model_sha256'][:10]}"
            for r in results["records"]
            if "model_sha256" in r
        }
    )
    return "\n\n".join(
        [*parts, f"Versions: {used}.", *([f"Weights: {'; '.join(seen)}."] if seen else [])]
    )


def targets(results: dict[str, Any], ours: str = "embedded") -> str:
    findings, lines = Findings(results), []
    methods = [ours, *findings.baselines]

    def say(met: bool, text: str) -> None:
        lines.append(f"{'met    ' if met else 'NOT met'}  {text}")

    for metric, who in (("auc", "classifier"), ("log_loss", "classifier"), ("rmse", "regressor")):
        ranks, tables = (
            findings.ranks(metric, 1_000, methods),
            len(findings.means(metric, 1_000, methods)),
        )
        others = ranks.drop(ours).sort_values()
        named = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
        met = tables > 0 and len(others) > 0 and ranks[ours] < others.min()
        say(
            met,
            f"{who}, mean rank in {TITLES[metric]} at 1,000 rows, {tables} tables: {ranks[ours]:.2f}; {named}",
        )
    gains = {metric: findings.growth(metric, ours) for metric in ("auc", "rmse")}
    both = pd.concat(list(gains.values()))
    for title, gain in (("all", both), ("AUC", gains["auc"]), ("RMSE", gains["rmse"])):
        fine = int((gain >= 0).sum())
        share = fine / len(gain) if len(gain) else 0.0
        say(
            share >= 0.8,
            f"5,000 rows at least as good as 1,000, {title}: {fine} of {len(gain)} tables ({share:.0%})",
        )
    if "gradient boosting" in findings.baselines:
        errors = findings.means("ece", 1_000, methods).mean()
        say(
            bool(errors[ours] <= errors["gradient boosting"]),
            f"mean ECE at 1,000 rows: {errors[ours]:.4f}; gradient boosting {errors['gradient boosting']:.4f}",
        )
    return "\n".join(lines)
