"""Tables in Parquet files that are not read whole: which they are, their filter, their task."""

from __future__ import annotations

import argparse
import re
from glob import has_magic
from pathlib import Path
from typing import Any

from crumb.cli.tables import FEW_VALUES, fit_table, load_training, make_estimator, settle_task
from crumb.errors import InvalidInput

OPERATORS = ("<=", ">=", "!=", "==", "=", "<", ">")


def is_large(args: argparse.Namespace) -> bool:
    """Whether a table is a folder, a glob or too large to read whole, or an option asks for it."""
    asked = args.where or args.chunk_rows is not None or hasattr(args, "engine")
    return bool(asked or getattr(args, "replan", False)) or any(
        _many_or_big(path) for path in (args.train, args.test)
    )


def is_parquet(path: str) -> bool:
    return not path.lower().endswith((".csv", ".csv.gz"))


def fit_files(args: argparse.Namespace) -> Any:
    """A model whose training table is in Parquet, or in a CSV file that is read whole."""
    if is_parquet(args.train):
        task = settle_task(args, lambda: infer_file_task(args))
        return make_estimator(args, task).fit(args.train, args.target, where=condition(args))
    if args.where:
        raise InvalidInput("--where is for training tables in Parquet.")
    return fit_table(args, *load_training(args.train, args.target, args.drop_missing_target))


def condition(args: argparse.Namespace) -> Any:
    """The filter that ``--where`` and ``--drop-missing-target`` ask for, if any."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from crumb.scale.source import open_source

    found = None
    if args.where:
        schema = open_source(args.train).view.schema
        found = pq.filters_to_expression([_comparison(text, schema) for text in args.where])
    if args.drop_missing_target and args.target:
        known = ~pc.field(args.target).is_null(nan_is_null=True)
        found = known if found is None else found & known
    return found


def infer_file_task(args: argparse.Namespace) -> tuple[str, str]:
    """Classification or regression, and the reason; the target is read until that is clear."""
    import pyarrow as pa

    from crumb.scale.source import open_source

    source = open_source(args.train, args.target, condition(args))
    kind = source.view.schema.field(args.target).type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values: set[Any] = set()
        for shard in source.shards:
            for block in shard.blocks([args.target]):
                values.update(block[args.target].unique().drop_null().to_pylist())
                if len(values) > FEW_VALUES or any(value % 1 for value in values):
                    return "regression", "holds numbers"
    return "classification", "holds classes"


def _many_or_big(path: str) -> bool:
    if Path(path).is_dir() or (has_magic(path) and not Path(path).exists()):
        return True
    if not path.lower().endswith(".parquet") or not Path(path).is_file():
        return False
    import pyarrow.parquet as pq

    from crumb.scale.pool import HELD_CELLS

    try:
        footer = pq.read_metadata(path)
    except Exception:  # reading the table says what is wrong with it
        return False
    return footer.num_rows * footer.num_columns > HELD_CELLS


def _comparison(text: str, schema: Any) -> tuple[str, str, Any]:
    """``column operator value``, with the value read as the type of the column."""
    import pyarrow as pa

    found = re.fullmatch(rf"\s*(.+?)\s*({'|'.join(OPERATORS)})\s*(.*?)\s*", text)
    if found is None or found[1] not in schema.names:
        raise InvalidInput(
            f"--where must be a column, one of {' '.join(OPERATORS)} and a value, got {text!r}."
        )
    name, operator, value = found.groups()
    try:
        return name, operator, pa.scalar(value.strip("'\"")).cast(schema.field(name).type)
    except pa.ArrowException as error:
        raise InvalidInput(f"--where {text!r}: {error}") from error
