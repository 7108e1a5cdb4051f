"""``crumb predict`` and ``crumb plan`` for tables in Parquet that are not read whole."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

from crumb.cli.options import parameters
from crumb.cli.report import note, print_json
from crumb.cli.tables import (
    FEW_VALUES,
    as_classes,
    check_output,
    check_task,
    read_table,
    suggestion,
)
from crumb.errors import InvalidInput

OPERATORS = ("<=", ">=", "!=", "==", "=", "<", ">")


def is_large(args: argparse.Namespace) -> bool:
    """Whether a table is a folder or glob, too large to be read whole, or asked to be treated so."""
    asked = args.where or args.engine or args.chunk_rows or getattr(args, "replan", False)
    return bool(asked) or any(_many_or_big(path) for path in (args.train, args.test))


def predict_large(args: argparse.Namespace) -> None:
    from crumb import CrumbClassifier, CrumbRegressor, Plan
    from crumb.cli.predict import class_answers, number_answers
    from crumb.checks import positive
    from crumb.scale.answers import CHUNK_ROWS, answer_files, open_queries

    started = time.perf_counter()
    check_output(args.out, (".parquet", ".pq"), inputs=[args.train, args.test])
    chunk_rows = (
        CHUNK_ROWS if args.chunk_rows is None else positive("--chunk-rows", args.chunk_rows)
    )
    task = args.task or _infer_task(args)
    check_task(args, task)
    options = parameters(args) | ({"engine": args.engine} if args.engine else {})
    model = _fit((CrumbClassifier if task == "classification" else CrumbRegressor)(**options), args)
    queries = open_queries(args.test, list(model.feature_names_in_))

    def answer(rows: Any, plan: Any) -> Any:
        if task == "regression":
            return number_answers(model, rows, plan, args.quantiles)
        return class_answers(model, model.predict_proba(rows, plan=plan), not args.no_proba)

    about = {
        "task": task,
        "pool": model.pool_.fingerprint,
        "no_proba": args.no_proba,
        "quantiles": args.quantiles,
    }
    plan = answer_files(
        queries,
        args.out,
        answer,
        model.plan,
        {
            **about,
            "plan": args.plan,
            "options": {k: v for k, v in options.items() if k not in ("verbose", "engine")},
        },
        plan=None if args.plan is None else Plan.load(args.plan),
        replan=args.replan,
        chunk_rows=chunk_rows,
        seed=model.options_.seed,
        verbose=options["verbose"],
    )
    report = {
        "strategy": plan.settings["strategy"],
        "contexts": plan.n_clusters,
        "context_size": int(plan.sizes.max()),
        "seconds": time.perf_counter() - started,
    }
    if args.json:
        print_json({"task": task, "rows": queries.rows, "out": args.out, **report})
        return
    print(f"{queries.rows:,} predictions in {args.out}")
    print(
        f"{report['contexts']} contexts of up to {report['context_size']:,} rows, {report['seconds']:.1f} s"
    )


def plan_large(args: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """What ``select_contexts`` gets: the pool's files, a sample of the queries, and the options that go with them."""
    from crumb.scale.answers import PLANNED_ROWS, open_queries, sample_rows
    from crumb.scale.source import open_source

    if not is_parquet(args.train) or not is_parquet(args.test):
        raise InvalidInput("--where, --engine and --chunk-rows are for tables in Parquet.")
    where = condition(args)
    view = open_source(args.train, args.target, where).view
    queries = open_queries(args.test, list(view.features))
    rows = sample_rows(queries, args.chunk_rows or PLANNED_ROWS, 0)
    target = args.target if args.target and _infer_task(args) == "classification" else None
    options = {"where": where, "columns": list(view.features), "y_pool": target}
    return args.train, rows, options | ({"engine": args.engine} if args.engine else {})


def condition(args: argparse.Namespace) -> Any:
    """What ``--where`` and ``--drop-missing-target`` say, as one filter."""
    import pyarrow.compute as pc

    from crumb.scale.source import open_source

    found = None
    if args.where:
        schema = open_source(args.train).view.schema
        for text in args.where:
            one = _comparison(text, schema)
            found = one if found is None else found & one
    if args.drop_missing_target and args.target:
        known = ~pc.field(args.target).is_null(nan_is_null=True)
        found = known if found is None else found & known
    return found


def is_parquet(path: str) -> bool:
    return not path.lower().endswith((".csv", ".csv.gz"))


def _many_or_big(path: str) -> bool:
    from glob import has_magic

    if Path(path).is_dir() or (has_magic(path) and not Path(path).exists()):
        return True
    if not path.lower().endswith(".parquet") or not Path(path).is_file():
        return False
    import pyarrow.parquet as pq

    from crumb.scale.pool import HELD_CELLS

    try:
        footer = pq.read_metadata(path)
    except Exception:  # whoever reads it says what is wrong
        return False
    return footer.num_rows * footer.num_columns > HELD_CELLS


def _fit(model: Any, args: argparse.Namespace) -> Any:
    if is_parquet(args.train):
        return model.fit(args.train, args.target, where=condition(args))
    if args.where:
        raise InvalidInput("--where is for training tables in Parquet.")
    table = read_table(args.train)
    if args.target not in table.columns:
        raise InvalidInput(
            f"{args.train} has no column {args.target!r}{suggestion(args.target, list(table.columns))}"
        )
    if args.drop_missing_target:
        table = table[table[args.target].notna()].reset_index(drop=True)
    labels = table.pop(args.target)
    return model.fit(table, as_classes(labels) if model.task == "classification" else labels)


def _infer_task(args: argparse.Namespace) -> str:
    """Classes or numbers, by the target's type and, for whole numbers, by how many of them there are."""
    import pyarrow as pa

    from crumb.cli.tables import infer_task
    from crumb.scale.source import open_source

    if not is_parquet(args.train):
        return infer_task(read_table(args.train)[args.target])[0]
    source = open_source(args.train, args.target, condition(args))
    kind = source.view.schema.field(args.target).type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    values: set[Any] = set()
    for block in (
        (block for shard in source.shards for block in shard.blocks([args.target]))
        if number
        else ()
    ):
        values.update(
            value for value in block[args.target].unique().to_pylist() if value is not None
        )
        if len(values) > FEW_VALUES or any(value % 1 for value in values):
            note(f"the target {args.target!r} holds numbers: regression (--task overrides).")
            return "regression"
    note(f"the target {args.target!r} holds classes: classification (--task overrides).")
    return "classification"


def _comparison(text: str, schema: Any) -> Any:
    """``column operator value`` → a filter; the value is read as what the column holds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = re.fullmatch(rf"\s*(.+?)\s*({'|'.join(OPERATORS)})\s*(.*?)\s*", text)
    if found is None or found[1] not in schema.names:
        raise InvalidInput(
            f"--where must be a column, one of {' '.join(OPERATORS)} and a value, got {text!r}."
        )
    name, operator, value = found.groups()
    try:
        scalar = pa.scalar(value.strip("'\"")).cast(schema.field(name).type)
    except pa.ArrowException as error:
        raise InvalidInput(f"--where {text!r}: {error}") from error
    column = pc.field(name)
    compared = {
        "<": column < scalar,
        ">": column > scalar,
        "<=": column <= scalar,
        ">=": column >= scalar,
    }
    return {**compared, "!=": column != scalar}.get(operator, column == scalar)
