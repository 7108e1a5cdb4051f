"""CRUMB in TabArena's own runner, beside LightGBM, CatBoost and a random forest.

    python benchmarks/arena.py --work FOLDER --out benchmarks/results/tabarena.json
    python benchmarks/arena.py --work FOLDER --tables churn houses
    python benchmarks/arena.py --report benchmarks/results/tabarena.json

Needs the environment of ``make autogluon``. Default configurations, bagged in eight folds, TabArena
v0.1's preprocessing and metrics. The tables are local copies of TabArena's, the smallest first; one
split each, the first of three folds. ``--work`` keeps what TabArena's runner has finished, and what
``--out`` has is not made again, so a run that was ended goes on where it was. Processes with
different ``--tables`` may share both. ``--again CRUMB`` replaces the records of CRUMB. With
``--busy``, for a machine that does other work as well, the report leaves out the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
import pandas as pd
from scipy.stats import wilcoxon
from sklearn.model_selection import KFold, StratifiedKFold

CRUMB = "CRUMB"
WAYS = (CRUMB, "LightGBM", "CatBoost", "RandomForest")
FOLDS, SEED = 3, 0
ONE_CONTEXT = 2_000  # training rows that CRUMB's default gives one context on a CPU
DUELS = ("", "mean rank", "best on", "CRUMB wins–loses", "error ratio", "p")
DUELS += ("training ratio", "prediction ratio")


def experiments(options: argparse.Namespace, ways: list[str]) -> list[Any]:
    """The default configurations, as TabArena v0.1 builds them."""
    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle

    from crumb.integrations.tabarena import crumb_info

    bundle = TabArenaV0pt1ExperimentBundle(
        models=[(crumb_info.search_space if way == CRUMB else way, 0) for way in ways],
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


def measured(
    options: argparse.Namespace, about: common.Record, ways: list[str]
) -> list[common.Record]:
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
    facts |= {"busy": True} if options.busy else {}
    results = runner.run_all(experiments(options, ways))
    return [common.say(facts | record_of(one)) for one in results]


def record_of(result: dict[str, Any]) -> common.Record:
    """AutoGluon gives a fold at least a tenth of the limit: a shorter one has not been cut.

    CRUMB's folds are gone once it is refitted; its one model counts.
    """
    folds = result["method_metadata"]["info"]["children_info"].values()
    return {
        "way": result["framework"].partition("_")[0],
        "metric": result["metric"],
        "error": float(result["metric_error"]),
        "train_s": float(result["time_train_s"]),
        "longest_fold_s": max(one["fit_time"] for one in folds),
        "predict_s": float(result["time_infer_s"]),
    }


def finished(options: argparse.Namespace) -> list[common.Record]:
    """The records of ``--out``, which another process may be adding to."""
    there = options.out is not None and options.out.exists()
    return json.loads(options.out.read_text())["records"] if there else []


def run(options: argparse.Namespace) -> None:
    started = time.monotonic()
    common.write(options, [one for one in finished(options) if one["way"] not in options.again])
    for about in tables_of(options):
        if time.monotonic() - started > 60 * options.stop_after:
            break
        done = {one["way"] for one in finished(options) if one["table"] == about["name"]}
        if ways := [way for way in options.ways if way not in done]:
            records = measured(options, about, ways)
            common.write(options, finished(options) + records)  # table by table


def tables_of(options: argparse.Namespace) -> list[common.Record]:
    """TabArena's tables of the folder, the smallest first."""
    index = common.index(options.data)
    if options.tables:
        return [index[name] for name in options.tables]
    wanted = [about for about in index.values() if about.get("tabarena")]
    return sorted(wanted, key=lambda about: about["n_rows"] * about["n_features"])


def report(records: list[common.Record]) -> str:
    """Ranks over the tables that all ways have finished, duels with CRUMB, and all errors."""
    found = pd.DataFrame(records)
    if "busy" in found:
        found.loc[found["busy"].eq(True), ["train_s", "predict_s"]] = np.nan
    found = found.set_index(["rows", "table", "columns", "metric", "way"])
    wide = found.unstack("way").sort_index()
    several = wide.index.get_level_values("rows") * (FOLDS - 1) / FOLDS > ONE_CONTEXT
    groups = {"": wide, ", one context": wide[~several], ", several contexts": wide[several]}
    parts = [f"{len(one)} tables{of}\n\n{duels(one)}" for of, one in groups.items() if len(one)]
    each = [
        [table, rows, *more, *(f"{errors[way]:.4g}" for way in WAYS), f"{errors.rank()[CRUMB]:g}"]
        for (rows, table, *more), errors in wide["error"].iterrows()
    ]
    head = ["table", "rows", "columns", "metric", *WAYS, "rank of CRUMB"]
    return "\n\n".join([*parts, common.markdown(each, head)])


def duels(wide: pd.DataFrame) -> str:
    """Ratios are CRUMB's over the other's, by table: of errors the geometric mean, of seconds the
    median, where neither machine was busy. p is of Wilcoxon's test of the logarithms of the errors'
    ratios. A duel counts the tables that both have finished."""
    ranks, lines = wide["error"].dropna().rank(axis=1), []
    for way in WAYS:
        logs = np.log(wide["error", CRUMB] / wide["error", way]).dropna()
        line = [way, f"{ranks[way].mean():.2f}", f"{(ranks[way] == 1).sum()} of {len(ranks)}"]
        if way != CRUMB:
            times = [wide[kind, CRUMB] / wide[kind, way] for kind in ("train_s", "predict_s")]
            line += [f"{(logs < 0).sum()}–{(logs > 0).sum()}", f"{np.exp(logs.mean()):.3f}"]
            line += [f"{wilcoxon(logs).pvalue:.2g}", *(f"{one.median():.3g}" for one in times)]
        lines.append(line + [""] * (len(DUELS) - len(line)))
    return common.markdown(lines, DUELS)


def main() -> None:
    made = common.parser(__doc__, time_limit=3_600, cores=os.cpu_count() or 1)
    common.add_data(made)
    made.add_argument("--work", type=Path, help="folder for what the runner keeps")
    made.add_argument("--tables", nargs="+", help="by name; default: all of TabArena's")
    made.add_argument("--ways", nargs="+", default=WAYS, help="CRUMB, and TabArena's names")
    made.add_argument("--again", nargs="+", default=(), help="ways whose records are replaced")
    made.add_argument("--busy", action="store_true", help="the machine does other work as well")
    made.add_argument("--stop-after", type=float, default=float("inf"), help="minutes")
    options = common.asked(made, report)
    if options.work is None:
        made.error("--work is needed")
    run(options)


if __name__ == "__main__":
    main()
