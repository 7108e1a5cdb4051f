"""``crumb plan``: which pool rows each cluster of queries would see, and why. No model runs."""

from __future__ import annotations

import argparse
from typing import Any

import crumb
from crumb.cli import tables
from crumb.cli.console import print_json, print_table
from crumb.cli.options import parameters
from crumb.errors import InvalidInput

SHOWN_CLUSTERS = 40


def run(args: argparse.Namespace) -> None:
    tables.check_output(args.out, (), inputs=[args.train, args.test])
    tables.check_output(args.picture, tables.PICTURES, inputs=[args.train, args.test])
    read = _files if tables.is_large(args) else _tables
    _show(args, crumb.select_contexts(**parameters(args), **read(args)))


def _tables(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``select_contexts`` for tables that are read whole."""
    read = tables.load_tables(args, args.test)
    y = read.y_train
    classes = None if y is None or tables.infer_task(y)[0] == "regression" else tables.as_classes(y)
    return {"X_pool": read.X_train, "X_queries": read.X_test, "y_pool": classes}


def _files(args: argparse.Namespace) -> dict[str, Any]:
    """The same for tables in Parquet: the files of the pool and a sample of the queries."""
    from crumb.options import PLANNED_ROWS
    from crumb.scale.source import open_source

    if not tables.is_parquet(args.train) or not tables.is_parquet(args.test):
        raise InvalidInput("--engine and --chunk-rows are for tables in Parquet.")
    features = list(open_source(args.train, args.target).view.features)
    queries = tables.open_queries(args.test, features)
    rows = tables.sample_rows(queries, args.chunk_rows or PLANNED_ROWS, 0)
    classes = args.target and tables.tell_task(args, tables.target_values(args)) == "classification"
    return {
        "X_pool": args.train,
        "X_queries": rows,
        "y_pool": args.target if classes else None,
        "where": tables.known_target(args),
        "columns": features,
    }


def _show(args: argparse.Namespace, plan: crumb.Plan) -> None:
    rows = plan.summary().reset_index().to_dict("records")
    if args.out:
        plan.save(args.out)
    if args.picture:
        plan.plot(path=args.picture)
    if args.json:
        written = {"out": args.out, "picture": args.picture}
        print_json({"summary": rows, "settings": plan.settings, **written})
        return
    print_table(rows, limit=SHOWN_CLUSTERS)
    for what, path in (("plan", args.out), ("picture", args.picture)):
        if path:
            print(f"{what} in {path}")
