"""``crumb predict``: two tables in, a table of predictions out."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

import crumb
from crumb.cli import tables
from crumb.cli.console import print_json
from crumb.cli.options import parameters
from crumb.errors import InvalidInput
from crumb.options import positive


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
    """Queries in files, chunk by chunk."""
    from crumb.scale.answers import CHUNK_ROWS, answer_files, open_queries
    from crumb.scale.source import open_source

    started = time.perf_counter()
    tables.check_output(args.out, (".parquet", ".pq"), inputs=[args.train, args.test])
    chunk_rows = CHUNK_ROWS if args.chunk_rows is None else args.chunk_rows
    positive("--chunk-rows", chunk_rows)
    model = tables.fit_files(args)
    features = list(model.feature_names_in_)
    tables.check_kept(args.keep, args.test, list(open_source(args.test).view.features))
    queries = open_queries(args.test, list(dict.fromkeys([*features, *args.keep])))
    options = parameters(args)
    verbose, _ = options.pop("verbose"), options.pop("engine", None)
    wanted = {name: getattr(args, name) for name in ("keep", "no_proba", "quantiles", "plan")}
    about = {"task": model.task, "pool": model.pool_.fingerprint, **wanted, "options": options}
    plan = answer_files(
        model,
        queries,
        args.out,
        lambda rows, plan: _wanted(args, rows[args.keep], ask(args, model, rows[features], plan)),
        about,
        plan=_saved_plan(args),
        replan=args.replan,
        chunk_rows=chunk_rows,
        verbose=verbose,
    )
    return _report(args, model, queries.rows, plan, started)


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
