"""``crumb plan``: which pool rows each cluster of queries would see, and why. No model runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crumb.cli.options import (
    add_file_options,
    add_selection_options,
    add_table_options,
    names,
    parameters,
)
from crumb.cli.report import print_json, print_table
from crumb.cli.tables import PICTURES, as_classes, check_output, infer_task, load_tables
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
    add_table_options(parser)
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="the column to predict: no feature; its classes guard rare ones",
    )
    parser.add_argument(
        "--drop-missing-target",
        action="store_true",
        help="leave out training rows without a target",
    )
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
    make = _planner(args)
    if args.compare is not None:
        _compare(args, make)
    else:
        _show(args, make())


def _planner(args: argparse.Namespace) -> Callable[..., Plan]:
    from crumb import select_contexts
    from crumb.cli.large import is_large, plan_large

    if is_large(args):
        if args.compare is not None:
            raise InvalidInput(
                "--compare draws the whole pool: it is for tables that are read whole."
            )
        pool, queries, own = plan_large(args)
        options = {**parameters(args), **own}
        return lambda **more: select_contexts(pool, queries, **{**options, **more})
    tables = load_tables(args.train, args.test, args.target, args.drop_missing_target)
    classes = None
    if tables.y_train is not None and infer_task(tables.y_train)[0] == "classification":
        classes = as_classes(tables.y_train)
    chosen = parameters(args)
    return lambda **more: select_contexts(
        tables.X_train, tables.X_test, y_pool=classes, **{**chosen, **more}
    )


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


def _compare(args: argparse.Namespace, make: Callable[..., Plan]) -> None:
    from crumb.picture import draw_comparison, query_groups

    plans, seconds = {}, {}
    for strategy in dict.fromkeys(args.compare):
        started = time.perf_counter()
        plans[strategy] = make(strategy=strategy)
        seconds[strategy] = time.perf_counter() - started
    groups = query_groups(plans)
    first = next(iter(plans.values()))
    pool, queries = first.pool_points, first.query_points
    rows = [_line(name, plan, pool, queries, groups, seconds[name]) for name, plan in plans.items()]
    draw_comparison(plans, pool, queries, max(groups, key=sum), args.picture)
    if args.json:
        print_json({"strategies": rows, "query_groups": len(groups), "picture": args.picture})
        return
    print_table(rows)
    print(
        f"mmd2: mean over the same {len(groups)} clusters of queries, each against the context that most of it gets"
    )
    print(f"picture in {args.picture}")


def _line(
    name: str, plan: Plan, pool: Any, queries: Any, groups: Any, seconds: float
) -> dict[str, Any]:
    """One strategy in numbers. Groups count by their queries, and are the same for every strategy."""
    import numpy as np

    from crumb.picture import group_mmd2

    return {
        "strategy": name,
        "contexts": plan.n_clusters,
        "rows": int(plan.sizes.max()),
        "mmd2": np.average(
            group_mmd2(plan, pool, queries, groups), weights=[group.sum() for group in groups]
        ),
        "median_distance": np.median(plan.query_distance),
        "seconds": seconds,
    }
