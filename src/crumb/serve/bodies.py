"""Bodies of plain JSON: what requests may hold, by the training table, and what answers hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model

from crumb.online import Answer, CrumbOnline
from crumb.serve.limits import Refusal, invalid, malformed, shown, too_many_rows
from crumb.serve.schema import LONGEST, Schema, list_of
from crumb.table.cells import LARGEST

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
