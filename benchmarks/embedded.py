"""How good is the embedded network? Against scikit-learn's usual methods on real tables; behind docs/model-card.md.

    python benchmarks/embedded.py --jobs 2 --out benchmarks/results/embedded.json
    python benchmarks/embedded.py --methods embedded --weights new-clf.ckpt new-reg.ckpt --development --out new.json
    python benchmarks/embedded.py --merge a.json b.json --out all.json
    python benchmarks/embedded.py --report benchmarks/results/embedded.json
    python benchmarks/embedded.py --targets benchmarks/results/embedded.json
    python benchmarks/embedded.py --cut FOLDER

Every table but those of ``DEVELOPMENT`` (the ones that may be looked at while a network is made) with at most ten
classes. A table of more than ``ROWS_KEPT`` rows is first cut to a fixed sample. Each seed shuffles the rows: the first
1,000 (at most a quarter) are predicted, and the next 500, 1,000, 2,000 and 5,000 are the training rows, where there are
that many. The network gets the whole training draw as one context (``strategy="full"``); x4 and x8 are ensembles.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from defaults import score as classification_score
from joblib import Parallel, delayed, parallel_config
from pandas.api.types import is_numeric_dtype
from scipy.stats import wilcoxon
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, OrdinalEncoder, StandardScaler

from crumb.files import atomic_write

DEVELOPMENT = ("adult", "segment", "churn", "houses", "cpu_act")
ROWS_KEPT = 30_000
MOST_CLASSES = 10
SIZES = (500, 1_000, 2_000, 5_000)
QUERIES = 1_000

MEMBERS = {"embedded": 1, "embedded x4": 4, "embedded x8": 8}
BASELINES = ("random forest", "gradient boosting", "nearest neighbours", "linear")
METHODS = (*MEMBERS, *BASELINES)

LARGER_IS_BETTER = {"auc": True, "log_loss": False, "accuracy": True, "ece": False, "rmse": False, "r2": True}
TITLES = {"auc": "AUC", "log_loss": "log-loss", "accuracy": "accuracy", "ece": "ECE", "rmse": "RMSE", "r2": "R²"}
KEY = ("table", "seed", "size", "method")
SAVE_EVERY = 5.0  # seconds

Records = list[dict[str, Any]]


# --- tables -----------------------------------------------------------------------------------------------------------


def index(folder: Path) -> list[dict[str, Any]]:
    return [
        entry
        for entry in json.loads((folder / "index.json").read_text())
        if entry["task"] == "regression" or entry["n_classes"] <= MOST_CLASSES
    ]


def read(folder: Path, about: dict[str, Any]) -> pd.DataFrame:
    """The rows that have a target, at most ``ROWS_KEPT``, in their order: what is cut once is not cut again."""
    table = pd.read_parquet(folder / about["file"])
    table = table[table[about["target"]].notna()].reset_index(drop=True)
    if len(table) > ROWS_KEPT:
        kept = np.random.default_rng(0).choice(len(table), ROWS_KEPT, replace=False)
        table = table.iloc[np.sort(kept)].reset_index(drop=True)
    return table


def cut(folder: Path, target: Path) -> None:
    """The tables as they are read here, in files that travel light."""
    target.mkdir(parents=True, exist_ok=True)
    entries = []
    for about in index(folder):
        table = read(folder, about)
        file = f"{about['name']}.parquet"
        table.to_parquet(target / file, compression="zstd", compression_level=19, index=False)
        missing = int(table.drop(columns=about["target"]).isna().sum().sum())
        before = about.get("n_rows_before", about["n_rows"])
        entries.append({**about, "file": file, "n_rows": len(table), "n_rows_before": before})
        if "n_missing_cells" in about:
            entries[-1]["n_missing_cells"] = missing
    with atomic_write(target / "index.json") as file:
        file.write(json.dumps(entries, indent=1).encode())
    size = sum(path.stat().st_size for path in target.iterdir()) / 1e6
    print(f"{len(entries)} tables, {size:.1f} MB in {target}")


def n_test(rows: int) -> int:
    """Up to 1,000, at most a quarter of the rows; fewer, down to 250, where that leaves room for one more size."""
    queries = min(QUERIES, rows // 4)
    room = [rows - size for size in SIZES if rows - queries < size <= rows - 250]
    return min(room, default=queries)


# --- methods ----------------------------------------------------------------------------------------------------------


def plain(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Numbers (bools too) as floats, everything else as text in which a missing value is a category of its own."""
    columns: dict[str, Any] = {}
    numeric, categorical = [], []
    for position, name in enumerate(frame.columns):
        column, key = frame[name], f"{position}"
        if is_numeric_dtype(column.dtype):
            values = column.to_numpy(dtype=float, na_value=np.nan)
            columns[key] = np.where(np.isinf(values), np.nan, values)
            numeric.append(key)
        else:
            columns[key] = column.astype(object).map(str).where(column.notna(), "(missing)").to_numpy(dtype=object)
            categorical.append(key)
    return pd.DataFrame(columns), numeric, categorical


def baseline(method: str, task: str, numeric: list[str], categorical: list[str], seed: int) -> Pipeline:
    """scikit-learn's method behind scikit-learn's usual preparation.

    Linear and nearest neighbours: numbers filled with their median and standardised, categories one-hot (the 100 most
    frequent of a column). Trees: numbers as they are (both kinds of trees take missing values), categories as ordinal
    codes; gradient boosting is told which columns are categories, of which it takes 255.
    Everything else is scikit-learn's default, but 300 trees and the 15 nearest neighbours, weighted by distance.
    """
    classify = task != "regression"
    if method in ("linear", "nearest neighbours"):
        numbers = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
        one_hot = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=100, sparse_output=False)
        prepare = ColumnTransformer([("numbers", numbers, numeric), ("categories", one_hot, categorical)])
    else:
        most = 254 if method == "gradient boosting" else None
        ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, max_categories=most)
        prepare = ColumnTransformer([("numbers", "passthrough", numeric), ("categories", ordinal, categorical)])
    model: Any
    if method == "linear":
        model = LogisticRegression(max_iter=1_000, random_state=seed) if classify else Ridge(random_state=seed)
    elif method == "nearest neighbours":
        model = (KNeighborsClassifier if classify else KNeighborsRegressor)(n_neighbors=15, weights="distance")
    elif method == "random forest":
        model = (RandomForestClassifier if classify else RandomForestRegressor)(n_estimators=300, random_state=seed)
    else:
        codes = list(range(len(numeric), len(numeric) + len(categorical)))
        booster = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        model = booster(categorical_features=codes or None, random_state=seed)
    return make_pipeline(prepare, model)


def embedded(task: str, members: int, weights: str, seed: int, device: str, threads: int | None) -> Any:
    from crumb import CrumbClassifier, CrumbRegressor

    estimator = CrumbRegressor if task == "regression" else CrumbClassifier
    return estimator(
        model=weights, strategy="full", n_estimators=members, device=device, random_state=seed, n_jobs=threads
    )


@lru_cache
def sha256(weights: str, task: str) -> str:
    from crumb.pfn.checkpoint import checksum
    from crumb.pfn.weights import EMBEDDED

    if weights == "embedded":
        return checksum(EMBEDDED / ("regressor.ckpt" if task == "regression" else "classifier.ckpt"))
    return checksum(Path(weights))


# --- scores -----------------------------------------------------------------------------------------------------------


def calibration_error(y: np.ndarray, proba: np.ndarray, classes: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error of the probability of the predicted class, in bins of equal width."""
    confidence, right = proba.max(axis=1), classes[proba.argmax(axis=1)] == y
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(y))


def score(task: str, estimator: Any, X: pd.DataFrame, y: np.ndarray, n_classes: int | None) -> dict[str, float]:
    if task == "regression":
        predicted = estimator.predict(X)
        return {"rmse": float(root_mean_squared_error(y, predicted)), "r2": float(r2_score(y, predicted))}
    proba = np.asarray(estimator.predict_proba(X), dtype=float)
    scores = classification_score(y, proba, estimator.classes_, n_classes)
    scores.pop("impossible")
    return {**scores, "ece": calibration_error(y, proba, estimator.classes_)}


# --- running ----------------------------------------------------------------------------------------------------------


def run_unit(
    folder: Path,
    about: dict[str, Any],
    seed: int,
    wanted: list[tuple[int, str]],  # sizes and methods
    weights: str,
    checksum: str,
    device: str,
    threads: int | None,
    deadline: float,
) -> tuple[str, dict[str, Any], Records]:
    """One table with one seed: what is known about the table, and a record for each size and method."""
    if time.time() > deadline:
        return about["name"], {}, []
    if any(method in MEMBERS for _, method in wanted):
        import torch

        import crumb.pfn.tabicl  # noqa: F401  its import is not what is timed

        if threads:
            torch.set_num_threads(threads)
    warnings.simplefilter("ignore")  # categories that the training rows lack, fits that stop at max_iter
    task, table = about["task"], read(folder, about)
    target, n_classes = table.pop(about["target"]), None
    if task == "regression":
        y = target.to_numpy(dtype=float)
    else:
        encoder = LabelEncoder().fit(target.astype(str))
        y, n_classes = encoder.transform(target.astype(str)), len(encoder.classes_)
    flat, numeric, categorical = plain(table)
    order, queries = np.random.default_rng(seed).permutation(len(y)), n_test(len(y))
    test = order[:queries]
    records = []
    for size, method in wanted:
        train = order[queries : queries + size]
        record = {"table": about["name"], "seed": seed, "size": size, "method": method}
        try:
            started = time.perf_counter()
            if method in MEMBERS:
                frame = table
                estimator = embedded(task, MEMBERS[method], weights, seed, device, threads)
            else:
                # Gradient boosting cannot bin a column without a single value.
                valued = [name for name in numeric if flat[name].iloc[train].notna().any()]
                frame, estimator = flat, baseline(method, task, valued, categorical, seed)
            estimator.fit(frame.iloc[train], y[train])
            record |= score(task, estimator, frame.iloc[test], y[test], n_classes)
            record["seconds"] = time.perf_counter() - started
        except Exception as error:  # one method on one table must not end the run: --report names it
            record["error"] = f"{type(error).__name__}: {error}"[:300]
        if method in MEMBERS:
            record["model_sha256"] = checksum
        records.append(record)
    facts = {
        "task": task,
        "n_rows": about.get("n_rows_before", about["n_rows"]),
        "n_test": queries,
        "n_features": table.shape[1],
        "n_categorical": len(categorical),
        "n_classes": n_classes,
    }
    return about["name"], facts, records


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a bare copy on the path
        return getattr(importlib.import_module(name), "__version__", "unknown")


def versions(device: str) -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found |= {name: version_of(name) for name in ("numpy", "pandas", "scipy", "scikit-learn", "torch", "tabicl")}
    if device.startswith("cuda"):
        import torch

        found["device"] = torch.cuda.get_device_name(device)
    else:
        found["device"] = device
    return found


def empty() -> dict[str, Any]:
    return {"versions": {}, "models": {}, "tables": {}, "records": []}


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def merge(results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Later results win; where versions differ, all are named."""
    merged, records = empty(), {}
    for result in results:
        for name, value in result["versions"].items():
            known = merged["versions"].get(name, "")
            if value not in known.split(" / "):
                merged["versions"][name] = f"{known} / {value}" if known else value
        merged["tables"] |= result["tables"]
        merged["models"] |= result["models"]
        records |= {key(record): record for record in result["records"]}
    merged["records"] = list(records.values())
    return merged


def load(path: Path) -> dict[str, Any]:
    """Results with their facts: those of a table and the checksum of a model are written once, not in each record."""
    content = json.loads(path.read_text())
    for record in content["records"]:
        record |= {name: content["tables"][record["table"]][name] for name in ("task", "n_test", "n_features")}
        record["n_classes"] = content["tables"][record["table"]]["n_classes"]
        if "model" in record:
            record["model_sha256"] = content["models"][record.pop("model")]
    return content


def save(path: Path, results: dict[str, Any]) -> None:
    models, lines = {}, []
    for record in sorted(results["records"], key=key):
        short = {name: _short(name, v) for name, v in record.items() if name in (*KEY, *LARGER_IS_BETTER, "seconds")}
        if "error" in record:
            short["error"] = record["error"]
        if "model_sha256" in record:
            models[record["model_sha256"][:10]] = record["model_sha256"]
            short["model"] = record["model_sha256"][:10]
        lines.append(json.dumps(short, separators=(",", ":")))
    tables = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in sorted(results["tables"].items())]
    text = (
        f'{{"versions": {json.dumps(results["versions"])},\n"models": {json.dumps(models)},\n'
        f'"tables": {{\n{_joined(tables)}\n}},\n"records": [\n{_joined(lines)}\n]}}\n'
    )
    with atomic_write(path) as file:
        file.write(text.encode())


def _joined(lines: list[str]) -> str:
    return ",\n".join(lines)


def _short(name: str, value: Any) -> Any:
    return float(f"{value:.{3 if name == 'seconds' else 6}g}") if isinstance(value, float) else value


def run(options: argparse.Namespace) -> None:
    entries = [entry for entry in index(options.datasets) if entry["task"] in options.tasks]
    if options.tables:
        unknown = set(options.tables) - {entry["name"] for entry in entries}
        if unknown:
            raise SystemExit(f"no such table among those used here: {', '.join(sorted(unknown))}")
        entries = [entry for entry in entries if entry["name"] in options.tables]
    else:
        entries = [entry for entry in entries if (entry["name"] in DEVELOPMENT) == options.development]
    results = load(options.out) if options.resume and options.out.exists() else empty()
    results = merge([results, {**empty(), "versions": versions(options.device)}])

    done = {}
    for record in results["records"]:
        if "error" not in record:
            done[key(record)] = record.get("model_sha256")

    def is_done(name: str, task: str, seed: int, size: int, method: str) -> bool:
        place = (name, seed, size, method)
        return place in done and (method not in MEMBERS or done[place] == sha256(weights_for(task), task))

    def weights_for(task: str) -> str:
        return options.weights[1 if task == "regression" else 0]

    threads = 1 if options.jobs != 1 else None
    started = time.time()
    deadline = started + 60 * options.minutes
    units = []
    for seed in range(options.seeds):
        for about in sorted(entries, key=lambda entry: -entry["n_features"]):  # the slowest first, none left to the end
            rows = min(about["n_rows"], ROWS_KEPT)
            wanted = [
                (size, method)
                for size in options.sizes
                if rows - n_test(rows) >= size
                for method in options.methods
                if not is_done(about["name"], about["task"], seed, size, method)
            ]
            if wanted:
                units.append((about, seed, wanted))
    calls = (
        delayed(run_unit)(
            options.datasets,
            about,
            seed,
            wanted,
            weights_for(about["task"]),
            sha256(weights_for(about["task"]), about["task"]),
            options.device,
            threads,
            deadline,
        )
        for about, seed, wanted in units
    )
    print(f"{len(units)} units", flush=True)
    saved, finished = time.time(), 0
    settings = {"backend": "loky", "inner_max_num_threads": 1} if threads else {"backend": "sequential"}
    try:
        with parallel_config(**settings):
            parallel = Parallel(
                n_jobs=options.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
            )
            for name, facts, records in parallel(calls):
                if not records:
                    continue
                finished += 1
                results = merge([results, {**empty(), "tables": {name: facts}, "records": records}])
                took = sum(record.get("seconds", 0.0) for record in records)
                print(
                    f"{time.time() - started:7.0f} s  {finished}/{len(units)}  seed {records[0]['seed']}  {name}: "
                    f"{len(records)} records in {took:.1f} s",
                    *(f"\n    {r['method']} at {r['size']}: {r['error']}" for r in records if "error" in r),
                    flush=True,
                )
                if time.time() - saved > SAVE_EVERY:
                    save(options.out, results)
                    saved = time.time()
    finally:
        save(options.out, results)
    left = len(units) - finished
    print(f"{len(results['records'])} records in {options.out}" + (f"; {left} units not started" if left else ""))


# --- reporting --------------------------------------------------------------------------------------------------------


class Findings:
    """Means over seeds, by table and method, of the tables and seeds for which all compared methods have a result."""

    def __init__(self, results: dict[str, Any]):
        self.tables = results["tables"]
        self.records = pd.DataFrame([record for record in results["records"] if "error" not in record])
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
        chosen = self.records[(self.records["method"] == method) & self.records["size"].isin([small, large])]
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
            head = ["method", *(f"rank, {TITLES[m]}" for m in ranked), *(f"mean {TITLES[m]}" for m in metrics)]
            head = [title for title in head if title != "mean RMSE"]
            head += [f"{ours}'s wins–losses, {TITLES[m]}" for m in tested]
            ranks = {metric: findings.ranks(metric, size, methods) for metric in ranked}
            rows = [
                [
                    method,
                    *(number(ranks[m][method], 2) for m in ranked),
                    *(number(means[m][method].mean(), 4) for m in metrics if m != "rmse"),
                    *("" if method == ours else compare(findings, m, size, ours, method) for m in tested),
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
            counts.append(f"{(gain >= 0).sum()} of {len(gain)}" + (f" ({(gain >= 0).mean():.0%})" if len(gain) else ""))
            worse = gain[gain < 0].sort_values()
            if method in MEMBERS and len(worse):
                unit = "AUC" if metric == "auc" else "RMSE, relative"
                named = ", ".join(
                    f"{table} {value:+.2g}" if metric == "auc" else f"{table} {-value:+.2%}"
                    for table, value in worse.items()
                )
                lists.append(f"{method}, worse at 5,000 ({unit}): {named}.")
        rows.append([method, *counts, f"{fine} of {total}" + (f" ({fine / total:.0%})" if total else "")])
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
        behind = means[ours] / best if metric == "rmse" else (best - means[ours]) * (1 if larger else -1)
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
        parts += [f"**{TITLES[metric]}**", markdown(rows, ["table", ours, "best baseline", title, "facts"])]
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
        parts += [f"## Where {ours} is weakest, {size:,} training rows", *weakest(findings, ours, size)]
    parts += [f"## Every table, {size:,} training rows", *per_table(findings, size)]
    if findings.errors:
        parts.append("## Errors")
        parts += [f"{r['table']}, seed {r['seed']}, {r['size']}, {r['method']}: {r['error']}" for r in findings.errors]
    used = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    seen = sorted(
        {
            f"{r['method']}, {'regressor' if r['task'] == 'regression' else 'classifier'} {r['model_sha256'][:10]}"
            for r in results["records"]
            if "model_sha256" in r
        }
    )
    return "\n\n".join([*parts, f"Versions: {used}.", *([f"Weights: {'; '.join(seen)}."] if seen else [])])


def targets(results: dict[str, Any], ours: str = "embedded") -> str:
    findings, lines = Findings(results), []
    methods = [ours, *findings.baselines]

    def say(met: bool, text: str) -> None:
        lines.append(f"{'met    ' if met else 'NOT met'}  {text}")

    for metric, who in (("auc", "classifier"), ("log_loss", "classifier"), ("rmse", "regressor")):
        ranks, tables = findings.ranks(metric, 1_000, methods), len(findings.means(metric, 1_000, methods))
        others = ranks.drop(ours).sort_values()
        named = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
        met = tables > 0 and len(others) > 0 and ranks[ours] < others.min()
        say(met, f"{who}, mean rank in {TITLES[metric]} at 1,000 rows, {tables} tables: {ranks[ours]:.2f}; {named}")
    gains = {metric: findings.growth(metric, ours) for metric in ("auc", "rmse")}
    both = pd.concat(list(gains.values()))
    for title, gain in (("all", both), ("AUC", gains["auc"]), ("RMSE", gains["rmse"])):
        fine = int((gain >= 0).sum())
        share = fine / len(gain) if len(gain) else 0.0
        say(share >= 0.8, f"5,000 rows at least as good as 1,000, {title}: {fine} of {len(gain)} tables ({share:.0%})")
    if "gradient boosting" in findings.baselines:
        errors = findings.means("ece", 1_000, methods).mean()
        say(
            bool(errors[ours] <= errors["gradient boosting"]),
            f"mean ECE at 1,000 rows: {errors[ours]:.4f}; gradient boosting {errors['gradient boosting']:.4f}",
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=Path("../shared/datasets"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/embedded.json"))
    parser.add_argument("--report", type=Path, help="only report what a file of results says")
    parser.add_argument("--targets", type=Path, help="only say which targets a file of results meets")
    parser.add_argument("--for", dest="ours", choices=list(MEMBERS), default="embedded", help="with --targets: of whom")
    parser.add_argument("--merge", type=Path, nargs="+", help="only merge files of results into --out; later ones win")
    parser.add_argument("--cut", type=Path, help="only write the tables, cut, into this folder")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--weights",
        nargs=2,
        default=["embedded", "embedded"],
        metavar=("CLASSIFIER", "REGRESSOR"),
        help='checkpoint files instead of the shipped ones ("embedded")',
    )
    parser.add_argument("--tables", nargs="+", help="only these")
    parser.add_argument("--tasks", nargs="+", choices=["binary", "multiclass", "regression"])
    parser.add_argument("--development", action="store_true", help="the tables kept for development, and only those")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further unit after this time")
    parser.add_argument("--resume", action="store_true", help="keep what --out has and run the rest")
    options = parser.parse_args()
    options.tasks = options.tasks or ["binary", "multiclass", "regression"]
    readers: list[tuple[Path | None, Callable[[dict[str, Any]], str]]] = [
        (options.report, report),
        (options.targets, lambda results: targets(results, options.ours)),
    ]
    if options.report or options.targets:
        for path, reader in readers:
            if path:
                print(reader(load(path)))
    elif options.merge:
        results = merge(map(load, options.merge))
        save(options.out, results)
        print(f"{len(results['records'])} records in {options.out}")
    elif options.cut:
        cut(options.datasets, options.cut)
    else:
        run(options)


if __name__ == "__main__":
    main()
