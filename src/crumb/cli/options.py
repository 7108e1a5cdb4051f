"""The options of the commands, each declared once, and the readers of what is typed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any


def number_or(*words: str, share: bool = False) -> Callable[[str], str | float | None]:
    """A reader of whole numbers (and shares) that also takes some words; "none" means None."""

    def read(text: str) -> str | float | None:
        if text in words:
            return None if text == "none" else text
        try:
            return float(text) if share and set(text) & set(".eE") else int(text)
        except ValueError:
            allowed = "".join(f" or {word!r}" for word in words)
            raise argparse.ArgumentTypeError(f"expected a number{allowed}, got {text!r}") from None

    return read


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def levels(text: str) -> list[float]:
    """Quantile levels: numbers between 0 and 1, separated by commas."""
    try:
        found = [float(level) for level in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < level < 1 for level in found):
        raise argparse.ArgumentTypeError(
            f"expected levels between 0 and 1, like 0.1,0.9; got {text!r}"
        )
    return found


def _bandwidth(text: str) -> str | float:
    try:
        return text if text.endswith("median") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a number, 'median' or '0.5 median', got {text!r}"
        ) from None


def _value(kind: Callable[[str], Any], metavar: str, text: str) -> dict[str, Any]:
    return {"type": kind, "metavar": metavar, "help": text}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


# Parameters of the estimators, under the same names.
SELECTION = {
    "--strategy": _value(str, "NAME", "mmd (CRUMB), uniform, knn, micp, centroid, voronoi or full"),
    "--n-clusters": _value(
        number_or("auto", "none"), "K", "clusters of queries: a count, auto or none"
    ),
    "--context-size": _value(
        number_or("auto", share=True), "N", "rows of a context: a count, a share or auto"
    ),
    "--kernel": _value(str, "NAME", "auto, exact, candidates or rff"),
    "--rff-dim": _value(int, "D", "random Fourier features"),
    "--herd-batch": _value(number_or("auto"), "B", "rows chosen per round: a count or auto"),
    "--bandwidth": _value(_bandwidth, "SIGMA", "of the kernel: a number, median or '0.5 median'"),
    "--early-stopping": {
        "action": argparse.BooleanOptionalAction,
        "help": "end a context when MMD² no longer falls",
    },
    "--min-per-class": _value(int, "M", "rows of each class that a context keeps"),
    "--categorical-features": _value(names, "A,B,…", "columns of numbers that are categories"),
}
RUNNING = {
    "--device": _value(str, "NAME", "auto, cpu, cuda or mps"),
    "--random-state": _value(int, "SEED", "the seed (0 by default)"),
    "--n-jobs": _value(int, "J", "threads"),
}
MODEL = {
    "--model": _value(str, "NAME", "a name that `crumb models` lists, or the path of a checkpoint"),
    "--budget": _value(
        str, "B", "time and memory to spend, instead of K and N: 30s, 2min, 4GB, '30s 4GB'"
    ),
    "--n-estimators": _value(int, "E", "ensemble members of the model"),
    "--features": _value(
        str, "NAME", "embedding: select by the model's own row embeddings as well"
    ),
}
ENGINE = {
    "--engine": {"choices": ("local", "ray"), "help": "what reads, scores and runs the passes"}
}

# Options that several commands have.
TABLES = "a .csv, .csv.gz or .parquet file, or a folder or glob of .parquet files of any size"
COMMON = {
    "--train": {"required": True, **_value(str, "FILE", f"the labelled table: {TABLES}")},
    "--test": {"required": True, **_value(str, "FILE", f"the rows to predict: {TABLES}")},
    "--task": {
        "choices": ("classification", "regression"),
        "help": "inferred from the target if not given",
    },
    "--quantiles": _value(levels, "0.1,0.9", "regression: quantiles at these levels as well"),
    "--drop-missing-target": _flag("leave out training rows without a target"),
    "--paper": _flag("the paper's settings; other options still win"),
    "--where": {
        "action": "append",
        **_value(str, "'year >= 2020'", "use these training rows only; may be repeated"),
    },
    "--chunk-rows": _value(int, "N", "rows that are predicted together (100,000)"),
    "--json": _flag("print one JSON object and nothing else"),
    "--quiet": _flag("no progress bars"),
}


def add_common(group: Any, *flags: str) -> None:
    for flag in flags:
        group.add_argument(flag, **COMMON[flag])


def add_parameters(group: Any, table: Mapping[str, dict[str, Any]]) -> None:
    """Options that stay out of the namespace unless given: defaults are the library's alone."""
    for flag, settings in table.items():
        group.add_argument(flag, default=argparse.SUPPRESS, **settings)


def given(args: argparse.Namespace, table: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a table that the user gave, by parameter name."""
    parameter = (flag.removeprefix("--").replace("-", "_") for flag in table)
    return {name: getattr(args, name) for name in parameter if hasattr(args, name)}


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Stages 1 and 2, and how a command runs."""
    group = parser.add_argument_group("context selection")
    add_parameters(group, SELECTION)
    add_common(group, "--paper")
    group = parser.add_argument_group("running")
    add_parameters(group, RUNNING)
    add_output_options(group)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    add_parameters(parser.add_argument_group("model"), MODEL)


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """For tables in Parquet that are not read whole."""
    group = parser.add_argument_group("large tables in Parquet")
    add_common(group, "--where", "--chunk-rows")
    add_parameters(group, ENGINE)


def add_output_options(group: Any) -> None:
    add_common(group, "--json", "--quiet")


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The estimator's keyword arguments: the paper's if asked for, then what the user gave."""
    chosen: dict[str, Any] = {}
    if args.paper:
        from crumb.options import paper_configuration

        chosen = paper_configuration()
    chosen |= given(args, {**SELECTION, **RUNNING, **MODEL, **ENGINE})
    return {**chosen, "verbose": verbosity(args)}


def verbosity(args: argparse.Namespace) -> int:
    """Progress bars are for terminals."""
    return int(not args.quiet and sys.stderr.isatty())
