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
from embedded_report import LARGER_IS_BETTER, MEMBERS, METHODS, report, targets
from joblib import Parallel, delayed, parallel_config
from pandas.api.types import is_numeric_dtype
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
            columns[key] = (
                column.astype(object)
                .map(str)
                .where(column.notna(), "(missing)")
                .to_numpy(dtype=object)
            )
            categorical.append(key)
    return pd.DataFrame(columns), numeric, categorical


def baseline(
    method: str, task: str, numeric: list[str], categorical: list[str], seed: int
) -> Pipeline:
    """scikit-learn's method behind scikit-learn's usual preparation.

    Linear and nearest neighbours: numbers filled with their median and standardised, categories one-hot (the 100 most
    frequent of a column). Trees: numbers as they are (both kinds of trees take missing values), categories as ordinal
    codes; gradient boosting is told which columns are categories, of which it takes 255.
    Everything else is scikit-learn's default, but 300 trees and the 15 nearest neighbours, weighted by distance.
    """
    classify = task != "regression"
    if method in ("linear", "nearest neighbours"):
        numbers = make_pipeline(
            SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
        )
        one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=100, sparse_output=False
        )
        prepare = ColumnTransformer(
            [("numbers", numbers, numeric), ("categories", one_hot, categorical)]
        )
    else:
        most = 254 if method == "gradient boosting" else None
        ordinal = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, max_categories=most
        )
        prepare = ColumnTransformer(
            [("numbers", "passthrough", numeric), ("categories", ordinal, categorical)]
        )
    model: Any
    if method == "linear":
        model = (
            LogisticRegression(max_iter=1_000, random_state=seed)
            if classify
            else Ridge(random_state=seed)
        )
    elif method == "nearest neighbours":
        model = (KNeighborsClassifier if classify else KNeighborsRegressor)(
            n_neighbors=15, weights="distance"
        )
    elif method == "random forest":
        model = (RandomForestClassifier if classify else RandomForestRegressor)(
            n_estimators=300, random_state=seed
        )
    else:
        codes = list(range(len(numeric), len(numeric) + len(categorical)))
        booster = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
        model = booster(categorical_features=codes or None, random_state=seed)
    return make_pipeline(prepare, model)


def embedded(
    task: str, members: int, weights: str, seed: int, device: str, threads: int | None
) -> Any:
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
def sha256(weights: str, task: str) -> str:
    from crumb.pfn.checkpoint import checksum
    from crumb.pfn.weights import EMBEDDED

    if weights == "embedded":
        return checksum(
            EMBEDDED / ("regressor.ckpt" if task == "regression" else "classifier.ckpt")
        )
    return checksum(Path(weights))


# --- scores -----------------------------------------------------------------------------------------------------------


def calibration_error(
    y: np.ndarray, proba: np.ndarray, classes: np.ndarray, bins: int = 15
) -> float:
    """Expected calibration error of the probability of the predicted class, in bins of equal width."""
    confidence, right = proba.max(axis=1), classes[proba.argmax(axis=1)] == y
    which = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(which, weights=confidence - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(y))


def score(
    task: str, estimator: Any, X: pd.DataFrame, y: np.ndarray, n_classes: int | None
) -> dict[str, float]:
    if task == "regression":
        predicted = estimator.predict(X)
        return {
            "rmse": float(root_mean_squared_error(y, predicted)),
            "r2": float(r2_score(y, predicted)),
        }
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
    warnings.simplefilter(
        "ignore"
    )  # categories that the training rows lack, fits that stop at max_iter
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
        except (
            Exception
        ) as error:  # one method on one table must not end the run: --report names it
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
    found |= {
        name: version_of(name)
        for name in ("numpy", "pandas", "scipy", "scikit-learn", "torch", "tabicl")
    }
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
        record |= {
            name: content["tables"][record["table"]][name]
            for name in ("task", "n_test", "n_features")
        }
        record["n_classes"] = content["tables"][record["table"]]["n_classes"]
        if "model" in record:
            record["model_sha256"] = content["models"][record.pop("model")]
    return content


def save(path: Path, results: dict[str, Any]) -> None:
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


def run(options: argparse.Namespace) -> None:
    entries = [entry for entry in index(options.datasets) if entry["task"] in options.tasks]
    if options.tables:
        unknown = set(options.tables) - {entry["name"] for entry in entries}
        if unknown:
            raise SystemExit(f"no such table among those used here: {', '.join(sorted(unknown))}")
        entries = [entry for entry in entries if entry["name"] in options.tables]
    else:
        entries = [
            entry for entry in entries if (entry["name"] in DEVELOPMENT) == options.development
        ]
    results = load(options.out) if options.resume and options.out.exists() else empty()
    results = merge([results, {**empty(), "versions": versions(options.device)}])

    done = {}
    for record in results["records"]:
        if "error" not in record:
            done[key(record)] = record.get("model_sha256")

    def is_done(name: str, task: str, seed: int, size: int, method: str) -> bool:
        place = (name, seed, size, method)
        return place in done and (
            method not in MEMBERS or done[place] == sha256(weights_for(task), task)
        )

    def weights_for(task: str) -> str:
        return options.weights[1 if task == "regression" else 0]

    threads = 1 if options.jobs != 1 else None
    started = time.time()
    deadline = started + 60 * options.minutes
    units = []
    for seed in range(options.seeds):
        for about in sorted(
            entries, key=lambda entry: -entry["n_features"]
        ):  # the slowest first, none left to the end
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
    settings = (
        {"backend": "loky", "inner_max_num_threads": 1} if threads else {"backend": "sequential"}
    )
    try:
        with parallel_config(**settings):
            parallel = Parallel(
                n_jobs=options.jobs,
                return_as="generator_unordered",
                batch_size=1,
                pre_dispatch="n_jobs",
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
                    *(
                        f"\n    {r['method']} at {r['size']}: {r['error']}"
                        for r in records
                        if "error" in r
                    ),
                    flush=True,
                )
                if time.time() - saved > SAVE_EVERY:
                    save(options.out, results)
                    saved = time.time()
    finally:
        save(options.out, results)
    left = len(units) - finished
    print(
        f"{len(results['records'])} records in {options.out}"
        + (f"; {left} units not started" if left else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=Path, default=Path("../shared/datasets"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/embedded.json"))
    parser.add_argument("--report", type=Path, help="only report what a file of results says")
    parser.add_argument(
        "--targets", type=Path, help="only say which targets a file of results meets"
    )
    parser.add_argument(
        "--for",
        dest="ours",
        choices=list(MEMBERS),
        default="embedded",
        help="with --targets: of whom",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        help="only merge files of results into --out; later ones win",
    )
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
    parser.add_argument(
        "--development", action="store_true", help="the tables kept for development, and only those"
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no further unit after this time"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what --out has and run the rest"
    )
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
