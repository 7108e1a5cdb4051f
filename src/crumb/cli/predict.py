"""``crumb predict``: two tables in, a table of predictions out."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

import crumb
from crumb.cli import tables
from crumb.cli.console import print_json
from crumb.cli.options import parameters, verbosity
from crumb.errors import InvalidInput
from crumb.files import atomic_write
from crumb.machine import progress_bar
from crumb.options import PLANNED_ROWS, positive
from crumb.scale.source import Source, open_source

CHUNK_ROWS = 100_000
UNSAID = ("verbose", "engine")  # options that change no answer


def run(args: argparse.Namespace) -> None:
    report = _predict_files(args) if tables.is_large(args) else _predict_tables(args)
    if args.json:
        print_json(report)
        return
    print(f"{report['rows']:,} predictions in {args.out}")
    size, seconds = report["context_size"], report["seconds"]
    print(f"{report['contexts']} contexts of up to {size:,} rows, {seconds:.1f} s")
    score = {name: value for name, value in report.get("score", {}).items() if value is not None}
    if score:
        print(", ".join(f"{name} {value:.4f}" for name, value in score.items()))


def _predict_tables(args: argparse.Namespace) -> dict[str, Any]:
    """Tables that are read whole; scored where the test table has the target."""
    tables.check_output(args.out, tables.TABLES, inputs=[args.train, args.test])
    read = tables.load_tables(args, args.test)
    started = time.perf_counter()
    model = tables.fit_table(args, read.X_train, read.y_train)
    plan = _saved_plan(args) or model.plan(read.X_test)
    answers = ask(args, model, read.X_test, plan)
    report = _report(args, model, len(answers), plan, started)
    report["score"] = {} if read.y_test is None else score(model, read.y_test, answers)
    tables.write_table(_wanted(args, read.kept, answers), args.out)
    return report


def _predict_files(args: argparse.Namespace) -> dict[str, Any]:
    """Queries in files, chunk by chunk, each in a file of its own until all are there.

    The folder ``<out>.parts`` holds what is done: ``job.json`` says for what, and ``plan.zip`` is
    the plan that chunks share. An interrupted run continues where it stopped. The answers appear
    under their name only when they are complete.
    """
    started = time.perf_counter()
    tables.check_output(args.out, (".parquet", ".pq"), inputs=[args.train, args.test])
    size = positive("--chunk-rows", CHUNK_ROWS if args.chunk_rows is None else args.chunk_rows)
    model = tables.fit_files(args)
    features = list(model.feature_names_in_)
    tables.check_kept(args.keep, args.test, list(open_source(args.test).view.features))
    queries = tables.open_queries(args.test, list(dict.fromkeys([*features, *args.keep])))
    folder = Path(args.out).with_name(Path(args.out).name + ".parts")
    _begin(folder, _job(args, model, queries, size))

    def make_plan() -> crumb.Plan:
        """For a sample of all queries."""
        return model.plan(tables.sample_rows(queries, PLANNED_ROWS, model.options_.seed)[features])

    plan, shared = _saved_plan(args), folder / "plan.zip"
    if plan is None and not args.replan:
        if not shared.exists():
            make_plan().save(shared)
        plan = crumb.Plan.load(shared)
    parts = {folder / f"{at // size:06d}.parquet": at for at in range(0, queries.rows, size)}
    with progress_bar(len(parts), "chunks", verbosity(args)) as advance:
        for part, start in parts.items():
            if not part.exists():
                ids = np.arange(start, min(start + size, queries.rows))
                rows = tables.read_rows(queries, ids)
                plan = model.plan(rows[features]) if args.replan or plan is None else plan
                answers = ask(args, model, rows[features], plan)
                tables.write_table(_wanted(args, rows[args.keep], answers), str(part))
            advance(1)
    _join(args.out, list(parts))
    shutil.rmtree(folder)
    return _report(args, model, queries.rows, plan or make_plan(), started)


def _job(args: argparse.Namespace, model: Any, queries: Source, size: int) -> dict[str, Any]:
    """All that decides the answers: parts made with another one are refused."""
    options = {name: one for name, one in parameters(args).items() if name not in UNSAID}
    wanted = ("keep", "no_proba", "quantiles", "plan", "replan")
    return {
        "task": model.task,
        "pool": model.pool_.fingerprint,
        "options": options,
        "chunk_rows": size,
        "rows": queries.rows,
        "files": sorted({shard.path for shard in queries.shards}),
        **{name: getattr(args, name) for name in wanted},
    }


def _begin(folder: Path, job: dict[str, Any]) -> None:
    """Make the folder, or check that its parts belong to the same answers."""
    text, described = json.dumps(job, indent=1, sort_keys=True, default=str), folder / "job.json"
    if not described.exists():
        with atomic_write(described) as file:
            file.write(text.encode())
    elif described.read_text() != text:
        raise InvalidInput(f"{folder} holds parts of other answers: remove it, or write elsewhere.")


def _join(out: str, parts: list[Path]) -> None:
    """All parts in one file, each a row group."""
    schema = pq.read_schema(parts[0])
    with atomic_write(out) as file, pq.ParquetWriter(file, schema) as writer:
        for part in parts:
            table = pq.read_table(part)
            writer.write_table(table.cast(schema), row_group_size=max(1, len(table)))


def _saved_plan(args: argparse.Namespace) -> crumb.Plan | None:
    return None if args.plan is None else crumb.Plan.load(args.plan)


def ask(args: argparse.Namespace, model: Any, rows: pd.DataFrame, plan: crumb.Plan) -> pd.DataFrame:
    """A prediction a row, and beside it the probabilities or quantiles."""
    if model.task == "classification":
        return with_chances(model, model.predict_proba(rows, plan=plan))
    found = pd.DataFrame({"prediction": model.predict(rows, plan=plan)})
    if not getattr(args, "quantiles", None):
        return found
    values = model.predict(rows, output_type="quantiles", quantiles=args.quantiles, plan=plan)
    names = [f"quantile_{level:g}" for level in args.quantiles]
    return found.join(pd.DataFrame(values, columns=names))


def with_chances(model: Any, chances: np.ndarray) -> pd.DataFrame:
    """The most probable class of each row, and beside it the probabilities."""
    names = [f"probability_{label}" for label in model.classes_]
    found = pd.DataFrame({"prediction": model.classes_[chances.argmax(axis=1)]})
    return found.join(pd.DataFrame(chances, columns=names))


def _wanted(args: argparse.Namespace, kept: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """What goes into the file: the columns that are kept, and the answers."""
    answers = answers[["prediction"]] if args.no_proba else answers
    twice = [name for name in args.keep if name in answers.columns]
    if twice:
        raise InvalidInput(f"--keep: {twice[0]!r} is also a column of predictions: rename it.")
    return pd.concat([kept.reset_index(drop=True), answers], axis=1)


def _report(
    args: argparse.Namespace, model: Any, rows: int, plan: crumb.Plan, started: float
) -> dict[str, Any]:
    return {
        "task": model.task,
        "rows": rows,
        "out": args.out,
        "strategy": plan.settings["strategy"],
        "contexts": plan.n_clusters,
        "context_size": int(plan.sizes.max()),
        "seconds": time.perf_counter() - started,
    }


def score(model: Any, truth: pd.Series, answers: pd.DataFrame) -> dict[str, Any]:
    """How good the predictions are where the test table has the target."""
    from sklearn.metrics import r2_score, roc_auc_score, root_mean_squared_error

    if model.task == "regression":
        numbers = pd.to_numeric(truth, errors="coerce").to_numpy(dtype=float)
        known = np.isfinite(numbers)
        if known.sum() < 2:
            return {}
        pair = numbers[known], answers["prediction"].to_numpy()[known]
        return {"rmse": float(root_mean_squared_error(*pair)), "r2": float(r2_score(*pair))}
    known = truth.notna().to_numpy()
    if not known.any():
        return {}
    labels, chances = tables.as_classes(truth[known]), answers.iloc[known, 1:].to_numpy()
    accuracy = float((labels == answers["prediction"].to_numpy()[known]).mean())
    if set(labels) != set(model.classes_) or chances.shape[1] == 1:
        return {"accuracy": accuracy, "roc_auc": None}  # undefined where a class is missing
    chances = chances[:, 1] if chances.shape[1] == 2 else chances
    roc_auc = float(roc_auc_score(labels, chances, multi_class="ovr"))
    return {"accuracy": accuracy, "roc_auc": roc_auc}
