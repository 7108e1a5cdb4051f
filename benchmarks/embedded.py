"""How good is the embedded network, beside scikit-learn's usual methods on real tables?

    python benchmarks/embedded.py --jobs 2 --out benchmarks/results/embedded.json
    python benchmarks/embedded.py --methods embedded --weights new-clf.ckpt new-reg.ckpt \\
        --development --out new.json
    python benchmarks/embedded.py --merge a.json b.json --out all.json
    python benchmarks/embedded.py --report benchmarks/results/embedded.json
    python benchmarks/embedded.py --targets benchmarks/results/embedded.json
    python benchmarks/embedded.py --versus new.json benchmarks/results/embedded.json
    python benchmarks/embedded.py --cut FOLDER

Every table with at most ten classes, but those of ``DEVELOPMENT``, which may be looked at while a
network is made. A table of more than ``ROWS_KEPT`` rows is first cut to a fixed sample. Each seed
shuffles the rows: the first 1,000 (at most a quarter) are predicted, and the next 500, 1,000, 2,000
and 5,000 are the training rows, where the table has them. The network gets the whole training draw
as one context (``strategy="full"``); x4 and x8 are ensembles.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from common import Record, markdown
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
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from crumb.files import atomic_write

DEVELOPMENT = ("adult", "segment", "churn", "houses", "cpu_act")
ROWS_KEPT = 30_000
MOST_CLASSES = 10
SIZES = (500, 1_000, 2_000, 5_000)
QUERIES = 1_000
TASKS = ("binary", "multiclass", "regression")
MEMBERS = {"embedded": 1, "embedded x4": 4, "embedded x8": 8}
BASELINES = ("random forest", "gradient boosting", "nearest neighbours", "linear")
METHODS = (*MEMBERS, *BASELINES)
TITLES = {  # of the metrics
    "auc": "AUC",
    "log_loss": "log-loss",
    "accuracy": "accuracy",
    "ece": "ECE",
    "rmse": "RMSE",
    "r2": "R²",
}
COMPARED = ("auc", "log_loss", "ece", "rmse")  # one file with another
LARGER_IS_BETTER = {name: name in ("auc", "accuracy", "r2") for name in TITLES}
KEY = ("table", "seed", "size", "method")
SAVE_EVERY = 5.0  # seconds

Results = dict[str, Any]  # "versions", "models", "tables" and "records"


# Tables


def index(folder: Path) -> list[Record]:
    return [
        about
        for about in common.index(folder).values()
        if about["task"] == "regression" or about["n_classes"] <= MOST_CLASSES
    ]


def read(folder: Path, about: Record) -> pd.DataFrame:
    """The rows that have a target, at most ``ROWS_KEPT``: what is cut once is not cut again."""
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
    """Up to 1,000, at most a quarter of the rows.

    Fewer, down to 250, where that leaves room for one more size.
    """
    queries = min(QUERIES, rows // 4)
    room = [rows - size for size in SIZES if rows - queries < size <= rows - 250]
    return min(room, default=queries)


# Methods


def plain(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[str]]:
    """Numbers (bools too) as floats, all else as text, in which a missing value is a category."""
    columns: dict[str, Any] = {}
    numeric, categorical = [], []
    for position, name in enumerate(frame.columns):
        column, key = frame[name], f"{position}"
        if is_numeric_dtype(column.dtype):
            values = column.to_numpy(dtype=float, na_value=np.nan)
            columns[key] = np.where(np.isinf(values), np.nan, values)
            numeric.append(key)
        else:
            text = column.astype(object).map(str).where(column.notna(), "(missing)")
            columns[key] = text.to_numpy(dtype=object)
            categorical.append(key)
    return pd.DataFrame(columns), numeric, categorical


def baseline(
    method: str, task: str, numeric: list[str], categorical: list[str], seed: int
) -> Pipeline:
    """scikit-learn's method behind scikit-learn's usual preparation; its defaults but for these.

    300 trees, and the 15 nearest neighbours, weighted by distance. Gradient boosting is told which
    columns are categories.
    """
    classify, model = task != "regression", None
    if method == "linear":
        linear = LogisticRegression(max_iter=1_000, random_state=seed)
        model = linear if classify else Ridge(random_state=seed)
    elif method == "nearest neighbours":
        nearest = KNeighborsClassifier if classify else KNeighborsRegressor
        model = nearest(n_neighbors=15, weights="distance")
    elif method == "random forest":
        forest = RandomForestClassifier if classify else RandomForestRegressor
        model = forest(n_estimators=300, random_state=seed)
    else:
        codes = list(range(len(numeric), len(numeric) + len(categorical)))
        booster = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        model = booster(categorical_features=codes or None, random_state=seed)
    return make_pipeline(prepared(method, numeric, categorical), model)


def prepared(method: str, numeric: list[str], categorical: list[str]) -> ColumnTransformer:
    """Linear and nearest neighbours: numbers filled with their median and standardised, categories
    one-hot (the 100 most frequent of a column). Trees: numbers as they are (both kinds of trees
    take missing values), categories as ordinal codes, of which gradient boosting takes 255.
    """
    if method in ("linear", "nearest neighbours"):
        filled = SimpleImputer(strategy="median", keep_empty_features=True)
        numbers: Any = make_pipeline(filled, StandardScaler())
        categories: Any = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=100, sparse_output=False
        )
    else:
        most = 254 if method == "gradient boosting" else None
        numbers, categories = (
            "passthrough",
            OrdinalEncoder(
                handle_unknown="use_encoded_value", unknown_value=-1, max_categories=most
            ),
        )
    return ColumnTransformer(
        [("numbers", numbers, numeric), ("categories", categories, categorical)]
    )


def embedded(task: str, members: int, weights: str, seed: int, device: str, threads: Any) -> Any:
    from crumb import CrumbClassifier, CrumbRegressor

    estimator = CrumbRegressor if task == "regression" else CrumbClassifier
    return estimator(
        model=weights,
        strategy="full",
        n_estimators=members,
        device=device,
        random_state=seed,
        n_jobs=threads,
    )


@lru_cache
def checksum(weights: str, task: str) -> str:
    kind = "regressor" if task == "regression" else "classifier"
    shipped = Path(str(files("crumb.pfn"))) / "embedded" / f"{kind}.ckpt"
    path = shipped if weights == "embedded" else Path(weights)
    return hashlib.sha256(path.read_bytes()).hexdigest()


# Scores


def calibration_error(
    y: np.ndarray, proba: np.ndarray, classes: np.ndarray, bins: int = 15
) -> float:
    """Of the probability of the predicted class, in bins of equal width."""
    confidence, right = proba.max(axis=1), classes[proba.argmax(axis=1)] == y
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(y))


def score(
    task: str, estimator: Any, X: pd.DataFrame, y: np.ndarray, n_classes: int | None
) -> dict[str, float]:
    if task == "regression":
        predicted = estimator.predict(X)
        rmse = float(root_mean_squared_error(y, predicted))
        return {"rmse": rmse, "r2": float(r2_score(y, predicted))}
    proba = np.asarray(estimator.predict_proba(X), dtype=float)
    scores = classification_score(y, proba, estimator.classes_, n_classes)
    scores.pop("impossible")
    return {**scores, "ece": calibration_error(y, proba, estimator.classes_)}


# Running


@dataclass(frozen=True)
class Unit:
    """One table with one seed, and the sizes and methods that are wanted of it."""

    folder: Path
    about: Record
    seed: int
    wanted: list[tuple[int, str]]
    weights: str
    sha256: str
    device: str
    threads: int | None
    deadline: float

    def run(self) -> tuple[str, Record, list[Record]]:
        """The table's name, what is known of it, and a record for each size and method."""
        name, task = self.about["name"], self.about["task"]
        if time.time() > self.deadline:
            return name, {}, []
        self._warm()
        table = read(self.folder, self.about)
        target, n_classes = table.pop(self.about["target"]), None
        if task == "regression":
            y = target.to_numpy(dtype=float)
        else:
            classes, y = np.unique(target.astype(str), return_inverse=True)
            n_classes = len(classes)
        flat, numeric, categorical = plain(table)
        order, queries = np.random.default_rng(self.seed).permutation(len(y)), n_test(len(y))
        frames = Frames(task, table, flat, numeric, categorical, y, n_classes, order[:queries])
        records = [
            self._record(frames, order[queries : queries + size], size, method)
            for size, method in self.wanted
        ]
        facts = {
            "task": task,
            "n_rows": self.about.get("n_rows_before", self.about["n_rows"]),
            "n_test": queries,
            "n_features": table.shape[1],
            "n_categorical": len(categorical),
            "n_classes": n_classes,
        }
        return name, facts, records

    def _warm(self) -> None:
        """Imports are not what is timed."""
        warnings.simplefilter("ignore")  # categories that the training rows lack, max_iter
        if any(method in MEMBERS for _, method in self.wanted):
            import torch

            import crumb.pfn.tabicl  # noqa: F401

            if self.threads:
                torch.set_num_threads(self.threads)

    def _record(self, frames: Frames, train: np.ndarray, size: int, method: str) -> Record:
        record = {"table": self.about["name"], "seed": self.seed, "size": size, "method": method}
        try:
            scores, record["seconds"] = common.timed(lambda: frames.scores(self, train, method))
            record |= scores
        except Exception as error:  # one method on one table must not end the run
            record["error"] = f"{type(error).__name__}: {error}"[:300]
        if method in MEMBERS:
            record["model_sha256"] = self.sha256
        return record


@dataclass(frozen=True)
class Frames:
    """A table as the network and as the baselines take it, and the rows to predict."""

    task: str
    table: pd.DataFrame
    flat: pd.DataFrame
    numeric: list[str]
    categorical: list[str]
    y: np.ndarray
    n_classes: int | None
    test: np.ndarray

    def scores(self, unit: Unit, train: np.ndarray, method: str) -> dict[str, float]:
        if method in MEMBERS:
            words = (self.task, MEMBERS[method], unit.weights, unit.seed, unit.device, unit.threads)
            frame, estimator = self.table, embedded(*words)
        else:
            # Gradient boosting cannot bin a column without a single value.
            valued = [name for name in self.numeric if self.flat[name].iloc[train].notna().any()]
            frame = self.flat
            estimator = baseline(method, self.task, valued, self.categorical, unit.seed)
        estimator.fit(frame.iloc[train], self.y[train])
        queries, truth = frame.iloc[self.test], self.y[self.test]
        return score(self.task, estimator, queries, truth, self.n_classes)


def chosen_tables(options: argparse.Namespace) -> list[Record]:
    entries = [about for about in index(options.data) if about["task"] in options.tasks]
    if not options.tables:
        return [about for about in entries if (about["name"] in DEVELOPMENT) == options.development]
    unknown = set(options.tables) - {about["name"] for about in entries}
    if unknown:
        raise SystemExit(f"no such table among those used here: {', '.join(sorted(unknown))}")
    return [about for about in entries if about["name"] in options.tables]


def units(options: argparse.Namespace, results: Results) -> Iterator[Unit]:
    """What is left to do, the slowest tables first."""
    done = {key(r): r.get("model_sha256") for r in results["records"] if "error" not in r}
    threads = 1 if options.jobs != 1 else None
    deadline = time.time() + 60 * options.minutes
    tables = sorted(chosen_tables(options), key=lambda about: -about["n_features"])
    for seed in range(options.seeds):
        for about in tables:
            task, rows = about["task"], min(about["n_rows"], ROWS_KEPT)
            weights = options.weights[task == "regression"]
            sha256 = checksum(weights, task)
            wanted = [
                (size, method)
                for size in options.sizes
                if rows - n_test(rows) >= size
                for method in options.methods
                if done.get((about["name"], seed, size, method), "")
                != (sha256 if method in MEMBERS else None)
            ]
            if wanted:
                words = (weights, sha256, options.device, threads, deadline)
                yield Unit(options.data, about, seed, wanted, *words)


def run(options: argparse.Namespace) -> None:
    results = load(options.out) if options.resume and options.out.exists() else empty()
    results = merge([results, {**empty(), "versions": common.environment(options.device)}])
    todo = list(units(options, results))
    print(f"{len(todo)} units", flush=True)
    settings: dict[str, Any] = {"backend": "sequential"}
    if options.jobs != 1:
        settings = {"backend": "loky", "inner_max_num_threads": 1}
    started = saved = time.time()
    finished = 0
    try:
        with parallel_config(**settings):
            parallel = Parallel(
                options.jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
            )
            for name, facts, records in parallel(delayed(Unit.run)(unit) for unit in todo):
                if not records:
                    continue
                finished += 1
                results = merge([results, {**empty(), "tables": {name: facts}, "records": records}])
                print(f"{time.time() - started:7.0f} s  {finished}/{len(todo)}  {told(records)}")
                if time.time() - saved > SAVE_EVERY:
                    save(options.out, results)
                    saved = time.time()
    finally:
        save(options.out, results)
    left = f"; {len(todo) - finished} units not started" if finished < len(todo) else ""
    print(f"{len(results['records'])} records in {options.out}{left}")


def told(records: list[Record]) -> str:
    took = sum(record.get("seconds", 0.0) for record in records)
    first = f"seed {records[0]['seed']}  {records[0]['table']}: {len(records)} in {took:.1f} s"
    errors = [f"    {r['method']} at {r['size']}: {r['error']}" for r in records if "error" in r]
    return "\n".join([first, *errors])


# Files of results


def empty() -> Results:
    return {"versions": {}, "models": {}, "tables": {}, "records": []}


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in KEY)


def merge(results: Iterable[Results]) -> Results:
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


def load(path: Path) -> Results:
    """With the facts that the file has once: of each table, and the checksum of each model."""
    content = json.loads(path.read_text())
    for record in content["records"]:
        facts = content["tables"][record["table"]]
        record |= {name: facts[name] for name in ("task", "n_test", "n_features", "n_classes")}
        if "model" in record:
            record["model_sha256"] = content["models"][record.pop("model")]
    return content


def save(path: Path, results: Results) -> None:
    models, lines = {}, []
    for record in sorted(results["records"], key=key):
        short = {
            name: _short(name, v)
            for name, v in record.items()
            if name in (*KEY, *LARGER_IS_BETTER, "seconds")
        }
        if "error" in record:
            short["error"] = record["error"]
        if "model_sha256" in record:
            models[record["model_sha256"][:10]] = record["model_sha256"]
            short["model"] = record["model_sha256"][:10]
        lines.append(json.dumps(short, separators=(",", ":")))
    tables = [
        f"{json.dumps(name)}: {json.dumps(facts)}"
        for name, facts in sorted(results["tables"].items())
    ]
    text = (
        f'{{"versions": {json.dumps(results["versions"])},\n"models": {json.dumps(models)},\n'
        f'"tables": {{\n{_joined(tables)}\n}},\n"records": [\n{_joined(lines)}\n]}}\n'
    )
    with atomic_write(path) as file:
        file.write(text.encode())


def _joined(lines: list[str]) -> str:
    return ",\n".join(lines)


def _short(name: str, value: Any) -> Any:
    return (
        float(f"{value:.{3 if name == 'seconds' else 6}g}") if isinstance(value, float) else value
    )


# What the results say


class Findings:
    """Means over seeds, by table and method, where all compared methods have a result."""

    def __init__(self, results: Results):
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
        """By how much the larger context is better, table by table; RMSE relatively."""
        chosen = self.records[
            (self.records["method"] == method) & self.records["size"].isin([small, large])
        ]
        by_seed = chosen.pivot_table(index=["table", "seed"], columns="size", values=metric)
        means = by_seed.reindex(columns=[small, large]).dropna().groupby("table").mean()
        gain = means[large] - means[small]
        return gain if LARGER_IS_BETTER[metric] else -gain / means[small]

    def facts(self, table: str) -> str:
        about = self.tables[table]
        words = f"{about['n_rows']:,} rows, {about['n_features']} features"
        words += f", {about['n_categorical']} categorical"
        return words + (f", {about['n_classes']} classes" if about["n_classes"] else "")


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
    parts = []
    for size in findings.sizes:
        parts += ranks_of(findings, ours, size, "classification", ["auc", "log_loss"])
        parts += ranks_of(findings, ours, size, "regression", ["rmse"])
    return parts


def ranks_of(findings: Findings, ours: str, size: int, task: str, tested: list[str]) -> list[str]:
    """Ranks, means, and the wins of ours in the ``tested`` metrics."""
    methods, regression = [ours, *findings.baselines], task == "regression"
    ranked = tested if regression else [*tested, "accuracy", "ece"]
    shown = ["r2"] if regression else ranked
    means = {metric: findings.means(metric, size, methods) for metric in {*ranked, *shown}}
    tables = len(means[tested[0]])
    if not tables:
        return []
    ranks = {metric: findings.ranks(metric, size, methods) for metric in ranked}
    rows = [
        [
            method,
            *(number(ranks[m][method], 2) for m in ranked),
            *(number(means[m][method].mean(), 4) for m in shown),
            *("" if method == ours else compare(findings, m, size, ours, method) for m in tested),
        ]
        for method in methods
    ]
    head = ["method", *(f"rank, {TITLES[m]}" for m in ranked)]
    head += [f"mean {TITLES[m]}" for m in shown]
    head += [f"{ours}'s wins–losses, {TITLES[m]}" for m in tested]
    return [f"**{size:,} training rows, {task}, {tables} tables**", markdown(rows, head)]


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
        first = others.idxmax(axis=1) if larger else others.idxmin(axis=1)
        rows = [
            [
                table,
                significant(means.loc[table, ours]),
                f"{first[table]}, {significant(best[table])}",
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


def report(results: Results) -> str:
    findings = Findings(results)
    size = 1_000 if 1_000 in findings.sizes else findings.sizes[0]
    parts = []
    for ours in findings.embedded:
        parts += [f"## Ranks: {ours} and the baselines", *ranking(findings, ours)]
    if {1_000, 5_000} <= set(findings.sizes):
        parts += ["## At least as good with 5,000 rows as with 1,000", *larger_contexts(findings)]
    parts += ["## Mean calibration error", *calibration(findings)]
    for ours in findings.embedded[:1]:
        title = f"## Where {ours} is weakest, {size:,} training rows"
        parts += [title, *weakest(findings, ours, size)]
    parts += [f"## Every table, {size:,} training rows", *per_table(findings, size)]
    if findings.errors:
        parts += ["## Errors", *(f"{key(r)}: {r['error']}" for r in findings.errors)]
    used = ", ".join(f"{name} {value}" for name, value in results["versions"].items())
    return "\n\n".join([*parts, f"Versions: {used}.", *weights_seen(results)])


def weights_seen(results: Results) -> list[str]:
    records = [record for record in results["records"] if "model_sha256" in record]
    kinds = {True: "regressor", False: "classifier"}
    seen = {
        f"{r['method']}, {kinds[r['task'] == 'regression']} {r['model_sha256'][:10]}"
        for r in records
    }
    return [f"Weights: {'; '.join(sorted(seen))}."] if seen else []


def targets(results: Results, ours: str = "embedded") -> str:
    findings = Findings(results)
    found = [rank_target(findings, ours, metric) for metric in ("auc", "log_loss", "rmse")]
    gains = {metric: findings.growth(metric, ours) for metric in ("auc", "rmse")}
    found.append(growth_target("all", pd.concat(list(gains.values()))))
    found += [growth_target(TITLES[metric], gain) for metric, gain in gains.items()]
    if "gradient boosting" in findings.baselines:
        errors = findings.means("ece", 1_000, [ours, *findings.baselines]).mean()
        mine, other = errors[ours], errors["gradient boosting"]
        text = f"mean ECE at 1,000 rows: {mine:.4f}; gradient boosting {other:.4f}"
        found.append((bool(mine <= other), text))
    return "\n".join(f"{'met    ' if met else 'NOT met'}  {text}" for met, text in found)


def versus(ours: Results, theirs: Results) -> str:
    """Every method of one file beside every method of another, by wins on the tables of both."""
    sides = {"ours": ours, "theirs": theirs}
    for side, results in sides.items():
        for record in results["records"]:
            record["method"] = f"{side}: {record['method']}"
    findings = Findings(
        {**ours, "records": [record for side in sides.values() for record in side["records"]]}
    )
    methods = sorted(set(findings.records["method"]))
    pairs = [
        (one, other)
        for one in methods
        for other in methods
        if one.startswith("ours") and other.startswith("theirs")
    ]
    rows = []
    for size in findings.sizes:
        for one, other in pairs:
            found = [compare(findings, metric, size, one, other) for metric in COMPARED]
            if set(found) != {"–"}:
                rows.append([f"{size:,}", one, other, *found])
    return markdown(rows, ["rows", "ours", "theirs", *(TITLES[metric] for metric in COMPARED)])


def rank_target(findings: Findings, ours: str, metric: str) -> tuple[bool, str]:
    """The best mean rank at 1,000 rows."""
    methods = [ours, *findings.baselines]
    ranks, tables = findings.ranks(metric, 1_000, methods), findings.means(metric, 1_000, methods)
    others = ranks.drop(ours).sort_values()
    named = ", ".join(f"{name} {value:.2f}" for name, value in others.items())
    met = len(tables) > 0 and len(others) > 0 and ranks[ours] < others.min()
    title = f"mean rank in {TITLES[metric]} at 1,000 rows, {len(tables)} tables"
    return bool(met), f"{title}: {ranks[ours]:.2f}; {named}"


def growth_target(title: str, gain: pd.Series) -> tuple[bool, str]:
    """At least as good with 5,000 rows as with 1,000, on four tables of five."""
    fine = int((gain >= 0).sum())
    share = fine / len(gain) if len(gain) else 0.0
    text = f"5,000 rows at least as good as 1,000, {title}: {fine} of {len(gain)} tables"
    return share >= 0.8, f"{text} ({share:.0%})"


def options_of_the_command() -> argparse.Namespace:
    parser = common.parser(__doc__, seeds=5, jobs=1)
    common.add_data(parser)
    parser.set_defaults(out=Path("benchmarks/results/embedded.json"))
    parser.add_argument("--report", type=Path, help="only report what a file of results says")
    parser.add_argument("--targets", type=Path, help="only say which targets a file meets")
    parser.add_argument(
        "--versus", type=Path, nargs=2, metavar=("OURS", "THEIRS"), help="only compare two files"
    )
    parser.add_argument(
        "--for", dest="ours", choices=list(MEMBERS), default="embedded", help="with --targets"
    )
    parser.add_argument("--merge", type=Path, nargs="+", help="only merge files; later ones win")
    parser.add_argument("--cut", type=Path, help="only write the tables, cut, into this folder")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--weights",
        nargs=2,
        default=["embedded", "embedded"],
        metavar=("CLASSIFIER", "REGRESSOR"),
        help='checkpoint files in the place of the shipped ones ("embedded")',
    )
    parser.add_argument("--tables", nargs="+", help="only these")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--development", action="store_true", help="only the development tables")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing after this")
    parser.add_argument("--resume", action="store_true", help="keep what --out has")
    return parser.parse_args()


def main() -> None:
    options = options_of_the_command()
    if options.report or options.targets:
        if options.report:
            print(report(load(options.report)))
        if options.targets:
            print(targets(load(options.targets), options.ours))
    elif options.versus:
        print(versus(*map(load, options.versus)))
    elif options.merge:
        results = merge(map(load, options.merge))
        save(options.out, results)
        print(f"{len(results['records'])} records in {options.out}")
    elif options.cut:
        cut(options.data, options.cut)
    else:
        run(options)


if __name__ == "__main__":
    main()
