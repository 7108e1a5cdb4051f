"""The options of the commands, each declared once, and the readers of what is typed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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


def _value(metavar: str, text: str, kind: Callable[[str], Any] = str) -> dict[str, Any]:
    return {"type": kind, "metavar": metavar, "help": text}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


JSON = _flag("print one JSON object and nothing else")
_count, _count_or_none = number_or("auto"), number_or("auto", "none")
_share = number_or("auto", share=True)

# Parameters of the estimators, under the same names.
SELECTION = {
    "--strategy": _value("NAME", "mmd (CRUMB), uniform, knn, micp, centroid, voronoi or full"),
    "--n-clusters": _value("K", "clusters of queries: a count, auto or none", _count_or_none),
    "--context-size": _value("N", "rows of a context: a count, a share or auto", _share),
    "--kernel": _value("NAME", "auto, exact, candidates or rff"),
    "--rff-dim": _value("D", "random Fourier features", int),
    "--herd-batch": _value("B", "rows chosen per round: a count or auto", _count),
    "--bandwidth": _value("SIGMA", "of the kernel: a number, median or '0.5 median'", _bandwidth),
    "--early-stopping": {
        "action": argparse.BooleanOptionalAction,
        "help": "end a context when MMD² no longer falls",
    },
    "--min-per-class": _value("M", "rows of each class that a context keeps", int),
    "--categorical-features": _value("A,B,…", "columns of numbers that are categories", names),
}
RUNNING = {
    "--device": _value("NAME", "auto, cpu, cuda or mps"),
    "--random-state": _value("SEED", "the seed (0 by default)", int),
    "--n-jobs": _value("J", "threads", int),
}
MODEL = {
    "--model": _value("NAME", "a name that `crumb models` lists, or the path of a checkpoint"),
    "--budget": _value(
        "B", "time and memory to spend, instead of K and N: 30s, 2min, 4GB, '30s 4GB'"
    ),
    "--n-estimators": _value("E", "ensemble members of the model", int),
    "--features": _value("NAME", "embedding: select by the model's own row embeddings as well"),
}
ENGINE = {
    "--engine": {"choices": ("local", "ray"), "help": "what reads, scores and runs the passes"}
}


def _add(group: Any, table: Mapping[str, dict[str, Any]]) -> None:
    """Options that stay out of the namespace unless given: defaults are the library's alone."""
    for flag, settings in table.items():
        group.add_argument(flag, default=argparse.SUPPRESS, **settings)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    _add(parser.add_argument_group("model"), MODEL)


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Stages 1 and 2, and how a command runs."""
    group = parser.add_argument_group("context selection")
    _add(group, SELECTION)
    group.add_argument("--paper", **_flag("the paper's settings; other options still win"))
    group = parser.add_argument_group("running")
    _add(group, RUNNING)
    _add_output_options(group)


def _add_output_options(group: Any) -> None:
    group.add_argument("--json", **JSON)
    group.add_argument("--quiet", **_flag("no progress bars"))


def _add_tables(parser: argparse.ArgumentParser) -> None:
    kinds = "a .csv, .csv.gz or .parquet file, or a folder or glob of .parquet files of any size"
    add = parser.add_argument
    add("--train", required=True, **_value("FILE", f"the labelled table: {kinds}"))
    add("--test", required=True, **_value("FILE", f"the rows to predict: {kinds}"))
    add("--drop-missing-target", **_flag("leave out training rows without a target"))


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("large tables in Parquet")
    where = _value("'year >= 2020'", "use these training rows only; may be repeated")
    group.add_argument("--where", action="append", **where)
    group.add_argument("--chunk-rows", **_value("N", "rows predicted together (100,000)", int))
    _add(group, ENGINE)


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """A command whose module is imported when it runs: ``--help`` needs no pandas and no torch."""
    parser = commands.add_parser(name, help=text, allow_abbrev=False)
    parser.set_defaults(
        run=lambda args: import_module(f"crumb.cli.{name}").run(args), usage_error=parser.error
    )
    return parser


def add_demo(commands: Any) -> None:
    parser = _command(commands, "demo", "see what CRUMB does, in under a minute")
    add, picture = parser.add_argument, "crumb-demo.png"
    add("--rows", default=6_000, **_value("N", "pool rows (6,000)", int))
    add("--out", default=picture, **_value("FILE", f"the picture ({picture})"))
    _add_output_options(parser)


def add_predict(commands: Any) -> None:
    parser = _command(commands, "predict", "predict the target of one table from another")
    _add_tables(parser)
    add, tasks = parser.add_argument, ("classification", "regression")
    add("--target", required=True, **_value("NAME", "the column to predict"))
    add("--out", required=True, **_value("FILE", "the predictions: .csv, .csv.gz or .parquet"))
    add("--no-proba", **_flag("classification: no columns probability_<class>"))
    text = "regression: quantiles at these levels as well"
    add("--quantiles", **_value("0.1,0.9", text, levels))
    add("--task", choices=tasks, help="inferred from the target if not given")
    add("--plan", **_value("FILE", "contexts that `crumb plan --out` chose for this table"))
    add_model_options(parser)
    add_selection_options(parser)
    _add_file_options(parser)
    add("--replan", **_flag("choose contexts anew for every chunk of rows"))


def add_plan(commands: Any) -> None:
    parser = _command(commands, "plan", "choose contexts without running a model, and look at them")
    _add_tables(parser)
    add, compared = parser.add_argument, "uniform,micp,mmd"
    text = "the column to predict: it is no feature, and contexts keep its rare classes"
    add("--target", **_value("NAME", text))
    add("--out", **_value("FILE", "save the plan for Plan.load and crumb predict --plan"))
    add("--picture", **_value("FILE", "draw the plan: .png, .pdf, .svg or .jpg"))
    text = f"compare strategies ({compared}) and draw what they give one cluster of queries"
    add("--compare", nargs="?", const=names(compared), **_value("A,B,…", text, names))
    add_selection_options(parser)
    _add_file_options(parser)


def add_models(commands: Any) -> None:
    parser = _command(commands, "models", "list the models and where their weights are")
    parser.add_argument("--json", **JSON)


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The estimator's keyword arguments: the paper's if asked for, then what the user gave."""
    chosen: dict[str, Any] = {}
    if args.paper:
        from crumb.options import paper_configuration

        chosen = paper_configuration()
    flags = (*SELECTION, *RUNNING, *MODEL, *ENGINE)
    parameter = (flag.removeprefix("--").replace("-", "_") for flag in flags)
    chosen |= {name: getattr(args, name) for name in parameter if hasattr(args, name)}
    return {**chosen, "verbose": verbosity(args)}


def verbosity(args: argparse.Namespace) -> int:
    """Progress bars are for terminals."""
    return int(not args.quiet and sys.stderr.isatty())
