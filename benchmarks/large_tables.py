"""CRUMB and boosted trees on every real table of at least 40,000 rows: scores, seconds, memory.

    python benchmarks/large_tables.py --out benchmarks/results/large_tables.json
    python benchmarks/large_tables.py --methods lightgbm micp --tables adult --out some.json
    python benchmarks/large_tables.py --merge trees.json gpu.json --out all.json
    python benchmarks/large_tables.py --report benchmarks/results/large_tables.json

A report with ``--seeds 0`` has this seed alone, where all methods answer the same queries.
With ``--keep FOLDER`` a run keeps the losses of single queries there (of what it runs), and a
report says where guide="auto" is significantly worse than the better of its two parts, and than the
best of three boosters.

A seed holds 2,000 rows out as queries (stratified by class); all others are the pool. With
``--queries 60000 --most-rows 40000`` there are more queries (at most two fifths of the rows) and
smaller pools: 2,000 queries do not show differences of half a per cent. A record is
written as soon as it is there, and what the file has is not run again. With ``--busy``, for a
machine that does other work, seconds and memory are not reported, and a run without it does these
records again. Trees always run on the CPU: ``--device`` is for the networks. The methods:

    default         CRUMB as it is
    guide           with guide="auto"
    guide-alone     what the models of this guide say, without a network: fitted with it, no seconds
    one-context     with one context a query
    members-4       with four ensemble members
    micp, uniform   these strategies, with their defaults; MICP with plain columns, as published
    micp-4          MICP with four ensemble members: about as many seconds as the default takes
    full            the whole pool as the context, where it is within the model's window
    default-0.1     the default of version 0.1: its network, 20 clusters, 1,000 rows, plain columns
    200x500         any K and n; "200x500-plain": with columns that all count alike
    lightgbm, xgboost, catboost, sklearn
                    boosted trees: learning rate .05, at most 2,000 rounds, native categories; a
                    tenth of the pool ends the training after 50 rounds without progress
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
import embedded
import numpy as np
import pandas as pd
import torch
from common import Record
from defaults import score as classification_score
from scipy.stats import wilcoxon
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder
from threadpoolctl import threadpool_limits

from crumb import CrumbClassifier, CrumbRegressor
from crumb.files import atomic_write
from crumb.pfn.models import card_for, checksum, fetch

LEAST_ROWS = 40_000
LEAST = 1e-6  # a lower probability of the right class costs as much as this one
RATE, ROUNDS, PATIENCE, HELD_OUT = 0.05, 2_000, 50, 0.1  # of boosting
SEEDS = (0, 1, 2)
CRUMB: dict[str, dict[str, Any]] = {
    "default": {},
    "guide": {"guide": "auto"},
    "one-context": {"contexts_per_query": 1},
    "members-4": {"n_estimators": 4},
    "micp": {"strategy": "micp", "features": None},
    "micp-4": {"strategy": "micp", "features": None, "n_estimators": 4},
    "uniform": {"strategy": "uniform"},
    "full": {"strategy": "full"},
    "default-0.1": {
        "model": "embedded-0.1", "n_clusters": 20, "context_size": 1_000, "features": None,
        "contexts_per_query": 1,
    },
}  # fmt: skip
SIZES = re.compile(r"(\d+)x(\d+)(-plain)?")
PAIRS = [  # a method, and those of which the best is its rival
    ("default", ["micp"]),
    ("default", ["micp-4"]),
    ("default", ["lightgbm"]),
    ("guide", ["default"]),
    ("guide", ["lightgbm"]),
    ("guide", ["lightgbm", "xgboost"]),
    ("guide", ["lightgbm", "xgboost", "catboost"]),
    ("guide-alone", ["lightgbm", "xgboost", "catboost"]),
    ("members-4", ["default"]),
    ("default", ["uniform"]),
    ("default", ["one-context"]),
    ("default", ["default-0.1"]),
]
BESIDE = [
    ("guide", ["default", "guide-alone"]),
    ("guide", ["lightgbm", "xgboost", "catboost"]),
    ("guide-alone", ["lightgbm", "xgboost", "catboost"]),
]
KEY = ("table", "method", "seed", "device", "queries")
Answer = Callable[[], np.ndarray]


class DoesNotFit(Exception):
    """A pool beyond the model's window."""


# Tables


@dataclass(frozen=True)
class Split:
    """A table cut into pool and queries, as CRUMB takes it and as trees do (``flat``)."""

    table: pd.DataFrame
    flat: pd.DataFrame
    numeric: list[str]
    categorical: list[str]
    y: np.ndarray
    n_classes: int | None  # None: regression
    pool: np.ndarray
    queries: np.ndarray
    guided: list[Any] = field(default_factory=list)  # the last model that was fitted with a guide

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        target: pd.Series,
        task: str,
        queries: int,
        seed: int,
        most: int | None = None,
    ) -> Any:
        """``most``: rows of the pool."""
        regression = task == "regression"
        y = target.to_numpy(float) if regression else LabelEncoder().fit_transform(target)
        n_classes = None if regression else int(y.max()) + 1
        flat, numeric, categorical = embedded.plain(table)
        flat = flat.astype(dict.fromkeys(categorical, "category"))
        queries = min(queries, 2 * len(y) // 5)
        pool, asked = held_out(np.arange(len(y)), None if regression else y, queries, seed)
        return cls(table, flat, numeric, categorical, y, n_classes, pool[:most], asked)

    def losses(self, found: np.ndarray) -> np.ndarray:
        """Of single queries: −log of the probability of the class, or the squared error."""
        y = self.y[self.queries]
        if self.n_classes is None:
            return (y - found) ** 2
        return -np.log(np.clip(found[np.arange(len(y)), y], LEAST, None))

    def scores(self, found: np.ndarray) -> dict[str, float]:
        y = self.y[self.queries]
        if self.n_classes is None:
            rmse = float(root_mean_squared_error(y, found))
            return {"rmse": rmse, "r2": float(r2_score(y, found))}
        made = classification_score(y, found, np.arange(self.n_classes), self.n_classes)
        made.pop("impossible")
        return made


def held_out(
    rows: np.ndarray, labels: np.ndarray | None, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The other rows, and those held out: a count or a share, of every class alike."""
    kept, out = train_test_split(rows, test_size=share, random_state=seed, stratify=labels)
    return kept, out


def large(folder: Path, least: int) -> list[Record]:
    """The smallest first, so that most results are there early."""
    found = [about for about in common.index(folder).values() if about["n_rows"] >= least]
    return sorted(found, key=lambda about: about["n_rows"])


# Methods: each fits, and gives what answers the queries


def settings_of(method: str) -> dict[str, Any] | None:
    """What differs from the default; None where the method is not CRUMB."""
    sizes = SIZES.fullmatch(method)
    if sizes is None:
        return CRUMB.get(method)
    plain = {"features": None} if sizes[3] else {}
    return {"n_clusters": int(sizes[1]), "context_size": int(sizes[2]), **plain}


def known_method(method: str) -> str:
    if method not in METHODS and settings_of(method) is None:
        raise argparse.ArgumentTypeError(f"{method!r} is none of {', '.join(METHODS)}, 200x500")
    return method


def crumb(split: Split, settings: dict[str, Any], options: Any, seed: int) -> Answer:
    kind = CrumbRegressor if split.n_classes is None else CrumbClassifier
    about = {"device": options.device, "n_jobs": options.threads, "random_state": seed}
    model = kind(**{"model": options.model, **about, **settings})
    model.fit(split.table.iloc[split.pool], split.y[split.pool])
    split.guided[:] = [model] if model.guide else []
    window = model.backend_.window
    if model.strategy == "full" and window is not None and len(split.pool) > window:
        raise DoesNotFit(f"{len(split.pool)} rows, and a window of {window}")
    predict = model.predict if split.n_classes is None else model.predict_proba
    return lambda: predict(split.table.iloc[split.queries])


def guide_alone(split: Split, options: Any, seed: int) -> Answer:
    if not split.guided:
        crumb(split, {"guide": "trees", "features": None}, options, seed)
    (model,) = split.guided
    return lambda: model.pool_.guide.answers(model.encode(split.table.iloc[split.queries])[0])


def boosted(split: Split, method: str, options: Any, seed: int) -> Answer:
    labels = None if split.n_classes is None else split.y[split.pool]
    teach, stop = held_out(split.pool, labels, HELD_OUT, seed)
    settings = {"learning_rate": RATE, "n_estimators": ROUNDS, "random_state": seed}
    kind = "Regressor" if split.n_classes is None else "Classifier"
    model, more = PEERS[method](kind, settings, split.categorical, options.threads)
    held = [(split.flat.iloc[stop], split.y[stop])]
    model.fit(split.flat.iloc[teach], split.y[teach], eval_set=held, **more)
    predict = model.predict if split.n_classes is None else model.predict_proba
    return lambda: predict(split.flat.iloc[split.queries])


# An estimator with early stopping, and what else its fit is told
Made = tuple[Any, dict[str, Any]]


def lightgbm(kind: str, settings: dict[str, Any], _: list[str], threads: int) -> Made:
    import lightgbm

    model = getattr(lightgbm, f"LGBM{kind}")(**settings, n_jobs=threads, verbosity=-1)
    return model, {"callbacks": [lightgbm.early_stopping(PATIENCE, verbose=False)]}


def xgboost(kind: str, settings: dict[str, Any], _: list[str], threads: int) -> Made:
    import xgboost

    more = {"enable_categorical": True, "early_stopping_rounds": PATIENCE, "n_jobs": threads}
    return getattr(xgboost, f"XGB{kind}")(**settings, **more), {"verbose": False}


def catboost(kind: str, settings: dict[str, Any], categories: list[str], threads: int) -> Made:
    import catboost

    more = {"cat_features": categories, "early_stopping_rounds": PATIENCE, "thread_count": threads}
    model = getattr(catboost, f"CatBoost{kind}")(**settings, **more, allow_writing_files=False)
    return model, {"verbose": False}


PEERS = {"lightgbm": lightgbm, "xgboost": xgboost, "catboost": catboost}
METHODS = (*CRUMB, "guide-alone", *PEERS, "sklearn")


def histogram(split: Split, seed: int) -> Answer:
    """scikit-learn's; it holds its own tenth out."""
    task = "regression" if split.n_classes is None else "classification"
    columns = (split.numeric, split.categorical)
    model = embedded.baseline("gradient boosting", task, *columns, seed)
    model[-1].set_params(
        early_stopping=True,
        learning_rate=RATE,
        max_iter=ROUNDS,
        n_iter_no_change=PATIENCE,
        validation_fraction=HELD_OUT,
    )
    model.fit(split.flat.iloc[split.pool], split.y[split.pool])
    predict = model.predict if split.n_classes is None else model.predict_proba
    return lambda: predict(split.flat.iloc[split.queries])


def network(method: str, task: str, model: str) -> str | None:
    """The start of its checksum: "embedded" is not always the same. None: no network."""
    settings = settings_of(method)
    if settings is None:
        return None
    name = settings.get("model", model)
    kind = "regression" if task == "regression" else "classification"
    path = Path(name) if Path(name).is_file() else fetch(card_for(name, kind))
    return checksum(path)[:10]


def learn(method: str, split: Split, options: Any, seed: int) -> Answer:
    settings = settings_of(method)
    if settings is not None:
        return crumb(split, settings, options, seed)
    if method in PEERS:
        return boosted(split, method, options, seed)
    return guide_alone(split, options, seed) if method == "guide-alone" else histogram(split, seed)


# Running


def measure(method: str, split: Split, options: Any, seed: int, kept: Path | None = None) -> Record:
    """Scores, seconds, and by how much memory rose. ``kept``: a file for losses of queries."""
    on_gpu = options.device.startswith("cuda")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the method before freed would hide what this one takes
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with common.PeakMemory() as memory:
        answer, fitting = common.timed(lambda: learn(method, split, options, seed))
        found, predicting = common.timed(answer)
    found = np.asarray(found, dtype=float)
    if kept is not None:
        np.save(kept, split.losses(found).astype(np.float32))
    if method == "guide-alone":
        return split.scores(found)
    record = {
        **split.scores(found),
        "fit_seconds": fitting,
        "predict_seconds": predicting,
        "peak_bytes": memory.peak - memory.start,
    }
    if on_gpu and settings_of(method) is not None:
        record["peak_gpu_bytes"] = torch.cuda.max_memory_allocated()
    return record


def tried(method: str, split: Split, options: Any, seed: int, kept: Path | None = None) -> Record:
    """One method on one table must not end the run."""
    try:
        return measure(method, split, options, seed, kept)
    except DoesNotFit as error:
        return {"left_out": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def warm(methods: list[str], options: Any) -> None:
    """Imports, networks and a GPU's start are not what is timed."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    for task, target in (("regression", table["a"]), ("binary", table["a"] > 0)):
        split = Split.of(table, target, task, 50, 0)
        for method in methods:
            tried(method, split, options, 0)


def wanted(options: argparse.Namespace, records: dict[Any, Record]) -> Iterator[tuple[Any, ...]]:
    """What is left to do: (seed, table, methods)."""
    tables = large(options.data, options.least_rows)
    unknown = set(options.tables or ()) - {about["name"] for about in tables}
    if unknown:
        raise SystemExit(f"no such large table: {', '.join(sorted(unknown))}")
    for seed in options.seeds or SEEDS:
        for about in tables:
            if options.tables and about["name"] not in options.tables:
                continue
            left = []
            for method in options.methods:
                there = records.get(key_of(about["name"], method, seed, options))
                weights = network(method, about["task"], options.model)
                if not done(there, weights, options.busy):
                    left.append(method)
            if left:
                yield seed, about, left


def key_of(table: str, method: str, seed: int, options: Any) -> tuple[Any, ...]:
    device = "cpu" if settings_of(method) is None else options.device
    return table, method, seed, device, options.queries


def done(record: Record | None, weights: str | None, busy: bool) -> bool:
    if record is None or "error" in record or record.get("network") != weights:
        return False
    return busy or not record["busy"]


def run(options: argparse.Namespace) -> None:
    found = load([options.out] if options.out is not None and options.out.exists() else [])
    found["environments"][options.device] = environment(options.device)
    todo = list(wanted(options, found["records"]))
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    if todo:
        warm(sorted({method for _, _, left in todo for method in left}), options)
    for seed, about, left in todo:
        table, target = common.read_table(options.data, about)
        asked = options.queries, seed, options.most_rows
        split = Split.of(table, target, about["task"], *asked)
        facts = {"rows": len(split.pool), "answered": len(split.queries)}
        facts |= {"columns": table.shape[1], "task": about["task"]}
        for method in left:
            key = key_of(about["name"], method, seed, options)
            record = dict(zip(KEY, key, strict=True)) | facts
            record |= {"network": network(method, about["task"], options.model)}
            record |= {"busy": options.busy, "threads": options.threads}
            kept = options.keep and options.keep / kept_as(*key)
            record |= tried(method, split, options, seed, kept)
            found["records"][key] = common.say(record)
            save(options.out, found)


# Files of results


def kept_as(table: str, method: str, seed: int | str, device: str, queries: int) -> str:
    """The file that holds the losses of single queries."""
    return f"{table}.{method}.{seed}.{device}.{queries}.npy"


def environment(device: str) -> dict[str, str]:
    peers = ("lightgbm", "xgboost-cpu", "catboost")
    return common.environment(device) | {name: common.installed(name) for name in peers}


def load(paths: list[Path]) -> dict[str, Any]:
    """Records by their key; later ones win."""
    found: dict[str, Any] = {"environments": {}, "records": {}}
    for path in paths:
        content = json.loads(path.read_text())
        found["environments"] |= content["environments"]
        found["records"] |= {tuple(one[name] for name in KEY): one for one in content["records"]}
    return found


def save(path: Path | None, found: dict[str, Any]) -> None:
    """A record a line."""
    if path is None:
        return
    lines = ",\n".join(json.dumps(one) for one in found["records"].values())
    environments = json.dumps(found["environments"], indent=1)
    with atomic_write(path) as file:
        file.write(f'{{"environments": {environments},\n"records": [\n{lines}\n]}}\n'.encode())


# What the results say


def report(records: list[Record]) -> str:
    good = pd.DataFrame([one for one in records if not {"error", "left_out"} & set(one)])
    good["method"] += np.where(good["device"] == "cpu", "", " on GPU")
    for name in ("log_loss", "auc", "accuracy", "rmse", "r2", "peak_gpu_bytes"):
        if name not in good:
            good[name] = np.nan
    good["loss"] = good["log_loss"].fillna(good["rmse"])
    quiet = good[~good["busy"].astype(bool)].assign(
        megabytes=lambda all: all["peak_bytes"] / 1e6,
        gpu_megabytes=lambda all: all["peak_gpu_bytes"] / 1e6,
    )
    parts = [against(good, quiet), by_size(good)]
    for title, frame, metric in [
        ("Log-loss", good, "log_loss"),
        ("RMSE", good, "rmse"),
        ("AUC", good, "auc"),
        ("Accuracy", good, "accuracy"),
        ("R²", good, "r2"),
        ("Seconds of fit", quiet, "fit_seconds"),
        ("Seconds of predict", quiet, "predict_seconds"),
        ("Memory beside the table, MB", quiet, "megabytes"),
        ("GPU memory, MB", quiet, "gpu_megabytes"),
    ]:
        if frame[metric].notna().any():
            parts += [f"**{title}**", by_table(frame[frame[metric].notna()], metric)]
    left = [one for one in records if {"error", "left_out"} & set(one)]
    parts += [", ".join(f"{one[name]}" for name in KEY) + f": {why(one)}" for one in left]
    return "\n\n".join(part for part in parts if part)


def why(record: Record) -> str:
    return record.get("error") or f"does not fit ({record['left_out']})"


def by_table(frame: pd.DataFrame, metric: str) -> str:
    """Means over seeds; in brackets the number of seeds where it is not that of the others."""
    methods = in_order(frame)
    means = frame.pivot_table(index="table", columns="method", values=metric)
    counts = frame.pivot_table(index="table", columns="method", values=metric, aggfunc="count")
    rows = frame.groupby("table")["rows"].first().sort_values()
    lines = []
    for table, count in rows.items():
        most = int(counts.loc[table].max())
        cells = [cell(means.loc[table, m], counts.loc[table, m], most) for m in methods]
        lines.append([table, f"{count:,}", most, *cells])
    return common.markdown(lines, ["table", "rows of the pool", "seeds", *methods])


def cell(mean: float, count: float, most: int) -> str:
    if not np.isfinite(mean):
        return "–"
    return f"{mean:.4g}" if count == most else f"{mean:.4g} ({count:.0f})"


def in_order(frame: pd.DataFrame) -> list[str]:
    names = [name + place for place in ("", " on GPU") for name in METHODS]
    found = set(frame["method"])
    return [name for name in names if name in found] + sorted(found - set(names), key=as_sizes)


def as_sizes(method: str) -> tuple[int, ...]:
    """Sizes with the most contexts first, plain ones before the others."""
    sizes = SIZES.match(method)
    return (0, 0) if sizes is None else (int(sizes[2]), -int(sizes[1]), not sizes[3])


def against(good: pd.DataFrame, quiet: pd.DataFrame) -> str:
    """Wins and losses over tables, by log-loss or RMSE, where both have the same seeds."""
    by_seed = good.pivot_table(index=["table", "seed", "queries"], columns="method", values="loss")
    seconds = quiet.assign(all=quiet["fit_seconds"] + quiet["predict_seconds"]).pivot_table(
        index="table", columns="method", values="all"
    )
    lines = []
    for place in ("", " on GPU"):
        for ours, rivals in PAIRS:
            ours, others = ours + place, [r + (place if r in CRUMB else "") for r in rivals]
            if not {ours, *others} <= set(by_seed):
                continue
            means = by_seed[[ours, *others]].dropna().groupby("table").mean()
            if len(means):
                named = " / ".join(others)
                lines.append([ours, named, *verdict(means, ours), quicker(seconds, ours, others)])
    head = ["method", "against the best of", "tables", "wins–losses", "median ratio of losses", "p"]
    return common.markdown(lines, [*head, "no more seconds"])


def by_size(good: pd.DataFrame) -> str:
    """Losses with every K and n, relative to those of the first and of LightGBM."""
    named = good["method"].str.match(SIZES)
    names = sorted(good["method"][named].unique(), key=as_sizes)
    if not names:
        return ""
    rivals = [names[0], *({"lightgbm"} & set(good["method"]))]
    kept = good[named | (good["method"] == "lightgbm")]
    means = np.log(kept.pivot_table(index="table", columns="method", values="loss"))
    lines = []
    for name in names:
        row = [name]
        for rival in rivals:
            gap = (means[name] - means[rival]).dropna()
            row += [f"{(gap < 0).sum()} of {len(gap)}", ratio(gap.mean()), ratio(gap.median())]
        lines.append(row)
    head = [
        f"{what} {rival}" for rival in rivals for what in ("lower than", "mean to", "median to")
    ]
    return common.markdown(lines, ["K x n", *head])


def ratio(gap: float) -> str:
    return f"{np.exp(gap):.3f}"


def verdict(means: pd.DataFrame, ours: str) -> list[Any]:
    """Ratios, because losses of different tables have different units; Wilcoxon, two-sided."""
    gap = np.log(means[ours]) - np.log(means.drop(columns=ours).min(axis=1))
    p = wilcoxon(gap).pvalue if gap.any() else 1.0
    score = f"{(gap < 0).sum()}–{(gap > 0).sum()}"
    return [len(gap), score, f"{np.exp(gap.median()):.3f}", f"{p:.2g}"]


def beside(options: argparse.Namespace, ours: str, others: list[str]) -> str:
    """A method and the best of others, known only afterwards, over the queries of all seeds.

    A difference is significant as in guide.py: 1.96 standard errors. Squared errors stay squared.
    """
    lines = []
    for table in (about["name"] for about in large(options.data, options.least_rows)):
        each = {name: kept_losses(options, table, name) for name in (ours, *others)}
        seeds = sorted(set.intersection(*(set(some) for some in each.values())))
        if not seeds:
            continue
        found = {name: np.concatenate([some[s] for s in seeds]) for name, some in each.items()}
        best = min(others, key=lambda name, found=found: found[name].mean())
        gap = found[ours] - found[best]
        errors = float(gap.mean() / (gap.std(ddof=1) / len(gap) ** 0.5 or 1.0))
        said = "worse" if errors > 1.96 else "better" if errors < -1.96 else "level"
        means = [f"{one.mean():.4g}" for one in found.values()]
        lines.append([table, len(seeds), *means, said, f"{errors:.1f}"])
    head = ["table", "seeds", ours, *others, f"{ours} is", "standard errors"]
    return common.markdown(lines, head) if lines else ""


def kept_losses(options: argparse.Namespace, table: str, method: str) -> dict[int, np.ndarray]:
    """By seed."""
    paths = {
        seed: options.keep / kept_as(*key_of(table, method, seed, options))
        for seed in options.seeds or SEEDS
    }
    return {seed: np.load(path) for seed, path in paths.items() if path.exists()}


def quicker(seconds: pd.DataFrame, ours: str, others: list[str]) -> str:
    if len(others) > 1 or not {ours, *others} <= set(seconds):
        return "–"
    both = seconds[[ours, *others]].dropna()
    return f"{(both[ours] <= both[others[0]]).sum()} of {len(both)}"


def main() -> None:
    made = common.parser(__doc__, queries=2_000, least_rows=LEAST_ROWS, threads=os.cpu_count() or 1)
    common.add_data(made)
    made.add_argument("--methods", nargs="+", type=known_method, default=list(METHODS))
    made.add_argument("--tables", nargs="+", help="by default all that are large")
    made.add_argument("--seeds", nargs="+", type=int, help="0 1 2; in a report: all")
    made.add_argument("--most-rows", type=int, help="of a pool; by default all")
    made.add_argument("--device", default="cpu", help="of the networks: cpu or cuda")
    made.add_argument("--model", default="embedded", help="for all but default-0.1")
    made.add_argument("--busy", action="store_true", help="the machine does other work as well")
    made.add_argument("--keep", type=Path, help="a folder for the losses of single queries")
    made.add_argument("--merge", type=Path, nargs="+", help="write these files as one")
    made.add_argument("--report", type=Path, nargs="+", help="print tables of results")
    options = made.parse_args()
    if options.report:
        records = load(options.report)["records"].values()
        print(report([one for one in records if one["seed"] in (options.seeds or [one["seed"]])]))
        if options.keep:
            print("", *filter(None, (beside(options, *pair) for pair in BESIDE)), sep="\n\n")
    elif options.merge:
        save(options.out, load(options.merge))
    else:
        warnings.simplefilter("ignore")  # contexts larger than the pool that warms up, deprecations
        with threadpool_limits(options.threads):
            run(options)


if __name__ == "__main__":
    main()
