"""``crumb plan``: which pool rows each cluster of queries would see, and why. No model runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import crumb
from crumb.cli import tables
from crumb.cli.console import print_json, print_table
from crumb.cli.options import parameters
from crumb.errors import InvalidInput

COMPARISON_PICTURE = "crumb-compare.png"
SHOWN_CLUSTERS = 40


def run(args: argparse.Namespace) -> None:
    several = args.compare is not None
    if several and (args.out or hasattr(args, "strategy")):
        args.usage_error("--compare makes several plans: it goes with neither --out nor --strategy")
    if several and args.picture is None:
        args.picture = COMPARISON_PICTURE
    tables.check_output(args.out, (), inputs=[args.train, args.test])
    tables.check_output(args.picture, tables.PICTURES, inputs=[args.train, args.test])
    arguments = parameters(args) | (_files if tables.is_large(args) else _tables)(args)
    if several:
        _compare(args, lambda strategy: crumb.select_contexts(**arguments, strategy=strategy))
    else:
        _show(args, crumb.select_contexts(**arguments))


def _tables(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``select_contexts`` for tables that are read whole."""
    read = tables.load_tables(args, args.test)
    y = read.y_train
    classes = None if y is None or tables.infer_task(y)[0] == "regression" else tables.as_classes(y)
    return {"X_pool": read.X_train, "X_queries": read.X_test, "y_pool": classes}


def _files(args: argparse.Namespace) -> dict[str, Any]:
    """The same for tables in Parquet: the files of the pool and a sample of the queries."""
    from crumb.options import PLANNED_ROWS
    from crumb.scale.answers import open_queries, sample_rows
    from crumb.scale.source import open_source

    if args.compare is not None:
        raise InvalidInput("--compare draws the whole pool: it is for tables that are read whole.")
    if not tables.is_parquet(args.train) or not tables.is_parquet(args.test):
        raise InvalidInput("--engine and --chunk-rows are for tables in Parquet.")
    features = list(open_source(args.train, args.target).view.features)
    rows = sample_rows(open_queries(args.test, features), args.chunk_rows or PLANNED_ROWS, 0)
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


def _compare(args: argparse.Namespace, make: Callable[[str], crumb.Plan]) -> None:
    from crumb.picture import draw_comparison, group_mmd2, query_groups

    plans, seconds = {}, {}
    for strategy in dict.fromkeys(args.compare):
        started = time.perf_counter()
        plans[strategy] = make(strategy)
        seconds[strategy] = time.perf_counter() - started
    groups = query_groups(plans)
    first = next(iter(plans.values()))
    pool, queries = first.pool_points, first.query_points
    assert pool is not None  # a plan that was just made has its points
    assert queries is not None
    sizes = [group.sum() for group in groups]
    rows = [
        {
            "strategy": name,
            "contexts": plan.n_clusters,
            "rows": int(plan.sizes.max()),
            "mmd2": np.average(group_mmd2(plan, pool, queries, groups), weights=sizes),
            "median_distance": np.median(plan.query_distance),
            "seconds": seconds[name],
        }
        for name, plan in plans.items()
    ]
    draw_comparison(plans, pool, queries, groups[np.argmax(sizes)], args.picture)
    if args.json:
        print_json({"strategies": rows, "query_groups": len(groups), "picture": args.picture})
        return
    print_table(rows)
    print(
        f"mmd2: mean over the same {len(groups)} clusters of queries, "
        "each against the context that most of it gets"
    )
    print(f"picture in {args.picture}")
