"""The Open Inference Protocol (v2): tensors in and out, one a column or one for all columns."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, FailFast, Field
from starlette.responses import Response

from crumb.online import Answer
from crumb.serve.limits import HEADER, invalid, shown, too_many_rows
from crumb.serve.parse import binary
from crumb.serve.schema import Column, Outputs, Record, Schema, Seconds, Tensor, Text, class_names

WHOLE = [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]
NUMBERS = ("FP64", "FP32", "FP16", "BF16", *WHOLE)
TAKEN = {  # datatypes that a column takes; the first one is said in the metadata
    "number": NUMBERS,
    "code": NUMBERS,
    "boolean": ("BOOL", *WHOLE),
    "text": ("BYTES",),
    "datetime": ("BYTES",),
    "any": (*NUMBERS, "BOOL", "BYTES"),
}
DATATYPES = ("BOOL", *NUMBERS, "BYTES")


class InputTensor(BaseModel, strict=True):
    name: Text
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=2)]
    datatype: Literal[DATATYPES]  # type: ignore[valid-type]
    parameters: dict[str, Any] | None = None
    data: list[Any]


class Parameters(BaseModel, strict=True):
    deadline: Seconds | None = None
    binary_data_output: bool = False


class OutputParameters(BaseModel, strict=True):
    binary_data: bool | None = None


class WantedOutput(BaseModel, strict=True):
    name: Text
    parameters: OutputParameters | None = None


class InferenceRequest(BaseModel, strict=True):
    """The protocol's form; which tensors fit the table, the answer 422 says."""

    id: Text | None = None
    parameters: Parameters | None = None
    inputs: Annotated[list[InputTensor], FailFast()]
    outputs: list[WantedOutput] | None = None


class OutputTensor(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class InferenceResponse(BaseModel):
    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, str | int]
    outputs: list[OutputTensor]


def wanted_outputs(asked: InferenceRequest, known: Sequence[Tensor]) -> list[str]:
    """The names of the outputs that are asked for: by default all."""
    names = [tensor["name"] for tensor in known]
    wanted = [output.name for output in asked.outputs or ()] or names
    for i, name in enumerate(wanted):
        if name not in names:
            raise invalid(f"There is no output {shown(name)}; there are {', '.join(names)}.")
        if name in wanted[:i]:
            raise invalid(f"The output {shown(name)} is asked for twice.")
    return wanted


def read_records(inputs: list[InputTensor], schema: Schema, max_rows: int) -> list[Record]:
    """The tensors as checked records."""
    if len(inputs) == 1 and inputs[0].name not in schema.names:
        columns = _read_table(inputs[0], schema, max_rows)
    else:
        columns = _read_columns(inputs, schema, max_rows)
    rows = zip(*columns, strict=True)
    return schema.read([dict(zip(schema.names, row, strict=True)) for row in rows])


def _read_columns(inputs: list[InputTensor], schema: Schema, max_rows: int) -> list[list[Any]]:
    """One tensor a column, in any order."""
    names = Counter(tensor.name for tensor in inputs)
    for name in names:
        if name not in schema.names:
            raise invalid(f"The input {shown(name)} is no column of the training table.")
    for name in schema.names:
        if names[name] != 1:
            raise invalid(f"There are {names[name]} inputs for column {shown(name)}.")
    tensors = {tensor.name: tensor for tensor in inputs}
    columns: list[list[Any]] = []
    for column in schema.columns:
        name, tensor = shown(column.name), tensors[column.name]
        if tensor.shape[1:] not in ([], [1]):
            raise invalid(f"The input {name} must have the shape [rows] or [rows, 1].")
        rows = tensor.shape[0]
        if columns and rows != len(columns[0]):
            raise invalid(f"The input {name} has {rows} rows, the others have {len(columns[0])}.")
        columns.append(_values(column, tensor.datatype, _flat(tensor, max_rows)))
    return columns


def _read_table(tensor: InputTensor, schema: Schema, max_rows: int) -> list[list[Any]]:
    """One tensor of all columns, in the order of the training table."""
    width = len(schema.columns)
    if tensor.shape[1:] != [width]:
        name = shown(tensor.name)
        raise invalid(
            f"The input {name} is no column; a tensor of all columns has the shape [rows, {width}]."
        )
    flat = _flat(tensor, max_rows)
    return [
        _values(column, tensor.datatype, flat[i::width]) for i, column in enumerate(schema.columns)
    ]


def _flat(tensor: InputTensor, max_rows: int) -> list[Any]:
    """The values row after row; lists of rows are taken too."""
    data, name, (rows, *width) = tensor.data, shown(tensor.name), tensor.shape
    if rows == 0:
        raise invalid("There are no rows.")
    if rows > max_rows:
        raise too_many_rows(rows, max_rows)
    if width and len(data) == rows and all(isinstance(row, list) for row in data):
        if any(len(row) != width[0] for row in data):
            raise invalid(f"The data of input {name} do not have its shape {tensor.shape}.")
        data = [value for row in data for value in row]
    count = rows * (width[0] if width else 1)
    if len(data) != count:
        raise invalid(
            f"The input {name} has {len(data)} values, its shape {tensor.shape} says {count}."
        )
    return data


def _values(column: Column, datatype: str, values: list[Any]) -> list[Any]:
    """The values of a column: truth values may come as 0 and 1."""
    taken = TAKEN[column.kind]
    if datatype not in taken:
        said = f"takes tensors of type {', '.join(taken)}, not {datatype}."
        raise invalid(f"Column {shown(column.name)} {said}")
    if column.kind != "boolean":
        return values
    return [bool(value) if type(value) is int and value in (0, 1) else value for value in values]


def write_inference(
    model: str, name: str | None, wanted: Sequence[str], answers: Sequence[Answer], outputs: Outputs
) -> dict[str, Any]:
    """``name``: the id of the request."""
    first = answers[0]
    parameters: dict[str, Any] = {"plan_version": first.version}
    if first.classes is not None:  # a parameter is text, a number or a truth value
        parameters["classes"] = json.dumps(class_names(first.classes))
    tensors = [
        {
            **tensor,
            "shape": [len(answers), *tensor["shape"]],
            "data": outputs.values(tensor["name"], answers),
        }
        for tensor in outputs.tensors(first.classes)
        if tensor["name"] in wanted
    ]
    about = {"model_name": model, "model_version": str(first.version)}
    asked = {} if name is None else {"id": name}
    return {**about, **asked, "parameters": parameters, "outputs": tensors}


def binary_outputs(asked: InferenceRequest, wanted: Sequence[str]) -> set[str]:
    """Those that come after the JSON: all of them, or as each one says."""
    usual = asked.parameters is not None and asked.parameters.binary_data_output
    said = {
        output.name: output.parameters.binary_data
        for output in asked.outputs or ()
        if output.parameters is not None
    }
    return {name for name in wanted if (usual if said.get(name) is None else said[name])}


def pack(answer: dict[str, Any], names: set[str]) -> Response | dict[str, Any]:
    """The answer with these outputs as binary tensors."""
    if not names:
        return answer
    tails = []
    for tensor in answer["outputs"]:
        if tensor["name"] in names:
            tails.append(binary(tensor["datatype"], tensor.pop("data")))
            tensor["parameters"] = {"binary_data_size": len(tails[-1])}
    head = json.dumps(answer).encode()
    length = {HEADER: str(len(head))}
    return Response(b"".join([head, *tails]), 200, length, "application/octet-stream")


def metadata(model: str, version: int, schema: Schema, outputs: Sequence[Tensor]) -> dict[str, Any]:
    return {
        "name": model,
        "versions": [str(version)],
        "platform": "crumb",
        "inputs": [_input(column, -1) for column in schema.columns],
        "outputs": [{**tensor, "shape": [-1, *tensor["shape"]]} for tensor in outputs],
    }


def example(schema: Schema) -> dict[str, Any]:
    inputs = [{**_input(column, 1), "data": [column.example]} for column in schema.columns]
    return {"id": "1", "inputs": inputs}


def _input(column: Column, rows: int) -> Tensor:
    return {"name": column.name, "datatype": TAKEN[column.kind][0], "shape": [rows]}
