"""``python -m experiments``: list tables, run a protocol, report the rows."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb.errors import CrumbError, InvalidInput, WeightsMissing

if TYPE_CHECKING:
    from experiments.dataset import Source
    from experiments.protocol import Overrides, Run

DATA = "a folder of Parquet files with an index.json, openml (TabArena and Higgs) or synthetic"
PLACES = (None, "openml", "synthetic")
SHOWN_MESSAGES = 10


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status is 0, 1 (it failed), 2 (it was asked wrongly) or 130 (Ctrl-C)."""
    # Torch's threads spin while they wait for each other, which is ruinous beside other work.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except (CrumbError, OSError) as error:
        note(f"error: {error}")
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="The paper's experiments on your tables, your model and your machine.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_datasets(actions)
    _add_run(actions)
    _add_report(actions)
    return parser


def _add_datasets(actions: Any) -> None:
    about = "list the tables: which are here, which are missing, what each costs"
    parser = actions.add_parser("datasets", help=about, allow_abbrev=False)
    add = parser.add_argument
    add("--data", metavar="WHERE", help=f"{DATA}; without it, openml and synthetic")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=datasets)


def _add_run(actions: Any) -> None:
    about = "run a protocol; one row for each run goes into a file"
    parser = actions.add_parser("run", help=about, allow_abbrev=False)
    names = "main, consistency, large, drift, clusters, retrieval, factorial, rff or complexity"
    parser.add_argument("protocol", metavar="PROTOCOL", help=names)
    add = parser.add_argument
    add("--out", required=True, metavar="FILE", help="the results, JSON lines")
    add("--resume", action="store_true", help="continue a file: do only what it lacks")
    add(
        "--retry-failed", action="store_true", help="with --resume: repeat what failed or timed out"
    )
    add = parser.add_argument_group("what is run; without these, as in the paper").add_argument
    add("--data", default="synthetic", metavar="WHERE", help=f"{DATA} (the default)")
    add("--datasets", type=_names, metavar="A,B,…", help="some of the tables")
    add("--models", type=_names, metavar="A,B,…", help="names from `crumb models`, or paths")
    add("--methods", type=_names, metavar="A,B,…", help="such as full, crumb, crumb+n_clusters=50")
    add("--seeds", type=_count, metavar="S", help="how many seeds: 0 … S−1")
    first = partial(_count, least=0)
    add("--first-seed", type=first, default=0, metavar="F", help="F … F+S−1, to confirm a finding")
    add("--queries", type=_count, metavar="T", help="queries of a run")
    add("--max-rows", type=_count, metavar="N", help="rows of a pool at most")
    add = parser.add_argument_group("running").add_argument
    add(
        "--jobs", type=_count, default=1, metavar="J", help="runs at a time (1: comparable seconds)"
    )
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps")
    add("--timeout", type=float, metavar="S", help="seconds a run may take (300; 1,800 for large)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=lambda args: run(args, parser.error))


def _add_report(actions: Any) -> None:
    about = "tables and figures of a file or folder of results"
    parser = actions.add_parser("report", help=about, allow_abbrev=False)
    parser.add_argument("results", type=Path, metavar="RESULTS", help="what `run` wrote")
    out = "the page, .html; a summary .md goes beside it"
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help=out)
    parser.add_argument("--models", type=_names, metavar="A,B,…", help="their rows alone")
    parser.set_defaults(run=report)


def datasets(args: argparse.Namespace) -> None:
    import pandas as pd

    from experiments.openml import TABARENA
    from experiments.protocols import main_passes
    from experiments.sources import collection

    places = [args.data] if args.data else ["openml", "synthetic"]
    rows = [
        {
            "dataset": source.name,
            "task": source.task,
            "rows": source.rows,
            "columns": source.columns,
            "passes": main_passes(source),
            "origin": source.origin,
            "here": "yes" if source.problem is None else f"no: {source.problem}",
        }
        for place in places
        for source in collection(place)
    ]
    here = {row["dataset"] for row in rows if row["here"] == "yes"}
    absent = [] if args.data in PLACES else [one.name for one in TABARENA if one.name not in here]
    if args.json:
        print(json.dumps({"datasets": rows, "tabarena_missing": absent}, indent=1))
        return
    print(pd.DataFrame(rows).convert_dtypes().to_string(index=False, na_rep="–"))
    print("\npasses: `main`, all five methods, one seed")
    if absent:
        print(f"of TabArena's 51 tables, {len(absent)} are not in {args.data}: {', '.join(absent)}")


def run(args: argparse.Namespace, usage_error: Any) -> None:
    if args.retry_failed and not args.resume:
        usage_error("--retry-failed goes with --resume")
    if args.timeout is not None and not args.timeout > 0:
        usage_error("--timeout must be a positive number of seconds")
    from tqdm import tqdm

    from crumb.machine import resolve_device
    from experiments.campaign import Campaign
    from experiments.protocols import plan_runs, protocol_named
    from experiments.sources import chosen, collection
    from experiments.store import Store

    protocol, tables = protocol_named(args.protocol), collection(args.data)
    sources = chosen(tables, args.datasets) if args.datasets else protocol.choose(tables)
    if not sources:
        raise InvalidInput(f"{args.data} has no table that {protocol.name} is for.")
    runs = plan_runs(protocol, sources, _overrides(args))
    if not runs:
        raise InvalidInput("None of the models does what these tables ask for.")
    resolve_device(args.device)  # one that is not there shows now
    _fetch(runs, sources)
    hidden = args.quiet or not sys.stderr.isatty()
    with Store(args.out, args.resume, args.retry_failed, [one.key for one in runs]) as store:
        todo = [one for one in runs if one.key not in store.done]
        with tqdm(total=len(todo), desc=protocol.name, leave=False, disable=hidden) as bar:
            by_name = {source.name: source for source in sources}
            timeout = args.timeout or protocol.timeout
            rows = Campaign(
                by_name, store, timeout, args.device, args.jobs, advance=bar.update
            ).carry_out(todo)
    _tell(args, len(runs), rows)


def _overrides(args: argparse.Namespace) -> Overrides:
    from experiments.protocol import Overrides

    models, methods = (tuple(names) if names else None for names in (args.models, args.methods))
    return Overrides(models, methods, args.seeds, args.queries, args.max_rows, args.first_seed)


def _fetch(runs: list[Run], sources: list[Source]) -> None:
    """Get tables and weights once, here, before several processes ask for them."""
    from crumb.pfn.models import CARDS, fetch

    asked = {(one.model, one.task) for one in runs}
    cards = [card for card in CARDS if (card.name, card.task) in asked]
    missing = {(card.name, card.task) for card in cards if not _available(partial(fetch, card))}
    if missing == asked:
        raise WeightsMissing(
            f"None of the models is on this machine ({', '.join(sorted({m for m, _ in asked}))}): "
            "`crumb models` shows where they would be; --models embedded needs nothing."
        )
    for source in sources:
        _available(source.fetch)


def _available(fetch: Callable[[], object]) -> bool:
    """Whether something could be had; if not, its runs are recorded as missing."""
    try:
        fetch()
    except CrumbError as error:
        note(f"not run: {error}")
        return False
    return True


def _tell(args: argparse.Namespace, planned: int, rows: list[dict[str, Any]]) -> None:
    counts = Counter(row["status"] for row in rows)
    before = planned - len(rows)
    if args.json:
        print(json.dumps({"runs": planned, "done_before": before, **counts, "out": args.out}))
        return
    done = f" ({before} were there before)" if before else ""
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"{planned} runs{done}: {said or 'nothing left to do'}; rows in {args.out}")
    messages = Counter(
        f"{row['dataset']}, {row['model']}, {row['method']}: {row['message']}"
        for row in rows
        if row["status"] != "ok"
    )
    for message, count in list(messages.items())[:SHOWN_MESSAGES]:
        note(f"{count} × {message}")
    if len(messages) > SHOWN_MESSAGES:
        note(f"… and {len(messages) - SHOWN_MESSAGES} other messages; the rows have them")


def report(args: argparse.Namespace) -> None:
    from experiments.report import write_report

    for path in write_report(args.results, args.out, args.models):
        print(path)


def note(message: str) -> None:
    print(f"experiments: {' '.join(message.split())}", file=sys.stderr)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str, least: int = 1) -> int:
    with suppress(ValueError):
        count = int(text.replace(",", ""))
        if count >= least:
            return count
    raise argparse.ArgumentTypeError(f"expected a whole number from {least}, got {text!r}")


if __name__ == "__main__":
    raise SystemExit(main())
