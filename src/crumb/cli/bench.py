"""``crumb bench``: the paper's experiments on your tables, your model and your machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb.cli.options import add_output_options, names
from crumb.cli.report import note, print_json, print_table

if TYPE_CHECKING:
    from crumb.bench.dataset import Source
    from crumb.bench.protocol import Protocol, Run, Wishes

DATA = "a folder of Parquet files with an index.json, openml (TabArena and Higgs) or synthetic"
SHOWN_MESSAGES = 10


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "bench", help="run the paper's experiments and report them", allow_abbrev=False
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_datasets(actions)
    _add_run(actions)
    _add_report(actions)


def _add_datasets(actions: Any) -> None:
    parser = actions.add_parser(
        "datasets",
        help="list the tables: which are here, which are missing, what each costs",
        allow_abbrev=False,
    )
    parser.add_argument("--data", metavar="WHERE", help=f"{DATA}; without it, openml and synthetic")
    parser.add_argument(
        "--model", default="embedded", metavar="NAME", help="whose passes are timed (embedded)"
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps")
    parser.add_argument("--no-times", action="store_true", help="time nothing: count passes only")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    parser.set_defaults(run=datasets)


def _add_run(actions: Any) -> None:
    parser = actions.add_parser(
        "run", help="run a protocol; one row a run goes into a file", allow_abbrev=False
    )
    parser.add_argument(
        "protocol",
        metavar="PROTOCOL",
        help="main, consistency, large, drift, clusters, retrieval, factorial, rff or complexity",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="the results, JSON lines")
    parser.add_argument(
        "--resume", action="store_true", help="continue a file: what it holds is not run again"
    )
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="with --resume: run again what failed or timed out",
    )
    group = parser.add_argument_group("what is run; without these, as in the paper")
    group.add_argument("--data", default="synthetic", metavar="WHERE", help=f"{DATA} (the default)")
    group.add_argument("--datasets", type=names, metavar="A,B,…", help="some of the tables")
    group.add_argument(
        "--models", type=names, metavar="A,B,…", help="names that `crumb models` lists, or paths"
    )
    group.add_argument(
        "--methods",
        type=names,
        metavar="A,B,…",
        help="such as full, knn, crumb, crumb+n_clusters=50",
    )
    group.add_argument("--seeds", type=_count, metavar="S", help="how many seeds: 0 … S−1")
    group.add_argument(
        "--first-seed",
        type=partial(_count, least=0),
        default=0,
        metavar="F",
        help="F … F+S−1 instead, to confirm a finding",
    )
    group.add_argument("--queries", type=_count, metavar="T", help="queries of a run")
    group.add_argument("--max-rows", type=_count, metavar="N", help="rows of a pool at most")
    group = parser.add_argument_group("running")
    group.add_argument(
        "--jobs",
        type=_count,
        default=1,
        metavar="J",
        help="runs at a time (1; seconds mean most so)",
    )
    group.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or mps")
    group.add_argument(
        "--timeout", type=float, metavar="S", help="seconds a run may take (300; 1,800 for large)"
    )
    add_output_options(group)
    parser.set_defaults(run=lambda args: run(args, parser.error))


def _add_report(actions: Any) -> None:
    parser = actions.add_parser(
        "report", help="tables and figures of a file of results", allow_abbrev=False
    )
    parser.add_argument("results", metavar="RESULTS", help="the file that `crumb bench run` wrote")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="the page, .html; a summary .md goes beside it"
    )
    parser.set_defaults(run=report)


def datasets(args: argparse.Namespace) -> None:
    from crumb.bench.dataset import collection
    from crumb.bench.estimate import main_passes, pass_cost, seconds

    sources = (
        collection(args.data) if args.data else [*collection("openml"), *collection("synthetic")]
    )
    cost = None if args.no_times else pass_cost(args.model, args.device)
    rows = [
        {
            "dataset": source.name,
            "task": source.task,
            "rows": source.rows,
            "columns": source.columns,
            "origin": source.origin,
            "passes": sum(count for count, _, _ in main_passes(source)) or None,
            "seconds": None
            if cost is None or (time := seconds(source, cost)) is None
            else round(time, 1),
            "here": "yes" if source.problem is None else f"no: {source.problem}",
        }
        for source in sources
    ]
    absent = _absent(sources) if args.data not in (None, "openml", "synthetic") else []
    if args.json:
        print_json({"datasets": rows, "tabarena_missing": absent})
        return
    print_table(rows)
    print(
        "\npasses and their seconds: `main`, all five methods, one seed"
        + _on(args, cost is not None)
    )
    if absent:
        print(f"of TabArena's 51 tables, {len(absent)} are not in {args.data}: {', '.join(absent)}")


def _on(args: argparse.Namespace, timed: bool) -> str:
    return f", {args.model} on this machine" if timed else ""


def _absent(sources: list[Source]) -> list[str]:
    from crumb.bench.openml import TABARENA

    there = {source.name for source in sources if source.problem is None}
    return [entry[0] for entry in TABARENA if entry[0] not in there]


def run(args: argparse.Namespace, usage_error: Any) -> None:
    if args.retry_failed and not args.resume:
        usage_error("--retry-failed goes with --resume")
    if args.timeout is not None and not args.timeout > 0:
        usage_error("--timeout must be a positive number of seconds")
    from crumb.bench.campaign import Campaign
    from crumb.bench.dataset import chosen, collection
    from crumb.bench.protocols import plan_runs, protocol_named
    from crumb.bench.store import Store
    from crumb.devices import resolve_device
    from crumb.progress import progress_bar

    protocol, wishes = protocol_named(args.protocol), _wishes(args)
    everything = collection(args.data)
    sources = chosen(everything, args.datasets) if args.datasets else protocol.choose(everything)
    runs = plan_runs(protocol, sources, wishes)
    _check(runs, sources, protocol, args)
    resolve_device(args.device)  # one that is not there is missed now
    _get_ready(runs, sources)
    watched = not args.quiet and sys.stderr.isatty()
    with Store(args.out, args.resume, args.retry_failed, [one.key for one in runs]) as store:
        todo = [one for one in runs if one.key not in store.done]
        with progress_bar(len(todo), protocol.name, watched) as advance:
            by_name = {source.name: source for source in sources}
            timeout = args.timeout or protocol.timeout
            campaign = Campaign(by_name, store, timeout, args.device, args.jobs, advance=advance)
            rows = campaign.carry_out(todo)
    _tell(args, runs, rows)


def _wishes(args: argparse.Namespace) -> Wishes:
    from crumb.bench.protocol import Wishes

    def given(chosen: list[str] | None) -> tuple[str, ...] | None:
        return tuple(chosen) if chosen else None

    return Wishes(
        given(args.models),
        given(args.methods),
        args.seeds,
        args.queries,
        args.max_rows,
        args.first_seed,
    )


def _check(
    runs: list[Run], sources: list[Source], protocol: Protocol, args: argparse.Namespace
) -> None:
    """What can only fail is not begun."""
    from crumb.errors import InvalidInput

    if not sources:
        raise InvalidInput(f"{args.data} has no table that {protocol.name} is for.")
    if not runs:
        raise InvalidInput("None of the models does what these tables ask for.")


def _get_ready(runs: list[Run], sources: list[Source]) -> None:
    """Fetch tables and weights once, here, before several processes ask for them. What is missing is said once."""
    from crumb.errors import WeightsMissing
    from crumb.pfn.models import CARDS, fetch

    asked = {(one.model, one.task) for one in runs}
    cards = [card for card in CARDS if (card.name, card.task) in asked]
    missing = {(card.name, card.task) for card in cards if not _here(partial(fetch, card))}
    if missing == asked:
        raise WeightsMissing(
            f"None of the models is on this machine ({', '.join(sorted({model for model, _ in asked}))}): "
            "`crumb models` shows where they would be; --models embedded needs nothing."
        )
    for source in sources:
        _here(source.fetch)


def _here(fetch: Callable[[], object]) -> bool:
    """Whether something could be had; if not, its runs are recorded as missing."""
    from crumb.errors import CrumbError

    try:
        fetch()
    except CrumbError as error:
        note(f"not run: {error}")
        return False
    return True


def _tell(args: argparse.Namespace, runs: list[Run], rows: list[dict[str, Any]]) -> None:
    from crumb.bench.store import by_status

    counts = by_status(rows)
    failed = [row for row in rows if row["status"] != "ok"]
    messages: dict[str, int] = {}
    for row in failed:
        said = f"{row['dataset']}, {row['model']}, {row['method']}: {row['message']}"
        messages[said] = messages.get(said, 0) + 1
    if args.json:
        print_json(
            {"runs": len(runs), "done_before": len(runs) - len(rows), **counts, "out": args.out}
        )
        return
    before = f" ({len(runs) - len(rows)} were there before)" if len(rows) < len(runs) else ""
    said = (
        ", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing left to do"
    )
    print(f"{len(runs)} runs{before}: {said}; rows in {args.out}")
    for message, count in list(messages.items())[:SHOWN_MESSAGES]:
        note(f"{count} × {message}")
    if len(messages) > SHOWN_MESSAGES:
        note(f"… and {len(messages) - SHOWN_MESSAGES} other messages; the rows have them")


def report(args: argparse.Namespace) -> None:
    from crumb.bench.report import write_report
    from crumb.cli.tables import check_output

    check_output(args.out, (".html",), inputs=[args.results])
    for path in write_report(Path(args.results), Path(args.out)):
        print(path)


def _count(text: str, least: int = 1) -> int:
    try:
        count = int(text.replace(",", ""))
    except ValueError:
        count = least - 1
    if count < least:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {least}, got {text!r}"
        )
    return count
