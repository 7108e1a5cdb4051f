"""What requests may hold, by the training table, and what answers hold.

The columns of the training table are a contract. A record is checked by pydantic, with a type made
from the columns. Its values come out ready for the stream: numbers and truth values as floats,
dates as days since 1970, None where one is missing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from crumb.errors import InvalidInput, PlanMismatch
from crumb.online import Answer, CrumbOnline
from crumb.serve.limits import Refusal, invalid, malformed, shown, too_many_rows
from crumb.table.cells import LARGEST, LARGEST_WHOLE, kind_of, numbers
from crumb.table.encoder import Rows

LONGEST = 10_000  # characters of a text
FREQUENT = 5  # a text that fewer rows hold may name a person: it is no example
DIGITS = 4  # of a number in an example

Record = dict[str, Any]


def _days(text: str) -> float:
    """Days since 1970, as the encoder has dates: a row with dates is as quick as one without."""
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        said = "Input should be a date and time such as 2024-05-31T12:00:00Z"
        raise PydanticCustomError("moment", said) from None
    return float((np.datetime64(moment, "us") - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def _any(value: Any) -> Any:
    """A value of a column in which the training table holds none: learned rows may bring some."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= LONGEST):
        return value
    said = "Input should be a number, a truth value or a text of at most {longest} characters"
    raise PydanticCustomError("any", said, {"longest": LONGEST})


# An integer reaches this only where it is too large for a double: the pool's extremes stand for it.
_Huge = Annotated[int, AfterValidator(lambda value: math.inf if value > 0 else -math.inf)]
TYPES: dict[str, Any] = {
    "number": Annotated[
        float | _Huge, Field(union_mode="left_to_right"), WithJsonSchema({"type": "number"})
    ],
    "boolean": Annotated[bool, AfterValidator(float)],
    "text": Annotated[str, Field(max_length=LONGEST)],
    "datetime": Annotated[
        str, AfterValidator(_days), WithJsonSchema({"type": "string", "format": "date-time"})
    ],
    "any": Annotated[Any, AfterValidator(_any)],
}
TYPES["code"] = Annotated[  # whole numbers stay whole, whatever their size
    int | float, Field(union_mode="left_to_right"), WithJsonSchema({"type": "number"})
]
# What the encoder must make of a column that is not empty.
ENCODED = {"datetime": ("number",), "boolean": ("number", "category", "text")}
OBJECTS = ("text", "code", "any")  # kinds whose values are no floats
KINDS = {  # by pandas' word for the values of a column; anything else is text
    **dict.fromkeys(("integer", "floating", "mixed-integer-float", "decimal"), "number"),
    **{"timedelta64": "number", "complex": "number", "boolean": "boolean"},
    **dict.fromkeys(("date", "datetime", "datetime64", "period"), "datetime"),
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


@dataclass(frozen=True)
class Schema:
    columns: tuple[Column, ...]
    named: bool = True  # False: the pool is an array, and columns are called by their number

    def check(self, estimator: Any) -> None:
        """Raise what does not fit a fitted estimator: every record would be refused later."""
        encoder = estimator.pool_.encoder
        if self.names != [str(name) for name in encoder.columns_]:
            raise InvalidInput("The names of the columns differ.")
        if self.named != (estimator.pool_.columns is not None):
            raise InvalidInput("One of them has names of columns, the other has none.")
        for column, kind in zip(self.columns, encoder.kinds_, strict=True):
            if kind not in ("empty", *ENCODED.get(column.kind, (kind,))):
                raise InvalidInput(f"Column {shown(column.name)} is no {column.kind}.")
        table = self.table(self.read([self.example()]), estimator.pool_.columns)
        estimator.encode(table)

    @classmethod
    def of(
        cls, rows: Rows, allow_missing: bool = False, categories: Collection[Any] = ()
    ) -> Schema:
        """The contract that a training table makes: null is allowed where it has missing values.

        ``categories``: columns whose dates are categories, and no numbers.
        """
        frame = pd.DataFrame(rows)
        dates = [name for name in categories if _kind(frame[name].dropna()) == "datetime"]
        frame = frame.astype(dict.fromkeys(dates, "category"))
        names = [str(name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise InvalidInput("Two columns have the same name as text: rename one of them.")
        named = isinstance(rows, pd.DataFrame)
        unknown = "any" if named else "number"
        columns = (frame.iloc[:, i] for i in range(len(names)))
        pairs = zip(names, columns, strict=True)
        return cls(tuple(_column(*pair, unknown, allow_missing) for pair in pairs), named)

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

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
        row, *column = place
        if not column:
            return invalid(f"Record {row}: {error['msg']}.")
        said = f"of record {row}: {error['msg']}."
        if error["input"] is None:
            said = f"is missing in record {row}, but never was in the training table."
        return invalid(f"Column {shown(column[0])} {said}")

    def row(self, record: Record) -> Any:
        """A checked record, as ``CrumbOnline.submit`` takes it."""
        values = list(record.values())
        return values if self.named else np.array(values, dtype=np.float64)

    def table(self, records: Sequence[Record], names: Sequence[Any] | None) -> Rows:
        """Checked records as a table; ``names`` are those of the pool's columns."""
        values = zip(*(record.values() for record in records), strict=True)
        columns = [
            np.array(column, dtype="object" if each.kind in OBJECTS else "float64")
            for each, column in zip(self.columns, values, strict=True)
        ]
        if not self.named or names is None:
            return np.column_stack(columns)
        return pd.DataFrame(dict(zip(names, columns, strict=True)))

    def to_json(self) -> bytes:
        return TypeAdapter(Schema).dump_json(self, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> Schema:
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            said = "The description of the columns beside the snapshot is damaged."
            raise PlanMismatch(said) from error


def list_of(item: Any, least: int = 0, most: int | None = None) -> Any:
    """A list that pydantic checks up to the first item that is wrong."""
    return Annotated[list[item], FailFast(), Field(min_length=least, max_length=most)]


def _column(name: str, column: pd.Series, unknown: str, allow_missing: bool) -> Column:
    """``unknown``: the kind of a column without values."""
    present = column.dropna()
    kind = _kind(present) if len(present) else unknown
    missing = allow_missing or len(present) < len(column)
    return Column(name, kind, missing, _example(present, kind))


def _kind(present: pd.Series) -> str:
    """What the values of a column are; ``present`` has no missing ones."""
    if isinstance(present.dtype, pd.CategoricalDtype):
        present = present.cat.categories.to_series()
        if present.dtype.kind not in "iuf":
            return "text"
    if present.dtype.kind in "iu" and not present.between(-LARGEST_WHOLE, LARGEST_WHOLE).all():
        return "code"
    kind = KINDS.get(pd.api.types.infer_dtype(present), "text")
    return "datetime" if kind == "text" and kind_of(present) == "number" else kind


def _example(present: pd.Series, kind: str) -> Any:
    """A usual value: the median of numbers and dates, else the most frequent one."""
    if kind == "any":
        return None
    if kind in ("number", "datetime"):
        values = numbers(present).astype(np.float64)
        finite = values[np.isfinite(values)]
        middle = np.median(finite) if len(finite) else 0.0
        if kind == "datetime":
            return f"{np.datetime64(math.floor(middle), 'D')}T00:00:00Z"
        middle = float(f"{middle:.{DIGITS}g}")
        return int(middle) if middle.is_integer() else middle
    counts = present.value_counts()
    if kind in ("boolean", "code"):
        return counts.index[0].item() if hasattr(counts.index[0], "item") else counts.index[0]
    return str(counts.index[0]) if counts.iloc[0] >= FREQUENT else "text"


STRICT = ConfigDict(strict=True, extra="forbid")
Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(max_length=LONGEST)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Label = bool | int | float | str  # learned rows may bring classes of another type
Tensor = dict[str, Any]  # name, datatype and shape of a row, as the Open Inference Protocol has it
# By the kind of numpy's type; anything else is text.
LABELS: dict[str, Any] = {"b": bool, "i": Whole, "u": Whole, "f": Number}
DATATYPES = {"b": "BOOL", "i": "INT64", "u": "INT64", "f": "FP64"}


class Error(BaseModel):
    error: str


class Waiting(BaseModel):
    waiting: int


class Prediction(BaseModel):
    """Labels for classification; numbers, or quantiles by their levels, for regression."""

    label: Label | None = None
    probabilities: dict[str, float] | None = None
    prediction: float | None = None
    quantiles: dict[str, float] | None = None


class Predictions(BaseModel):
    model: str
    plan_version: int
    predictions: list[Prediction]


def _request(name: str, schema: Schema, max_rows: int | None, **more: Any) -> type[BaseModel]:
    records = (list_of(schema.record, 1, max_rows), ...)
    return create_model(name, __config__=STRICT, records=records, **more)


def predict_request(schema: Schema, max_rows: int) -> type[BaseModel]:
    wanted = "Seconds in which the answer is wanted; the service may have a shorter limit."
    deadline = (Annotated[Seconds | None, Field(description=wanted)], None)
    return _request("PredictRequest", schema, max_rows, deadline=deadline)


def learn_request(schema: Schema, max_rows: int | None, stream: CrumbOnline) -> type[BaseModel]:
    """Labels are as strict as features: of the type that those of the pool have."""
    label = LABELS.get(stream.snapshot().pool.y.dtype.kind, Text)
    return _request("LearnRequest", schema, max_rows, labels=(list_of(label), ...))


def refusal(errors: Sequence[Mapping[str, Any]], body: Any, schema: Schema) -> Refusal:
    """The first thing that pydantic found wrong with a body, in one sentence."""
    error, kind = errors[0], errors[0]["type"]
    _, *place = error["loc"]
    if not place:
        said = "is null, or not JSON" if body is None else "must be a JSON object"
        return malformed(f"The body {said}.")
    if place[0] == "records" and len(place) > 1:
        return schema.refusal(error, place[1:])
    if len(place) == 1 and kind == "too_long":
        return too_many_rows(len(body[place[0]]), error["ctx"]["max_length"])
    formless = len(place) == 1 and kind in ("missing", "list_type")
    said = f"{shown('.'.join(map(str, place)))}: {error['msg']}."
    return malformed(said) if formless else invalid(said)


@dataclass(frozen=True)
class Outputs:
    """``kind``: what the stream answers with, such as "proba"; ``levels``: of quantiles."""

    kind: str
    levels: tuple[float, ...] = ()

    def tensors(self, classes: np.ndarray | None) -> list[Tensor]:
        def tensor(name: str, datatype: str, *shape: int) -> Tensor:
            return {"name": name, "datatype": datatype, "shape": shape}

        if self.kind == "quantiles":
            return [tensor("quantiles", "FP64", len(self.levels))]
        if classes is None:
            return [tensor("prediction", "FP64")]
        label = tensor("label", DATATYPES.get(classes.dtype.kind, "BYTES"))
        probabilities = tensor("probabilities", "FP64", len(classes))
        return [label] if self.kind == "label" else [label, probabilities]

    def values(self, tensor: str, answers: Sequence[Answer]) -> list[Any]:
        """The values of one output, row after row, flat."""
        if tensor == "label":
            return [self._label(answer) for answer in answers]
        return np.asarray([answer.value for answer in answers], dtype=np.float64).ravel().tolist()

    def record(self, answer: Answer) -> dict[str, Any]:
        """One answer in plain JSON."""
        if self.kind == "quantiles":
            levels = (f"{level:g}" for level in self.levels)
            return {"quantiles": dict(zip(levels, map(float, answer.value), strict=True))}
        if answer.classes is None:
            return {"prediction": float(answer.value)}
        found: dict[str, Any] = {"label": self._label(answer)}
        if self.kind == "proba":
            names = class_names(answer.classes)
            found["probabilities"] = dict(zip(names, answer.value.tolist(), strict=True))
        return found

    def _label(self, answer: Answer) -> Any:
        assert answer.classes is not None
        given = self.kind == "label"
        label = answer.value if given else answer.classes[int(np.argmax(answer.value))]
        return label.item() if isinstance(label, np.generic) else label


def class_names(classes: np.ndarray) -> list[str]:
    """Classes as keys of a JSON object: true and false as JSON writes them."""
    lower = classes.dtype.kind == "b"
    return [str(label).lower() if lower else str(label) for label in classes.tolist()]
