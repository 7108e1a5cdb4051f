"""``crumb demo``: the strategies side by side on the embedded model; seconds, no download."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from crumb.cli.options import add_output_options, verbosity
from crumb.cli.report import print_json, print_table
from crumb.cli.tables import PICTURES, check_output

if TYPE_CHECKING:
    from crumb.cli.digits import Digits
    from crumb.plan import Plan

ROWS, CONTEXT = 6_000, 300
PICTURE = "crumb-demo.png"
Line = dict[str, Any]  # a row of the table that is printed
STRATEGIES = ("uniform", "micp", "mmd", "full")


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "demo", help="see what CRUMB does, in under a minute", allow_abbrev=False
    )
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"pool rows ({ROWS:,})")
    parser.add_argument("--out", default=PICTURE, metavar="FILE", help=f"the picture ({PICTURE})")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_output(args.out, PICTURES)
    from crumb.cli.demo_picture import draw_demo
    from crumb.cli.digits import tilted_digits

    digits = tilted_digits(args.rows)
    context = min(CONTEXT, args.rows // 5)
    if not args.json:
        print(
            f"Handwritten digits, {digits.X_pool.shape[1]} pixels: {args.rows:,} pool rows, "
            f"{len(digits.X_queries)} queries, contexts of {context} rows, the embedded network."
        )
    lines, plans = compare(digits, context, verbosity(args))
    draw_demo(lines, plans, digits, args.out)
    if args.json:
        print_json({"strategies": lines, "picture": args.out})
        return
    print_table(lines)
    print("", *what_to_see(lines, args.out), sep="\n")


def compare(digits: Digits, context: int, verbose: int) -> tuple[list[Line], dict[str, Plan]]:
    """Every strategy with the same network, the same pool and the same context size."""
    from crumb import CrumbClassifier

    # Load the network and start the threads first: the first strategy must not pay for them.
    warm_up = CrumbClassifier(context_size=20).fit(digits.X_pool[:100], digits.y_pool[:100])
    warm_up.predict(digits.X_queries[:2])
    lines, plans = [], {}
    for strategy in STRATEGIES:
        model = CrumbClassifier(strategy=strategy, context_size=context, verbose=verbose)
        model.fit(digits.X_pool, digits.y_pool)
        started = time.perf_counter()
        plans[strategy] = plan = model.plan(digits.X_queries)
        planned = time.perf_counter()
        proba = model.predict_proba(digits.X_queries, plan=plan)
        spent = planned - started, time.perf_counter() - planned
        lines.append(_line(plan, digits.y_queries, proba, *spent))
    return lines, plans


def _line(plan: Plan, truth: Any, proba: Any, selection_s: float, passes_s: float) -> Line:
    """A strategy in numbers. The classes are the digits, so a column's number is its class."""
    from sklearn.metrics import accuracy_score, roc_auc_score

    return {
        "strategy": plan.settings["strategy"],
        "contexts": plan.n_clusters,
        "rows": int(plan.sizes.max()),
        "accuracy": float(accuracy_score(truth, proba.argmax(axis=1))),
        "roc_auc": float(roc_auc_score(truth, proba, multi_class="ovr")),
        "selection_s": round(selection_s, 2),
        "passes_s": round(passes_s, 2),
    }


def what_to_see(lines: list[Line], picture: str) -> list[str]:
    """Two lines that say what came out, and two that say where to go."""
    by_name = {line["strategy"]: line for line in lines}
    crumb, full = by_name["mmd"], by_name["full"]
    verdict = (
        "More rows do not help here: this small network gains from examples near its queries; "
        "large ones mostly do best with all rows."
        if crumb["accuracy"] > full["accuracy"]
        else "Full context is at least as accurate, as it mostly is: "
        "what CRUMB saves is time and memory."
    )
    return [
        f"CRUMB (mmd) gets {crumb['accuracy']:.1%} right in {seconds(crumb):.1f} s from "
        f"{crumb['rows']:,} rows a cluster; full context {full['accuracy']:.1%} in "
        f"{seconds(full):.1f} s from all {full['rows']:,}.",
        verdict,
        f"The picture is in {picture}. On a table of your own:",
        "  crumb predict --train train.csv --test test.csv --target NAME --out predictions.csv",
    ]


def seconds(line: Line) -> float:
    return line["selection_s"] + line["passes_s"]
