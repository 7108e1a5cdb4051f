"""The columns of the training table as a contract: what a request may hold.

A record is checked by pydantic, with a type made from the columns. Its values come out ready for
the stream: numbers and truth values as floats, dates as ``datetime64``, None where one is missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import (
    AfterValidator,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from typing_extensions import TypedDict

from crumb.errors import InvalidInput, PlanMismatch
from crumb.serve.refusal import Refusal, invalid, shown
from crumb.table.encoder import Rows

LONGEST = 10_000  # characters of a text
FREQUENT = 5  # a text that fewer rows hold may name a person: it is no example
DIGITS = 4  # of a number in an example

Record = dict[str, Any]


def _moment(text: str) -> np.datetime64:
    moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
    try:
        if moment.tzinfo is not None:
            moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError as error:
        raise ValueError("beyond the calendar") from error
    return np.datetime64(moment, "us")


# An integer reaches this only where it is too large for a double: the pool's extremes stand for it.
_Huge = Annotated[int, AfterValidator(lambda value: math.inf if value > 0 else -math.inf)]
TYPES: dict[str, Any] = {
    "number": Annotated[
        float | _Huge, Field(union_mode="left_to_right"), WithJsonSchema({"type": "number"})
    ],
    "boolean": Annotated[bool, AfterValidator(float)],
    "text": Annotated[str, Field(max_length=LONGEST)],
    "datetime": Annotated[
        str, AfterValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})
    ],
    "any": Annotated[float | int | str | bool | None, AfterValidator(lambda _: None)],
}
WORDS = {
    "number": "a number",
    "boolean": "true or false",
    "text": "text",
    "datetime": "a date and time as text",
    "any": "a number, text, true, false or null",
}


@dataclass(frozen=True)
class Column:
    name: str
    kind: str  # a key of TYPES; "any" where the training table says nothing
    missing: bool  # whether null is allowed
    example: Any

    @property
    def type(self) -> Any:
        return TYPES[self.kind] | None if self.missing else TYPES[self.kind]

    def array(self, values: Sequence[Any]) -> np.ndarray:
        """Checked values as an array that pandas takes."""
        if self.kind == "datetime":
            return np.array(values, dtype="datetime64[us]")
        if self.kind != "text":
            return np.array(values, dtype=np.float64)
        found = np.empty(len(values), dtype=object)
        found[:] = [np.nan if value is None else value for value in values]
        return found

    def refusal(self, kind: str, value: Any, row: int) -> Refusal:
        """What is wrong with a value: ``kind`` is pydantic's word for it."""
        name = f"Column {shown(self.name)}"
        if value is None:
            said = f"{name} is missing in row {row}, but never was in the training table."
        elif kind == "string_unicode":
            said = f"{name} holds half of a surrogate pair, which is no text."
        elif kind == "string_too_long":
            said = f"{name} of row {row} has more than {LONGEST:,} characters."
        elif kind == "value_error":
            said = f"{name} of row {row} is no date and time such as 2024-05-31T12:00:00Z."
        else:
            said = f"{name} holds {WORDS[self.kind]}, row {row} has {_json_type(value)}."
        return invalid(said)


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
        columns = (frame.iloc[:, i] for i in range(len(names)))
        return cls(
            tuple(_column(n, c, allow_missing) for n, c in zip(names, columns, strict=True)), named
        )

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def plain(self) -> bool:
        """Whether the stream reads a single row without making a table of it."""
        return all(column.kind != "datetime" for column in self.columns)

    def example(self) -> Record:
        """A record of medians and frequent values: no row of the training table."""
        return {column.name: column.example for column in self.columns}

    @cached_property
    def record(self) -> Any:
        """The type of a record, for pydantic and for the description of the service."""
        make: Any = TypedDict
        record = make("Record", {column.name: column.type for column in self.columns})
        record.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        return record

    @cached_property
    def records(self) -> TypeAdapter[list[Record]]:
        return TypeAdapter(list_of(self.record))

    def read(self, records: Any) -> list[Record]:
        """Records, checked; their values come in the order of the columns."""
        try:
            return self.records.validate_python(records, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self.refusal(first, first["loc"]) from None

    def refusal(self, error: Mapping[str, Any], place: Sequence[Any]) -> Refusal:
        """What pydantic found wrong at a place: the number of a record, then a column."""
        row, kind = place[0], error["type"]
        if len(place) == 1:
            return invalid(f"Record {row} must be an object of column names and values.")
        name = shown(place[1])
        if kind == "extra_forbidden":
            return invalid(f"Record {row} has {name}, which is no column of the training table.")
        if kind == "missing":
            said = f"Record {row} has no value for column {name}; null stands for a missing one."
            return invalid(said)
        column = self.columns[self.names.index(place[1])]
        return column.refusal(kind, error["input"], row)

    def row(self, record: Record) -> Any:
        """A checked record, as ``CrumbOnline.submit`` takes it."""
        values = list(record.values())
        return values if self.named else np.array(values, dtype=np.float64)

    def table(self, records: Sequence[Record], names: Sequence[Any] | None) -> Rows:
        """Checked records as a table; ``names`` are those of the pool's columns."""
        columns = zip(*(record.values() for record in records), strict=True)
        arrays = [c.array(values) for c, values in zip(self.columns, columns, strict=True)]
        if not self.named or names is None:
            return np.column_stack(arrays)
        return pd.DataFrame(dict(zip(names, arrays, strict=True)))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        try:
            content = json.loads(text)
            return cls(tuple(Column(**column) for column in content["columns"]), content["named"])
        except (ValueError, KeyError, TypeError) as error:
            raise PlanMismatch(
                "The description of the columns beside the snapshot is damaged."
            ) from error


def list_of(item: Any, least: int = 0, most: int | None = None) -> Any:
    """A list that pydantic checks up to the first item that is wrong."""
    return Annotated[list[item], FailFast(), Field(min_length=least, max_length=most)]


def _json_type(value: Any) -> str:
    names: dict[type, str] = {bool: "true or false", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _column(name: str, column: pd.Series, allow_missing: bool) -> Column:
    present = column.dropna()
    kind = _kind(present)
    missing = allow_missing or kind == "any" or len(present) < len(column)
    return Column(name, kind, missing, _example(present, kind))


def _kind(present: pd.Series) -> str:
    """What the values of a column are; ``present`` has no missing ones."""
    types, dtype = pd.api.types, present.dtype
    if not len(present):
        return "any"
    if isinstance(dtype, pd.CategoricalDtype):
        whole = present.cat.categories.inferred_type in ("integer", "floating")
        return "number" if whole else "text"
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_numeric_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return "datetime"
    inferred = types.infer_dtype(present, skipna=True)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return "number"
    if inferred in ("date", "datetime", "datetime64"):
        return "datetime"
    return "boolean" if inferred == "boolean" else "text"


def _example(present: pd.Series, kind: str) -> Any:
    """A usual value: the most frequent one, the median of numbers and dates."""
    if kind == "any":
        return None
    if kind == "boolean":
        return bool(present.mode().iloc[0])
    if kind == "datetime":
        if isinstance(present.dtype, pd.PeriodDtype):
            present = present.dt.to_timestamp()
        return pd.to_datetime(present, utc=True).median().strftime("%Y-%m-%dT00:00:00Z")
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
    return _middle(present.to_numpy(dtype=np.float64))


def _middle(numbers: np.ndarray) -> float | int:
    """The median, rounded; whole where all numbers are."""
    finite = numbers[np.isfinite(numbers)]
    middle = float(f"{np.median(finite) if len(finite) else 0.0:.{DIGITS}g}")
    return int(middle) if (numbers % 1 == 0).all() and middle.is_integer() else middle
