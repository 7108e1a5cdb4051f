"""The bodies of plain JSON: models for pydantic, made from the training table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model

from crumb.serve.refusal import Refusal, invalid, malformed, shown, too_many_rows
from crumb.serve.schema import LONGEST, Schema, list_of

STRICT = ConfigDict(strict=True, extra="forbid")
Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(max_length=LONGEST)]
LABELS: dict[str, Any] = {  # by the kind of numpy's type; anything else is text
    "b": bool,
    "i": int,
    "u": int,
    "f": Annotated[float, Field(allow_inf_nan=False)],
}
FORM = {  # what must be there, in what form
    "records": 'The body needs "records", a list of objects.',
    "labels": 'The body needs "labels", a list with one label a record.',
    "inputs": 'The body needs "inputs", a list of tensors.',
}
FIELDS = {
    "deadline": "The deadline must be a positive number of seconds.",
    "id": "The id must be text.",
    "parameters": "The parameters must be an object.",
    "outputs": '"outputs" must be a list of objects with a name.',
}
TENSOR = {
    "name": "An input needs a name.",
    "shape": "The shape of input {} must be [rows] or [rows, columns].",
    "datatype": "The datatype of input {} is none of the protocol's.",
    "data": 'The input {} needs "data", a list of values.',
    "parameters": "The parameters of input {} must be an object.",
}


class Error(BaseModel):
    error: str


class Waiting(BaseModel):
    waiting: int


def predict_request(schema: Schema, max_rows: int) -> type[BaseModel]:
    wanted = "Seconds in which the answer is wanted; the service may have a shorter limit."
    return create_model(
        "PredictRequest",
        __config__=STRICT,
        records=(list_of(schema.record, 1, max_rows), ...),
        deadline=(Annotated[Seconds | None, Field(description=wanted)], None),
    )


def learn_request(schema: Schema, max_rows: int, labels: np.ndarray) -> type[BaseModel]:
    """``labels``: some of those that the pool has."""
    return create_model(
        "LearnRequest",
        __config__=STRICT,
        records=(list_of(schema.record, 1, max_rows), ...),
        labels=(list_of(LABELS.get(labels.dtype.kind, Text)), ...),
    )


def predict_response(prediction: type[BaseModel]) -> type[BaseModel]:
    """``prediction``: the model of one row's answer."""
    predictions = (list_of(prediction), ...)
    return create_model(
        "Predictions", model=(str, ...), plan_version=(int, ...), predictions=predictions
    )


def refusal(errors: Sequence[Mapping[str, Any]], body: Any, schema: Schema) -> Refusal:
    """The first thing that pydantic found wrong with a body, in one sentence."""
    error, kind = errors[0], errors[0]["type"]
    _, *place = error["loc"]
    if not place:
        said = "is null, or not JSON" if body is None else "must be a JSON object"
        return malformed(f"The body {said}.")
    field = place[0]
    if field == "records" and len(place) > 1:
        return schema.refusal(error, place[1:])
    if field == "inputs" and len(place) > 2:
        name = shown(body["inputs"][place[1]].get("name"))
        return invalid(TENSOR[place[2]].format(name))
    if kind == "extra_forbidden":
        return invalid(f"The body has {shown(field)}, which is not known here.")
    if field == "labels" and len(place) > 1:
        return invalid(f"Label {place[1]} is not of the type of the labels that the pool has.")
    if kind == "too_short":
        return invalid(f"There are no {field}.")
    if kind == "too_long":
        return too_many_rows(len(body[field]), error["ctx"]["max_length"])
    if field in FORM:
        return malformed(FORM[field])
    return invalid(FIELDS["deadline" if "deadline" in place else field])
