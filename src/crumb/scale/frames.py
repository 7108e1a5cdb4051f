"""Arrow blocks → pandas frames that ``TableEncoder`` takes.

In memory the kind of a column follows from its values. In files the types alone decide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from crumb.errors import InvalidInput
from crumb.scale.source import View
from crumb.table.encoder import TableEncoder


def kinds_of(view: View, encoder: TableEncoder) -> list[str]:
    """ "number", "text", "category" or "empty" for every feature."""
    declared = encoder.declared()
    kinds = []
    for name in view.features:
        kind = _kind(name, view.schema.field(name).type)
        marked = name in declared or name in view.dictionaries
        kinds.append("category" if marked and kind != "empty" else kind)
    return kinds


def to_frame(block: pa.Table, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of a block; types that pandas would hold as objects become numbers first."""
    return pa.table({name: _number(block[name]) for name in columns}).to_pandas()


def plain_columns(block: pa.Table, columns: Sequence[str]) -> list[np.ndarray] | None:
    """The columns as they lie in memory; None unless all are plain numbers without holes."""
    found = [block[name] for name in columns]
    if any(column.null_count or not _is_plain(column.type) for column in found):
        return None
    return [column.to_numpy() for column in found]


def with_categories(frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """What was a dictionary in the files is a category again."""
    return frame.astype({name: "category" for name in frame.columns if name in names})


def to_labels(block: pa.Table, target: str) -> np.ndarray:
    """The target of a block as it would come from a data frame."""
    column = block[target]
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    return pd.Series(column.to_pandas()).to_numpy()


def _kind(name: str, kind: pa.DataType) -> str:
    types = pa.types
    if types.is_null(kind):
        return "empty"
    texts = types.is_string, types.is_large_string, types.is_string_view, types.is_time
    if any(matches(kind) for matches in texts):
        return "text"
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    times = types.is_date, types.is_timestamp, types.is_duration
    if any(matches(kind) for matches in (*numbers, *times)):
        return "number"
    raise InvalidInput(
        f"The column {name!r} is of type {kind}, which is no feature: leave it out with columns=."
    )


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_integer(kind)


def _number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.uint8()).cast(pa.float64())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("us" if pa.types.is_date32(kind) else "ms"))
    if pa.types.is_null(kind):
        return column.cast(pa.float64())
    if pa.types.is_time(kind):
        return column.cast(pa.string())
    return column
