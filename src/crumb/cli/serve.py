"""``crumb serve``: predictions over HTTP for queries that come one at a time."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb.cli.options import add_model_options, add_selection_options, levels, parameters
from crumb.cli.report import note
from crumb.errors import BackendUnavailable, InvalidInput

if TYPE_CHECKING:
    from crumb.online import CrumbOnline, Observer
    from crumb.serve.schema import Schema

STREAM: dict[str, tuple[Callable[[str], Any], str, str]] = {  # type, what help calls it, help
    "b_min": (int, "B", "queries of a cluster that get a pass at once"),
    "timeout": (float, "S", "seconds after which fewer do"),
    "max_pending": (int, "N", "queries that may wait; more are refused"),
    "refresh": (str, "WHEN", "never, periodic or drift"),
    "refresh_every": (int, "N", "queries between two refreshes, or two looks for drift"),
    "recent": (int, "N", "latest queries, for which a new plan is made"),
    "max_rows": (int, "N", "rows of the pool beyond which the oldest leave it"),
    "max_age": (float, "S", "seconds after which rows leave the pool"),
}


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "serve", help="answer queries over HTTP as they come", allow_abbrev=False
    )
    add, tables = parser.add_argument, "a .csv, .csv.gz or .parquet file"
    add("--train", metavar="FILE", help=f"the labelled table: {tables}")
    add("--target", metavar="NAME", help="the column to predict")
    add("--queries", metavar="FILE", help=f"typical queries, for the first plan: {tables}")
    said = "snapshots; a start goes on from the one that it finds"
    add("--state", type=Path, metavar="DIR", help=said)
    said = "inferred from the target if not given"
    add("--task", choices=("classification", "regression"), help=said)
    said = "regression: quantiles instead of means"
    add("--quantiles", type=levels, metavar="0.1,0.9", help=said)
    said = "leave out training rows without a target"
    add("--drop-missing-target", action="store_true", help=said)
    said = "null also where the training table has no missing values"
    add("--allow-missing", action="store_true", help=said)
    _add_http(parser.add_argument_group("http"))
    _add_stream(parser.add_argument_group("stream"))
    add_model_options(parser)
    add_selection_options(parser)
    parser.set_defaults(run=lambda args: run(args, parser.error))


def _add_http(group: Any) -> None:
    def number(name: str, default: float, metavar: str, said: str) -> None:
        group.add_argument(name, type=type(default), default=default, metavar=metavar, help=said)

    add = group.add_argument
    add("--host", default="127.0.0.1", metavar="HOST")
    number("--port", 8000, "PORT", "0 takes a free one")
    add("--name", default="crumb", metavar="NAME", help="of the model, in /v2/models/NAME")
    said = "its first line is asked for as a bearer token; or $CRUMB_TOKEN"
    add("--token-file", type=Path, metavar="FILE", help=said)
    number("--max-rows-per-request", 1_000, "N", "more are refused")
    number("--max-bytes", 16 * 2**20, "N", "of a request")
    number("--deadline", 30.0, "S", "seconds in which a request is answered or given up")
    number("--snapshot-every", 300.0, "S", "seconds; 0: only at the start and the end")
    number("--drift-every", 30.0, "S", "seconds between looks for drift; 0: never")
    number("--grace", 0.0, "S", "seconds at SIGTERM between refusing requests and leaving")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    add("--keep-plans", action="store_true", help="keep the plan of every version in DIR")
    add("--learn", action="store_true", help="take labelled rows at /learn")


def _add_stream(group: Any) -> None:
    for name, (kind, metavar, said) in STREAM.items():
        words = [_word(name), *(["--window"] if name == "recent" else [])]  # as in version 0.1
        nothing = argparse.SUPPRESS
        group.add_argument(*words, type=kind, metavar=metavar, default=nothing, help=said)


def _word(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def run(args: argparse.Namespace, usage_error: Callable[[str], Any]) -> None:
    if (args.train is None) != (args.target is None):
        usage_error("--train and --target go together")
    if args.keep_plans and args.state is None:
        usage_error("--keep-plans keeps them in the folder of --state")
    if args.train is None and args.state is None:
        usage_error("give --train and --target, or --state with a snapshot, or all of them")
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise BackendUnavailable(
            f"crumb serve needs {error.name}: pip install 'crumb-pfn[serve]'."
        ) from error
    serve(args)


def serve(args: argparse.Namespace) -> None:
    from crumb.serve.limits import Limits
    from crumb.serve.process import bind, run_service
    from crumb.serve.watch import set_up_logs

    limits = Limits(
        args.max_rows_per_request, args.max_bytes, args.deadline, _token(args.token_file)
    )
    bound = bind(args.host, args.port)
    set_up_logs(args.log_level)
    run_service(lambda observers: _stream(args, observers), bound, limits, args)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("CRUMB_TOKEN") or None
    lines = path.read_text().splitlines()
    if not lines or not lines[0].strip():
        raise InvalidInput(f"There is no token in the first line of {path}.")
    return lines[0].strip()


def _stream(args: argparse.Namespace, observers: Sequence[Observer]) -> tuple[CrumbOnline, Schema]:
    """From the snapshot if there is one; else from the training table."""
    from crumb.serve.snapshot import has_snapshot, restore

    if args.state is not None and (args.train is None or has_snapshot(args.state)):
        given = [name for name in ("train", *STREAM) if getattr(args, name, None) is not None]
        if given:
            unused = ", ".join(map(_word, given))
            note(f"goes on from the snapshot in {args.state}; not used: {unused}.")
        return restore(args.state, observers, args.allow_missing)
    return _fresh(args, observers)


def _fresh(args: argparse.Namespace, observers: Sequence[Observer]) -> tuple[CrumbOnline, Schema]:
    from crumb import CrumbClassifier, CrumbOnline, CrumbRegressor
    from crumb.cli.tables import as_classes, chosen_task, load_tables
    from crumb.serve.schema import Schema

    # Without typical queries the training table stands in: only its columns matter then.
    tables = load_tables(
        args.train, args.queries or args.train, args.target, args.drop_missing_target
    )
    if chosen_task(args, tables.y_train) == "classification":
        estimator: Any = CrumbClassifier(**parameters(args))
        estimator.fit(tables.X_train, as_classes(tables.y_train))
    else:
        estimator = CrumbRegressor(**parameters(args)).fit(tables.X_train, tables.y_train)
    settings = {name: getattr(args, name) for name in STREAM if hasattr(args, name)}
    if args.quantiles:
        settings |= {"output": "quantiles", "quantiles": args.quantiles}
    if args.learn and settings.get("refresh", "never") == "never":
        note("what is learned takes effect at a refresh: --refresh periodic or drift makes one.")
    queries = tables.X_test if args.queries else None
    stream = CrumbOnline(estimator, queries, observer=observers, **settings)
    return stream, Schema.of(tables.X_train, args.allow_missing)
