"""Options that several commands share. Each has the name of the estimator parameter that it sets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

STRATEGIES = "mmd (CRUMB), uniform, knn, micp, centroid, voronoi or full"


def add_table_options(parser: argparse.ArgumentParser) -> None:
    kinds = "a .csv, .csv.gz or .parquet file, or a folder or glob of .parquet files of any size"
    parser.add_argument(
        "--train", required=True, metavar="FILE", help=f"the labelled table: {kinds}"
    )
    parser.add_argument(
        "--test", required=True, metavar="FILE", help=f"the rows to answer: {kinds}"
    )


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """For tables in Parquet that are not read whole."""
    group = parser.add_argument_group("large tables in Parquet")
    group.add_argument(
        "--where",
        action="append",
        metavar="'year >= 2020'",
        help="use these training rows only; may be repeated",
    )
    group.add_argument(
        "--engine", choices=("local", "ray"), help="who reads, scores and runs the passes"
    )
    group.add_argument(
        "--chunk-rows", type=int, metavar="N", help="rows that are answered together (100,000)"
    )


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """The parameters of stages 1 and 2; one that is not given is left to the library."""
    group = parser.add_argument_group("context selection")
    _add(group, "--strategy", str, "NAME", STRATEGIES)
    _add(
        group,
        "--n-clusters",
        number_or("auto", "none"),
        "K",
        "clusters of queries: a count, auto or none",
    )
    _add(
        group,
        "--context-size",
        number_or("auto", share=True),
        "N",
        "rows of a context: a count, a share or auto",
    )
    _add(group, "--kernel", str, "NAME", "auto, exact, candidates or rff")
    _add(group, "--rff-dim", int, "D", "random Fourier features")
    _add(group, "--herd-batch", number_or("auto"), "B", "rows chosen per round: a count or auto")
    _add(
        group, "--bandwidth", _bandwidth, "SIGMA", "of the kernel: a number, median or '0.5 median'"
    )
    group.add_argument(
        "--early-stopping",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="end a context when MMD² no longer falls",
    )
    _add(group, "--min-per-class", int, "M", "rows of each class that a context keeps")
    _add(group, "--categorical-features", names, "A,B,…", "columns of numbers that are categories")
    group.add_argument(
        "--paper", action="store_true", help="the paper's settings; other options still win"
    )
    group = parser.add_argument_group("running")
    _add(group, "--device", str, "NAME", "auto, cpu, cuda or mps")
    _add(group, "--random-state", int, "SEED", "the seed (0 by default)")
    _add(group, "--n-jobs", int, "J", "threads")
    add_output_options(group)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    _add(
        group,
        "--model",
        str,
        "NAME",
        "a name that `crumb models` lists, or the path of a checkpoint",
    )
    _add(
        group,
        "--budget",
        str,
        "B",
        "what it may take, in the place of K and N: 30s, 2min, 4GB, '30s 4GB'",
    )
    _add(group, "--n-estimators", int, "E", "ensemble members of the model")
    _add(
        group,
        "--features",
        str,
        "NAME",
        "embedding: select by the model's own row embeddings as well",
    )


def add_output_options(group: Any) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    group.add_argument("--quiet", action="store_true", help="no progress bars")


SELECTION = (
    "strategy", "n_clusters", "context_size", "kernel", "rff_dim", "herd_batch", "bandwidth",
    "early_stopping", "min_per_class", "categorical_features", "device", "random_state", "n_jobs",
)  # fmt: skip
MODEL = ("model", "budget", "n_estimators", "features")


def parameters(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments that the user chose, upon the paper's where they were asked for."""
    chosen: dict[str, Any] = {}
    if args.paper:
        from crumb.options import paper_configuration

        chosen = paper_configuration()
    chosen |= {name: getattr(args, name) for name in (*SELECTION, *MODEL) if hasattr(args, name)}
    return {**chosen, "verbose": int(not args.quiet and sys.stderr.isatty())}


def number_or(*words: str, share: bool = False) -> Callable[[str], str | float | None]:
    """A reader of whole numbers (and shares) that also takes some words; "none" means None."""

    def read(text: str) -> str | float | None:
        if text in words:
            return None if text == "none" else text
        try:
            return int(text)
        except ValueError:
            pass
        try:
            if share:
                return float(text)
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(
            f"expected a number{''.join(f' or {word!r}' for word in words)}, got {text!r}"
        )

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


def _add(group: Any, name: str, kind: Callable[[str], Any], metavar: str, text: str) -> None:
    # Left out of the namespace unless given: the estimator's own defaults are the only ones.
    group.add_argument(name, type=kind, metavar=metavar, default=argparse.SUPPRESS, help=text)
