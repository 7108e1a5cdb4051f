"""``crumb plan``: which pool rows each cluster of queries would see, and why. No model runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crumb.cli.files import condition, infer_file_task, is_large, is_parquet
from crumb.cli.options import add_common, add_file_options, add_selection_options, names, parameters
from crumb.cli.report import print_json, print_table
from crumb.cli.tables import PICTURES, as_classes, check_output, infer_task, load_tables, tell_task
from crumb.errors import InvalidInput

if TYPE_CHECKING:
    from crumb.plan import Plan

COMPARED = "uniform,micp,mmd"
COMPARISON_PICTURE = "crumb-compare.png"
SHOWN_CLUSTERS = 40


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "plan", help="choose contexts without running a model, and look at them", allow_abbrev=False
    )
    add_common(parser, "--train", "--test")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the column to predict: it is no feature, and contexts keep its rare classes",
    )
    add_common(parser, "--drop-missing-target")
    parser.add_argument(
        "--out", metavar="FILE", help="save the plan for Plan.load and crumb predict --plan"
    )
    parser.add_argument("--picture", metavar="FILE", help="draw the plan: .png, .pdf, .svg or .jpg")
    parser.add_argument(
        "--compare",
        type=names,
        nargs="?",
        const=names(COMPARED),
        metavar="A,B,…",
        help=f"compare strategies ({COMPARED}) and draw what they give one cluster of queries",
    )
    add_selection_options(parser)
    add_file_options(parser)
    parser.set_defaults(run=lambda args: run(args, parser.error))


def run(args: argparse.Namespace, usage_error: Callable[[str], Any]) -> None:
    if args.compare is not None and (args.out or hasattr(args, "strategy")):
        usage_error("--compare makes several plans: it goes with neither --out nor --strategy")
    if args.compare is not None and args.picture is None:
        args.picture = COMPARISON_PICTURE
    check_output(args.out, (), inputs=[args.train, args.test])
    check_output(args.picture, PICTURES, inputs=[args.train, args.test])
    from crumb import select_contexts

    arguments = parameters(args) | (_files if is_large(args) else _tables)(args)
    if args.compare is not None:
        _compare(args, lambda strategy: select_contexts(**arguments, strategy=strategy))
    else:
        _show(args, select_contexts(**arguments))


def _tables(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``select_contexts`` for tables that are read whole."""
    tables = load_tables(args.train, args.test, args.target, args.drop_missing_target)
    y, classes = tables.y_train, None
    if y is not None and infer_task(y)[0] == "classification":
        classes = as_classes(y)
    return {"X_pool": tables.X_train, "X_queries": tables.X_test, "y_pool": classes}


def _files(args: argparse.Namespace) -> dict[str, Any]:
    """The same for tables in Parquet: the files of the pool and a sample of the queries."""
    from crumb.scale.answers import PLANNED_ROWS, open_queries, sample_rows
    from crumb.scale.source import open_source

    if args.compare is not None:
        raise InvalidInput("--compare draws the whole pool: it is for tables that are read whole.")
    if not is_parquet(args.train) or not is_parquet(args.test):
        raise InvalidInput("--where, --engine and --chunk-rows are for tables in Parquet.")
    where = condition(args)
    features = list(open_source(args.train, args.target, where).view.features)
    rows = sample_rows(open_queries(args.test, features), args.chunk_rows or PLANNED_ROWS, 0)
    guarded = args.target and tell_task(args, *infer_file_task(args)) == "classification"
    return {
        "X_pool": args.train,
        "X_queries": rows,
        "y_pool": args.target if guarded else None,
        "where": where,
        "columns": features,
    }


def _show(args: argparse.Namespace, plan: Plan) -> None:
    rows = plan.summary().reset_index().to_dict("records")
    if args.out:
        plan.save(args.out)
    if args.picture:
        plan.plot(path=args.picture)
    if args.json:
        print_json(
            {"summary": rows, "settings": plan.settings, "out": args.out, "picture": args.picture}
        )
        return
    print_table(rows, limit=SHOWN_CLUSTERS)
    for what, path in (("plan", args.out), ("picture", args.picture)):
        if path:
            print(f"{what} in {path}")


def _compare(args: argparse.Namespace, make: Callable[[str], Plan]) -> None:
    import numpy as np

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
    rows, sizes = [], [group.sum() for group in groups]
    for name, plan in plans.items():
        mmd2 = np.average(group_mmd2(plan, pool, queries, groups), weights=sizes)
        rows.append(
            {
                "strategy": name,
                "contexts": plan.n_clusters,
                "rows": int(plan.sizes.max()),
                "mmd2": mmd2,
                "median_distance": np.median(plan.query_distance),
                "seconds": seconds[name],
            }
        )
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
