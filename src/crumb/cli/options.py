"""The options of the commands, each declared once, and the readers of what is typed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

Settings: TypeAlias = dict[str, Any]  # keyword arguments of ``add_argument``
Options: TypeAlias = dict[str, Settings]  # by flag


def _reader(expected: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """``read``, with a sentence for what it cannot read."""

    def typed(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}") from None

    return typed


def number_or(*words: str, share: bool = False) -> Callable[[str], str | float | None]:
    """A reader of whole numbers (and shares) that also takes some words; "none" means None."""

    def read(text: str) -> str | float | None:
        if text in words:
            return None if text == "none" else text
        return float(text) if share and set(text) & set(".eE") else int(text)

    return _reader("a number" + "".join(f" or {word!r}" for word in words), read)


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _levels(text: str) -> list[float]:
    found = [float(level) for level in text.split(",")]
    if not all(0 < level < 1 for level in found):
        raise ValueError
    return found


levels = _reader("levels between 0 and 1 (like 0.1,0.9)", _levels)
_bandwidth = _reader(
    "a number, 'median' or '0.5 median'",
    lambda text: text if text.endswith("median") else float(text),
)


def _value(metavar: str, text: str, kind: Callable[[str], Any] = str, **more: Any) -> Settings:
    return {"type": kind, "metavar": metavar, "help": text, **more}


def _flag(text: str) -> Settings:
    return {"action": "store_true", "help": text}


def _number(default: float, metavar: str, text: str) -> Settings:
    return _value(metavar, f"{text} ({default:,})", type(default), default=default)


def _parameter(metavar: str, text: str, kind: Callable[[str], Any] = str) -> Settings:
    """It stays out of the namespace unless given: defaults are the library's alone."""
    return _value(metavar, text, kind, default=argparse.SUPPRESS)


_count, _count_or_none = number_or("auto"), number_or("auto", "none")
_share = number_or("auto", share=True)

# Parameters of the estimators, under the same names.
SELECTION = {
    "--strategy": _parameter("NAME", "mmd (CRUMB), uniform, knn, micp, centroid, voronoi or full"),
    "--n-clusters": _parameter("K", "clusters of queries: a count, auto or none", _count_or_none),
    "--context-size": _parameter("N", "rows of a context: a count, a share or auto", _share),
    "--contexts-per-query": _parameter("M", "contexts that answer a query, or auto", _count),
    "--kernel": _parameter("NAME", "auto, exact, candidates or rff"),
    "--rff-dim": _parameter("D", "random Fourier features", int),
    "--herd-batch": _parameter("B", "rows chosen per round: a count or auto", _count),
    "--bandwidth": _parameter("SIGMA", "a number, median or '0.5 median'", _bandwidth),
    "--early-stopping": {
        "action": argparse.BooleanOptionalAction,
        "default": argparse.SUPPRESS,
        "help": "end a context when MMD² no longer falls",
    },
    "--min-per-class": _parameter("M", "rows of each class that a context keeps", int),
    "--categorical-features": _parameter("A,B,…", "columns of numbers that are categories", names),
}
RUNNING = {
    "--device": _parameter("NAME", "auto, cpu, cuda or mps"),
    "--random-state": _parameter("SEED", "the seed (0 by default)", int),
    "--n-jobs": _parameter("J", "threads", int),
}
MODEL = {
    "--model": _parameter("NAME", "a name that `crumb models` lists, or the path of a checkpoint"),
    "--budget": _parameter("B", "seconds and bytes to spend, instead of K and N: 30s, '2min 4GB'"),
    "--plan-at": _parameter("WHEN", "predict, or fit: answers do not depend on other queries"),
    "--n-estimators": _parameter("E", "ensemble members of the model", int),
    "--guide": _parameter("NAME", "trees or auto: predictions of boosted trees become a column"),
    "--features": _parameter(
        "NAME",
        "select by: auto (columns that matter), none (all alike) or embedding",
        lambda word: None if word == "none" else word,
    ),
}
ENGINE = {"--engine": _parameter("NAME", "what reads, scores and runs the passes: local or ray")}

# Parameters of ``CrumbOnline``, under the same names.
STREAM = {
    "--b-min": _parameter("B", "queries of a cluster that get a pass at once", int),
    "--timeout": _parameter("S", "seconds after which fewer do", float),
    "--max-pending": _parameter("N", "queries that may wait; more are refused", int),
    "--refresh": _parameter("WHEN", "never, periodic or drift"),
    "--refresh-every": _parameter("N", "queries between two refreshes, or looks for drift", int),
    "--recent --window": _parameter("N", "latest queries, for which a new plan is made", int),
    "--max-rows": _parameter("N", "rows of the pool beyond which the oldest leave it", int),
    "--max-age": _parameter("S", "seconds after which rows leave the pool", float),
}

JSON = {"--json": _flag("print one JSON object and nothing else")}
OUTPUT = {**JSON, "--quiet": _flag("no progress bars")}
TASK = {"choices": ("classification", "regression"), "help": "inferred from the target by default"}
FILE = "a .csv, .csv.gz or .parquet file"
KINDS = f"{FILE}, or a folder or glob of them; Parquet may be of any size"
DROP = {"--drop-missing-target": _flag("leave out training rows without a target")}
TABLES = {
    "--train": _value("FILE", f"the labelled table: {KINDS}", required=True),
    "--test": _value("FILE", f"the rows to predict: {KINDS}", required=True),
    **DROP,
}
PREDICTED = {
    **TABLES,
    "--target": _value("NAME", "the column to predict", required=True),
    "--task": TASK,
}
SAVED = {"--plan": _value("FILE", "contexts that `crumb plan --out` chose for this table")}
CHUNKS = {"--chunk-rows": _value("N", "rows predicted together (100,000)", int), **ENGINE}
CHOICE = {
    "context selection": {
        **SELECTION,
        "--paper": _flag("the paper's settings; other options still win"),
    },
    "running": {**RUNNING, **OUTPUT},
}
DEMO = {
    "--rows": _number(6_000, "N", "pool rows"),
    "--out": _value("FILE", "the picture (crumb-demo.png)", default="crumb-demo.png"),
    **OUTPUT,
}
PREDICT = {
    **PREDICTED,
    "--out": _value("FILE", "the predictions: .csv, .csv.gz or .parquet", required=True),
    "--keep": _value("A,B,…", "columns of the test table to copy (ids)", names, default=[]),
    "--no-proba": _flag("classification: no columns probability_<class>"),
    "--quantiles": _value("0.1,0.9", "regression: quantiles at these levels as well", levels),
    **SAVED,
    "--replan": _flag("choose contexts anew for every chunk of rows"),
}
EXPLAIN = {
    **PREDICTED,
    "--out": _value("FILE", "the Shapley values: .csv, .csv.gz or .parquet", required=True),
    "--picture": _value("FILE", "draw the columns that matter: .png, .pdf, .svg or .jpg"),
    "--influence": _value("FILE", "the training rows that mattered for each query, as a table"),
    "--first": _number(100, "N", "rows of the test table to explain"),
    "--background": _number(10, "B", "rows of a context whose cells stand for masked ones"),
    **SAVED,
}
REPORT = {
    **PREDICTED,
    "--out": _value("FILE", "the page: .html (crumb-report.html)", default="crumb-report.html"),
}
PLAN = {
    **TABLES,
    "--target": _value("NAME", "the column to predict: not a feature; rare classes are kept"),
    "--out": _value("FILE", "save the plan for Plan.load and crumb predict --plan"),
    "--picture": _value("FILE", "draw the plan: .png, .pdf, .svg or .jpg"),
}
SERVE = {
    "--train": _value("FILE", f"the labelled table: {FILE}"),
    "--target": _value("NAME", "the column to predict"),
    "--queries": _value("FILE", f"typical queries, for the first plan: {FILE}"),
    "--state": _value("DIR", "snapshots; a start goes on from the one that it finds", Path),
    "--task": TASK,
    "--quantiles": _value("0.1,0.9", "regression: quantiles instead of means", levels),
    **DROP,
    "--allow-missing": _flag("null also where the training table has no missing values"),
}
HTTP = {
    "--host": _value("HOST", "127.0.0.1 by default", default="127.0.0.1"),
    "--port": _value("PORT", "8000 by default; 0 takes a free one", int, default=8000),
    "--name": _value("NAME", "of the model, in /v2/models/NAME", default="crumb"),
    "--allow-host": _value("A,B,…", "other names of this machine; '*': any", names, default=[]),
    "--token-file": _value("FILE", "its first line is the bearer token; or $CRUMB_TOKEN", Path),
    "--max-rows-per-request": _number(1_000, "N", "more are refused"),
    "--max-bytes": _number(16 * 2**20, "N", "of a request"),
    "--deadline": _number(30.0, "S", "seconds in which a request is answered or given up"),
    "--snapshot-every": _number(300.0, "S", "seconds; 0: only at the start and the end"),
    "--drift-every": _number(30.0, "S", "seconds between looks for drift; 0: never"),
    "--grace": _number(0.0, "S", "seconds at SIGTERM between refusing requests and leaving"),
    "--log-level": {"choices": ("debug", "info", "warning", "error"), "default": "info"},
    "--keep-plans": _flag("keep the plan of every version in DIR"),
    "--learn": _flag("take labelled rows at /learn"),
}

# What each command is for, and its options by group.
COMMANDS: dict[str, tuple[str, dict[str, Options]]] = {
    "demo": ("see what CRUMB does, in under a minute", {"": DEMO}),
    "predict": (
        "predict the target of one table from another",
        {"": PREDICT, "model": MODEL, **CHOICE, "large tables in Parquet": CHUNKS},
    ),
    "explain": (
        "what each column did to each prediction, as Shapley values",
        {"": EXPLAIN, "model": MODEL, **CHOICE},
    ),
    "report": (
        "one page on a table: scores beside trees, calibration, the worst queries, the cost",
        {"": REPORT, "model": MODEL, **CHOICE},
    ),
    "plan": (
        "choose contexts without running a model, and look at them",
        {"": PLAN, **CHOICE, "large tables in Parquet": CHUNKS},
    ),
    "serve": (
        "answer queries over HTTP as they come",
        {"": SERVE, "http": HTTP, "stream": STREAM, "model": MODEL, **CHOICE},
    ),
    "models": (
        "list the models and where their weights are",
        {"": {"--get": _value("NAME", "fetch the weights of a model, then show it alone"), **JSON}},
    ),
}


def add_command(commands: Any, name: str) -> None:
    """A command whose module is imported when it runs: ``--help`` needs no pandas and no torch."""
    text, groups = COMMANDS[name]
    said = f"{text[0].upper()}{text[1:]}."
    parser = commands.add_parser(name, help=text, description=said, allow_abbrev=False)
    for title, options in groups.items():
        group = parser.add_argument_group(title) if title else parser
        for flags, settings in options.items():
            group.add_argument(*flags.split(), **settings)
    parser.set_defaults(
        run=lambda args: import_module(f"crumb.cli.{name}").run(args), usage_error=parser.error
    )


def given(args: argparse.Namespace, *tables: Options) -> dict[str, Any]:
    """Those options of some tables that were given, under the names of their parameters."""
    flags = (flag.split()[0] for options in tables for flag in options)
    found = (flag.removeprefix("--").replace("-", "_") for flag in flags)
    return {name: getattr(args, name) for name in found if hasattr(args, name)}


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The estimator's keyword arguments: the paper's if asked for, then what the user gave."""
    chosen: dict[str, Any] = {}
    if args.paper:
        from crumb.options import paper_configuration

        chosen = paper_configuration()
    chosen |= given(args, SELECTION, RUNNING, MODEL, ENGINE)
    return {**chosen, "verbose": verbosity(args)}


def verbosity(args: argparse.Namespace) -> int:
    """Progress bars are for terminals."""
    return int(not args.quiet and sys.stderr.isatty())
