"""``crumb demo``: the strategies side by side on the embedded model; seconds, no download."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crumb.cli.options import add_output_options
from crumb.cli.report import print_json, print_table
from crumb.cli.tables import PICTURES, check_output

if TYPE_CHECKING:
    from crumb.cli.digits import Digits
    from crumb.plan import Plan

ROWS, CONTEXT = 6_000, 300
STRATEGIES = ("uniform", "micp", "mmd", "full")


@dataclass(frozen=True)
class Outcome:
    """One strategy on the demo's table."""

    strategy: str
    plan: Plan
    accuracy: float
    roc_auc: float
    selection_s: float
    passes_s: float

    @property
    def rows(self) -> int:
        return int(self.plan.sizes.max())

    @property
    def seconds(self) -> float:
        return self.selection_s + self.passes_s

    def line(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "contexts": self.plan.n_clusters,
            "rows": self.rows,
            "accuracy": self.accuracy,
            "roc_auc": self.roc_auc,
            "selection_s": round(self.selection_s, 2),
            "passes_s": round(self.passes_s, 2),
        }


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "demo", help="see what CRUMB does, in under a minute", allow_abbrev=False
    )
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"pool rows ({ROWS:,})")
    parser.add_argument(
        "--out", default="crumb-demo.png", metavar="FILE", help="the picture (crumb-demo.png)"
    )
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
    watched = int(not args.quiet and sys.stderr.isatty())
    outcomes = compare(digits, context, watched)
    draw_demo(outcomes, digits, args.out)
    if args.json:
        print_json({"strategies": [outcome.line() for outcome in outcomes], "picture": args.out})
        return
    print_table([outcome.line() for outcome in outcomes])
    print()
    print("\n".join(what_to_see(outcomes, args.out)))


def compare(digits: Digits, context: int, verbose: int) -> list[Outcome]:
    """Every strategy with the same network, the same pool and the same budget."""
    from crumb import CrumbClassifier

    # Loading the network and starting the threads is nobody's cost.
    CrumbClassifier(context_size=20).fit(digits.X_pool[:100], digits.y_pool[:100]).predict(
        digits.X_queries[:2]
    )
    return [_outcome(strategy, digits, context, verbose) for strategy in STRATEGIES]


def _outcome(strategy: str, digits: Digits, context: int, verbose: int) -> Outcome:
    from sklearn.metrics import accuracy_score, roc_auc_score

    from crumb import CrumbClassifier

    model = CrumbClassifier(strategy=strategy, context_size=context, verbose=verbose)
    model.fit(digits.X_pool, digits.y_pool)
    started = time.perf_counter()
    plan = model.plan(digits.X_queries)
    planned = time.perf_counter()
    proba = model.predict_proba(digits.X_queries, plan=plan)
    finished = time.perf_counter()
    return Outcome(
        strategy,
        plan,
        float(accuracy_score(digits.y_queries, model.classes_[proba.argmax(axis=1)])),
        float(roc_auc_score(digits.y_queries, proba, multi_class="ovr")),
        planned - started,
        finished - planned,
    )


def what_to_see(outcomes: list[Outcome], picture: str) -> list[str]:
    """Two lines that say what came out, whichever way it did, and two that say where to go."""
    by_name = {outcome.strategy: outcome for outcome in outcomes}
    crumb, full = by_name["mmd"], by_name["full"]
    verdict = (
        "More rows do not help here: this small network gains from examples near its queries; large ones "
        "mostly do best with all rows."
        if crumb.accuracy > full.accuracy
        else "Full context is at least as accurate, as it mostly is: what CRUMB saves is time and memory."
    )
    return [
        f"CRUMB (mmd) gets {crumb.accuracy:.1%} right in {crumb.seconds:.1f} s from {crumb.rows:,} rows a "
        f"cluster; full context {full.accuracy:.1%} in {full.seconds:.1f} s from all {full.rows:,}.",
        verdict,
        f"The picture is in {picture}. On a table of your own:",
        "  crumb predict --train train.csv --test test.csv --target NAME --out predictions.csv",
    ]
