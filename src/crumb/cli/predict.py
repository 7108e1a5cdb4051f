"""``crumb predict``: two tables in, a table of predictions out."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from crumb.cli.options import (
    add_file_options,
    add_model_options,
    add_selection_options,
    add_table_options,
    levels,
    parameters,
)
from crumb.cli.report import print_json
from crumb.cli.tables import (
    TABLES,
    Tables,
    as_classes,
    check_output,
    chosen_task,
    load_tables,
    write_table,
)

if TYPE_CHECKING:
    import pandas as pd

    from crumb.plan import Plan


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "predict", help="predict the target of one table from another", allow_abbrev=False
    )
    add_table_options(parser)
    parser.add_argument("--target", required=True, metavar="NAME", help="the column to predict")
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="where the predictions go: .csv, .csv.gz or .parquet",
    )
    parser.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="inferred from the target if not given",
    )
    parser.add_argument(
        "--no-proba", action="store_true", help="classification: no columns probability_<class>"
    )
    parser.add_argument(
        "--quantiles",
        type=levels,
        metavar="0.1,0.9",
        help="regression: add columns quantile_<level>",
    )
    parser.add_argument(
        "--drop-missing-target",
        action="store_true",
        help="leave out training rows without a target",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="contexts that `crumb plan --out` chose for this training table",
    )
    add_model_options(parser)
    add_selection_options(parser)
    add_file_options(parser)
    parser.add_argument(
        "--replan", action="store_true", help="choose contexts anew for every chunk of rows"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from crumb.cli.large import is_large, predict_large

    if is_large(args):
        predict_large(args)
        return
    check_output(args.out, TABLES, inputs=[args.train, args.test])
    tables = load_tables(args.train, args.test, args.target, args.drop_missing_target)
    assert tables.y_train is not None  # --target is required
    task = chosen_task(args, tables.y_train)
    answer, report = (_classify if task == "classification" else _regress)(args, tables)
    write_table(answer, args.out)
    if args.json:
        print_json({"task": task, "rows": len(answer), "out": args.out, **report})
        return
    print(f"{len(answer):,} predictions in {args.out}")
    print(
        f"{report['contexts']} contexts of up to {report['context_size']:,} rows, {report['seconds']:.1f} s"
    )
    if report["score"]:
        print(
            ", ".join(
                f"{name} {value:.4f}"
                for name, value in report["score"].items()
                if value is not None
            )
        )


def _classify(args: argparse.Namespace, tables: Tables) -> tuple[pd.DataFrame, dict[str, Any]]:
    from crumb import CrumbClassifier

    started = time.perf_counter()
    model = CrumbClassifier(**parameters(args)).fit(tables.X_train, as_classes(tables.y_train))
    plan = _plan(args, model, tables)
    proba = model.predict_proba(tables.X_test, plan=plan)
    answer = class_answers(model, proba, not args.no_proba)
    report = _report(plan, started)
    if tables.y_test is not None:
        report["score"] = _classification_score(
            tables.y_test, answer["prediction"], proba, model.classes_
        )
    return answer, report


def _regress(args: argparse.Namespace, tables: Tables) -> tuple[pd.DataFrame, dict[str, Any]]:
    from crumb import CrumbRegressor

    started = time.perf_counter()
    model = CrumbRegressor(**parameters(args)).fit(tables.X_train, tables.y_train)
    plan = _plan(args, model, tables)
    answer = number_answers(model, tables.X_test, plan, args.quantiles)
    report = _report(plan, started)
    if tables.y_test is not None:
        report["score"] = _regression_score(tables.y_test, answer["prediction"])
    return answer, report


def class_answers(model: Any, proba: Any, with_proba: bool) -> pd.DataFrame:
    """The columns that are written for classes."""
    import pandas as pd

    answer = pd.DataFrame({"prediction": model.classes_[proba.argmax(axis=1)]})
    if not with_proba:
        return answer
    names = [f"probability_{label}" for label in model.classes_]
    return pd.concat([answer, pd.DataFrame(proba, columns=names)], axis=1)


def number_answers(
    model: Any, rows: pd.DataFrame, plan: Plan, quantiles: list[float] | None
) -> pd.DataFrame:
    """The columns that are written for numbers."""
    import pandas as pd

    answer = pd.DataFrame({"prediction": model.predict(rows, plan=plan)})
    if not quantiles:
        return answer
    found = model.predict(rows, output_type="quantiles", quantiles=quantiles, plan=plan)
    names = [f"quantile_{level:g}" for level in quantiles]
    return pd.concat([answer, pd.DataFrame(found, columns=names)], axis=1)


def _plan(args: argparse.Namespace, model: Any, tables: Tables) -> Plan:
    """Chosen once for all outputs, or taken from a file."""
    if args.plan is None:
        return model.plan(tables.X_test)
    from crumb import Plan

    return Plan.load(args.plan)


def _report(plan: Plan, started: float) -> dict[str, Any]:
    return {
        "strategy": plan.settings["strategy"],
        "contexts": plan.n_clusters,
        "context_size": int(plan.sizes.max()),
        "seconds": time.perf_counter() - started,
        "score": {},
    }


def _classification_score(
    truth: pd.Series, prediction: pd.Series, proba: Any, classes: Any
) -> dict[str, Any]:
    from sklearn.metrics import roc_auc_score

    known = truth.notna().to_numpy()
    if not known.any():
        return {}
    labels = as_classes(truth[known])
    score: dict[str, Any] = {
        "accuracy": float((labels == prediction[known].to_numpy()).mean()),
        "roc_auc": None,
    }
    if set(labels) == set(classes) and len(classes) > 1:  # undefined where a class is missing
        chances = proba[known][:, 1] if len(classes) == 2 else proba[known]
        score["roc_auc"] = float(roc_auc_score(labels, chances, multi_class="ovr"))
    return score


def _regression_score(truth: pd.Series, prediction: pd.Series) -> dict[str, Any]:
    import numpy as np
    import pandas as pd
    from sklearn.metrics import r2_score

    numbers = pd.to_numeric(truth, errors="coerce").to_numpy(dtype=float)
    known = np.isfinite(numbers)
    if known.sum() < 2:
        return {}
    error = numbers[known] - prediction.to_numpy()[known]
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "r2": float(r2_score(numbers[known], prediction.to_numpy()[known])),
    }
