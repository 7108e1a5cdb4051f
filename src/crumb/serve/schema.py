"""The columns of the training table as a contract: what a request may hold, and a table made from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pandas as pd

from crumb.errors import InvalidInput, PlanMismatch
from crumb.serve.refusal import Refusal, invalid, shown
from crumb.table.encoder import Rows

Columns = dict[
    str, np.ndarray
]  # what requests hold, by column: arrays that can be put behind each other

JSON_TYPES: dict[str, dict[str, Any]] = {
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "text": {"type": "string"},
    "datetime": {"type": "string", "format": "date-time"},
    "any": {"type": ["number", "string", "boolean", "null"]},
}
PYTHON_TYPES: dict[str, set[type]] = {
    "number": {int, float},
    "boolean": {bool},
    "text": {str},
    "datetime": {str},
    "any": {int, float, bool, str, type(None)},
}
WORDS = {
    "number": "a number",
    "boolean": "true or false",
    "text": "text",
    "datetime": "a date and time as text",
}
FREQUENT = 5  # a text that fewer rows hold may name someone: it is no example
DIGITS = 4  # of a number in an example


@dataclass(frozen=True)
class Column:
    name: str
    kind: (
        str  # "number", "boolean", "text", "datetime"; "any" where the training table says nothing
    )
    missing: bool  # whether null is allowed
    example: Any

    def json_schema(self) -> dict[str, Any]:
        schema = dict(JSON_TYPES[self.kind])
        if self.missing and self.kind != "any":
            schema["type"] = [schema["type"], "null"]
        return schema

    def read(self, values: Sequence[Any]) -> np.ndarray:
        """Values of a request, checked, as an array."""
        kinds = set(map(type, values))
        if not kinds <= self._types():
            raise self._wrong(values)
        if self.kind in ("number", "boolean"):
            return _numbers(values)
        if self.kind == "text":
            return self._texts(values)
        if self.kind == "datetime":
            return np.array(
                [self._moment(i, value) for i, value in enumerate(values)], dtype="datetime64[us]"
            )
        return np.full(len(values), np.nan)

    def _types(self) -> set[type]:
        return PYTHON_TYPES[self.kind] | ({type(None)} if self.missing else set())

    def _wrong(self, values: Sequence[Any]) -> Refusal:
        allowed = self._types()
        place, value = next(
            (i, value) for i, value in enumerate(values) if type(value) not in allowed
        )
        if value is None:
            return invalid(
                f"Column {shown(self.name)} is missing in row {place}, but never was in the training table."
            )
        expected = WORDS.get(self.kind, "a number, text, true, false or null")
        return invalid(
            f"Column {shown(self.name)} holds {expected}, row {place} has {_json_type(value)}."
        )

    def _texts(self, values: Sequence[Any]) -> np.ndarray:
        try:
            "".join(value for value in values if value is not None).encode()
        except UnicodeEncodeError:
            raise invalid(
                f"Column {shown(self.name)} holds half of a surrogate pair, which is no text."
            ) from None
        found = np.empty(len(values), dtype=object)
        found[:] = [np.nan if value is None else value for value in values]
        return found

    def _moment(self, place: int, value: str | None) -> np.datetime64:
        if value is None:
            return np.datetime64("NaT")
        try:
            moment = datetime.fromisoformat(
                value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value
            )
            if moment.tzinfo is not None:
                moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
        except (ValueError, OverflowError):
            raise invalid(
                f"Column {shown(self.name)} of row {place} is no date and time such as 2024-05-31T12:00:00Z."
            ) from None
        return np.datetime64(moment, "us")


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]
    named: bool = True  # False: the pool is an array, and columns are called by their number

    @classmethod
    def of(cls, rows: Rows, allow_missing: bool = False) -> Schema:
        """The contract that a training table makes: null is allowed where it has missing values."""
        named = isinstance(rows, pd.DataFrame)
        frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
        names = [str(name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise InvalidInput(
                "Two columns have the same name when written as text: rename one of them."
            )
        columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
        return cls(
            tuple(_column(n, c, allow_missing) for n, c in zip(names, columns, strict=True)), named
        )

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def plain(self) -> bool:
        """Whether the stream reads a single row without making a table of it."""
        return all(column.kind != "datetime" for column in self.columns)

    def example(self) -> dict[str, Any]:
        """A record of medians and frequent values: no row of the training table."""
        return {column.name: column.example for column in self.columns}

    def json_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {column.name: column.json_schema() for column in self.columns},
            "required": self.names,
            "additionalProperties": False,
        }

    def read(self, records: list[Any]) -> Columns:
        """Records of a request, checked, by column."""
        width, names = len(self.columns), set(self.names)
        for place, record in enumerate(records):
            if type(record) is not dict:
                raise invalid(f"Record {place} must be an object of column names and values.")
            if len(record) != width or not names.issuperset(record):
                raise self._wrong_names(place, record)
        return {
            column.name: column.read([record[column.name] for record in records])
            for column in self.columns
        }

    def _wrong_names(self, place: int, record: dict[str, Any]) -> Refusal:
        unknown = [name for name in record if name not in set(self.names)]
        if unknown:
            return invalid(
                f"Record {place} has {shown(unknown[0])}, which is no column of the training table."
            )
        missing = next(name for name in self.names if name not in record)
        return invalid(
            f"Record {place} has no value for column {shown(missing)}; null stands for a missing one."
        )

    def row(self, columns: Columns) -> Any:
        """A request of one row, as ``CrumbOnline.submit`` takes it."""
        values = [columns[name][0] for name in self.names]
        return values if self.named else np.array(values)

    def table(self, pieces: Sequence[Columns], names: Sequence[Any]) -> Rows:
        """Requests below each other as one table for the stream; ``names`` are those of the pool's columns."""
        joined = [
            np.concatenate([piece[name] for piece in pieces])
            if len(pieces) > 1
            else pieces[0][name]
            for name in self.names
        ]
        if not self.named:
            return np.column_stack(joined)
        return pd.DataFrame(dict(zip(names, joined, strict=True)))

    def to_json(self) -> str:
        return json.dumps(
            {"columns": [asdict(column) for column in self.columns], "named": self.named}, indent=1
        )

    @classmethod
    def from_json(cls, text: str) -> Schema:
        try:
            content = json.loads(text)
            return cls(tuple(Column(**column) for column in content["columns"]), content["named"])
        except (ValueError, KeyError, TypeError) as error:
            raise PlanMismatch(
                "The description of the columns beside the snapshot is damaged."
            ) from error


def _json_type(value: Any) -> str:
    names: dict[type, str] = {bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Null is NaN; numbers beyond double precision are infinite, which the pool's extremes stand for."""
    try:
        return np.array(values, dtype=np.float64)  # None becomes NaN
    except OverflowError:
        return np.array([_double(value) for value in values])


def _double(value: Any) -> float:
    try:
        return float("nan") if value is None else float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _column(name: str, column: pd.Series, allow_missing: bool) -> Column:
    present = column.dropna()
    kind = _kind(present)
    missing = allow_missing or kind == "any" or len(present) < len(column)
    return Column(name, kind, missing, _example(present, kind))


def _kind(present: pd.Series) -> str:
    """What the values of a column are, missing ones left out."""
    types = pd.api.types
    if not len(present):
        return "any"
    if isinstance(present.dtype, pd.CategoricalDtype):
        return (
            "number" if present.cat.categories.inferred_type in ("integer", "floating") else "text"
        )
    if types.is_bool_dtype(present.dtype):
        return "boolean"
    if types.is_numeric_dtype(present.dtype) or types.is_timedelta64_dtype(present.dtype):
        return "number"
    if types.is_datetime64_any_dtype(present.dtype) or isinstance(present.dtype, pd.PeriodDtype):
        return "datetime"
    inferred = types.infer_dtype(present, skipna=True)
    known = {
        "boolean": "boolean",
        "integer": "number",
        "floating": "number",
        "mixed-integer-float": "number",
    }
    known |= dict.fromkeys(("decimal",), "number") | dict.fromkeys(
        ("date", "datetime", "datetime64"), "datetime"
    )
    return known.get(inferred, "text")


def _example(present: pd.Series, kind: str) -> Any:
    """A usual value: the most frequent one, the median of numbers and dates."""
    if kind == "any":
        return None
    if kind == "boolean":
        return bool(present.mode().iloc[0])
    if kind == "datetime":
        moments = pd.to_datetime(
            present.dt.to_timestamp() if isinstance(present.dtype, pd.PeriodDtype) else present,
            utc=True,
        )
        return moments.median().strftime("%Y-%m-%dT00:00:00Z")
    if kind == "text" or isinstance(present.dtype, pd.CategoricalDtype):
        counts = present.value_counts()
        if counts.iloc[0] >= FREQUENT:
            value = counts.index[0]
            return str(value) if kind == "text" else float(value)
        if kind == "text":
            return "text"
        present = present.astype(float)
    if pd.api.types.is_timedelta64_dtype(present.dtype):
        present = present / pd.Timedelta(days=1)
    numbers = present.to_numpy(dtype=np.float64)
    middle = float(
        f"{np.median(numbers[np.isfinite(numbers)]) if np.isfinite(numbers).any() else 0.0:.{DIGITS}g}"
    )
    return int(middle) if (numbers % 1 == 0).all() and middle.is_integer() else middle
