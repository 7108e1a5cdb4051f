"""CRUMB in TabArena's own runner, beside LightGBM, CatBoost and a random forest.

    python benchmarks/arena.py --work FOLDER --out benchmarks/results/tabarena.json
    python benchmarks/arena.py --work FOLDER --tables churn houses
    python benchmarks/arena.py --report benchmarks/results/tabarena.json

Needs the environment of ``make autogluon``. Default configurations, bagged in eight folds, TabArena
v0.1's preprocessing and metrics. The tables are local copies of TabArena's, the smallest first; one
split each, the first of three folds. ``--work`` keeps what TabArena's runner has finished, so a run
that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import common
import pandas as pd
from sklearn.model_selection import KFold, StratifiedKFold

RIVALS = ("LightGBM", "CatBoost", "RandomForest")
FOLDS, SEED = 3, 0


def experiments(options: argparse.Namespace) -> list[Any]:
    """The default configurations, as TabArena v0.1 builds them."""
    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle

    from crumb.integrations.tabarena import crumb_info

    bundle = TabArenaV0pt1ExperimentBundle(
        models=[(crumb_info.search_space, 0), *((name, 0) for name in options.rivals)],
        sequential_local_fold_fitting=True,  # in this process: two cores gain nothing from workers
        model_artifacts_base_path=options.work / "models",
        verbosity=0,
        model_verbosity=0,
    )
    return bundle.build_experiments(
        time_limit=options.time_limit, num_cpus=options.cores, num_gpus=0
    )


def task_of(options: argparse.Namespace, about: common.Record) -> tuple[Any, Any]:
    """A task of TabArena, with one split, and what TabArena wants to know of it."""
    from tabarena.benchmark.task import UserTask

    X, y = common.read_table(options.data, about)
    texts = X.select_dtypes(["object", "string"]).columns
    table = X.astype(dict.fromkeys(texts, "category")).assign(**{about["target"]: y})
    numbers = about["task"] == "regression"
    splitter = (KFold if numbers else StratifiedKFold)(FOLDS, shuffle=True, random_state=SEED)
    pool, queries = next(splitter.split(X, y))
    task = UserTask(task_name=about["name"], task_cache_path=options.work / "tasks")
    made = task.create_task(
        target_feature=about["target"],
        problem_type="regression" if numbers else "classification",
        dataset=table,
        splits={0: {0: (pool.tolist(), queries.tolist())}},
    )
    task.save_task(made)
    return task, made.metadata


def measured(options: argparse.Namespace, about: common.Record) -> list[common.Record]:
    from tabarena.benchmark.experiment import ExperimentBatchRunner
    from tabarena.benchmark.task.metadata import TaskMetadataCollection

    task, metadata = task_of(options, about)
    runner = ExperimentBatchRunner(
        str(options.work / "results"),
        TaskMetadataCollection.from_source([metadata]),
        user_tasks=[task],
        raise_on_failure=False,
    )
    facts = {"table": about["name"], "rows": about["n_rows"], "columns": about["n_features"]}
    return [common.say(facts | record_of(one)) for one in runner.run_all(experiments(options))]


def record_of(result: dict[str, Any]) -> common.Record:
    return {
        "way": result["framework"].partition("_")[0],
        "metric": result["metric"],
        "error": float(result["metric_error"]),
        "train_s": float(result["time_train_s"]),
        "predict_s": float(result["time_infer_s"]),
    }


def tables_of(options: argparse.Namespace) -> list[common.Record]:
    """TabArena's tables of the folder, the smallest first."""
    index = common.index(options.data)
    if options.tables:
        return [index[name] for name in options.tables]
    wanted = [about for about in index.values() if about.get("tabarena")]
    return sorted(wanted, key=lambda about: about["n_rows"] * about["n_features"])


def report(records: list[common.Record]) -> str:
    """Errors, seconds and ranks of the tables that all ways have finished."""
    found = pd.DataFrame(records).set_index(["table", "rows", "columns", "metric", "way"])
    wide = found.unstack("way", sort=False).dropna()
    errors, train, predict = (wide[name] for name in ("error", "train_s", "predict_s"))
    ways = list(errors.columns)
    ranks = errors.rank(axis=1)
    each = [
        [*facts, *(f"{value:.4g}" for value in errors.loc[facts]), f"{ranks['CRUMB'][facts]:g}"]
        for facts in errors.index
    ]
    seconds = [
        [facts[0], *(f"{train[way][facts]:.1f} / {predict[way][facts]:.2f}" for way in ways)]
        for facts in errors.index
    ]
    means = [
        [way, f"{ranks[way].mean():.2f}", int((ranks[way] == 1).sum()),
         f"{train[way].median():.1f}", f"{predict[way].median():.2f}"]
        for way in ways
    ]  # fmt: skip
    parts = [
        common.markdown(means, ["", "mean rank", "best on", "train s", "predict s"]),
        common.markdown(each, ["table", "rows", "columns", "metric", *ways, "rank of CRUMB"]),
        common.markdown(seconds, ["train / predict s", *ways]),
    ]
    return f"{len(errors)} tables\n\n" + "\n\n".join(parts)


def main() -> None:
    made = common.parser(__doc__, time_limit=3_600, cores=os.cpu_count() or 1)
    common.add_data(made)
    made.add_argument("--work", type=Path, help="folder for what the runner keeps")
    made.add_argument("--tables", nargs="+", help="by name; default: all of TabArena's")
    made.add_argument("--rivals", nargs="+", default=RIVALS, help="by TabArena's names")
    made.add_argument("--stop-after", type=float, default=float("inf"), help="minutes")
    options = common.asked(made, report)
    if options.work is None:
        made.error("--work is needed")
    records, started = [], time.monotonic()
    for about in tables_of(options):
        if time.monotonic() - started > 60 * options.stop_after:
            break
        records += measured(options, about)
        common.write(options, records)  # table by table


if __name__ == "__main__":
    main()
