"""``crumb serve``: predictions over HTTP for queries that come one at a time."""

from __future__ import annotations

import argparse
import ipaddress
import os
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from crumb.cli.console import note
from crumb.cli.options import STREAM, given
from crumb.errors import InvalidInput, extra

if TYPE_CHECKING:
    from crumb.online import CrumbOnline, Observer
    from crumb.online.child import Child
    from crumb.serve.schema import Schema


def run(args: argparse.Namespace) -> None:
    if (args.train is None) != (args.target is None):
        args.usage_error("--train and --target go together")
    if args.keep_plans and args.state is None:
        args.usage_error("--keep-plans keeps them in the folder of --state")
    if args.train is None and args.state is None:
        args.usage_error("give --train and --target, or --state with a snapshot, or all of them")
    with extra("serve", "crumb serve"):
        from crumb.serve.limits import Limits
        from crumb.serve.process import bind, run_service
        from crumb.serve.watch import set_up_logs
    token = _token(args.token_file)
    known = {"localhost", args.host, socket.gethostname(), *args.allow_host}
    sizes = args.max_rows_per_request, args.max_bytes, args.deadline
    limits = Limits(*sizes, token, frozenset(known))
    bound = bind(args.host, args.port)
    if token is None and not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
        note(f"anybody who reaches {args.host} can use this service: --token-file sets a token.")
    set_up_logs(args.log_level)
    run_service(partial(_stream, args), bound, limits, args)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("CRUMB_TOKEN") or None
    lines = path.read_text().splitlines()
    if not lines or not lines[0].strip():
        raise InvalidInput(f"There is no token in the first line of {path}.")
    return lines[0].strip()


def _stream(
    args: argparse.Namespace, observers: Sequence[Observer], builder: Child
) -> tuple[CrumbOnline, Schema]:
    """From the snapshot if there is one; else from the training table."""
    from crumb.serve.state import has_snapshot, restore
    from crumb.serve.watch import event

    if args.state is not None and (args.train is None or has_snapshot(args.state)):
        unused = [*(["train"] if args.train else []), *given(args, STREAM)]
        if unused:
            words = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
            note(f"goes on from the snapshot in {args.state}; not used: {words}.")
        event("starting", doing="reads the snapshot and makes its contexts ready")
        return restore(args.state, observers, args.allow_missing, builder)
    return _fresh(args, observers, builder)


def _fresh(
    args: argparse.Namespace, observers: Sequence[Observer], builder: Child
) -> tuple[CrumbOnline, Schema]:
    from crumb import CrumbOnline
    from crumb.cli.tables import fit_table, load_tables
    from crumb.serve.schema import Schema
    from crumb.serve.watch import event

    event("starting", doing="reads the training table")
    # Without typical queries the training table stands in: only its columns matter then.
    tables = load_tables(args, args.queries or args.train)
    event("starting", doing="encodes the training table", rows=len(tables.X_train))
    estimator = fit_table(args, tables.X_train, tables.y_train)
    settings = given(args, STREAM)
    if args.quantiles:
        settings |= {"output": "quantiles", "quantiles": args.quantiles}
    if args.learn and settings.get("refresh", "never") == "never":
        note("what is learned takes effect at a refresh: --refresh periodic or drift makes one.")
    queries = tables.X_test if args.queries else None
    event("starting", doing="makes a plan, loads the model and makes the contexts ready")
    stream = CrumbOnline(estimator, queries, observer=observers, builder=builder, **settings)
    categories = estimator.pool_.encoder.declared()
    schema = Schema.of(tables.X_train, args.allow_missing, categories)
    schema.check(estimator)
    return stream, schema
