"""The Open Inference Protocol (v2): tensors in and out, one for each column, or one for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crumb.online import Answer
from crumb.serve.outputs import Outputs, Tensor, class_names
from crumb.serve.predict import Asked, read_deadline
from crumb.serve.refusal import invalid, malformed, shown, too_many_rows
from crumb.serve.schema import Column, Columns, Schema

WHOLE = {f"{sign}INT{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}
REAL = ("FP16", "BF16", "FP32", "FP64")
NUMBERS = (*REAL, *WHOLE)
TAKEN = {  # datatypes of the protocol that a column takes
    "number": NUMBERS,
    "boolean": ("BOOL", *WHOLE),
    "text": ("BYTES",),
    "datetime": ("BYTES",),
    "any": (*NUMBERS, "BOOL", "BYTES"),
}
USUAL = {"number": "FP64", "boolean": "BOOL", "text": "BYTES", "datetime": "BYTES", "any": "FP64"}
DATATYPES = ("BOOL", *NUMBERS, "BYTES")
TABLE = "table"  # what the one tensor of all columns is called in examples; any name that no column has will do


@dataclass(frozen=True)
class Inference:
    asked: Asked
    id: str | None
    outputs: list[str] | None  # None: all of them


def read_inference(
    content: dict[str, Any], schema: Schema, outputs: Sequence[Tensor], max_rows: int
) -> Inference:
    name = content.get("id")
    if name is not None and not isinstance(name, str):
        raise invalid("The id must be text.")
    parameters = content.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid("The parameters must be an object.")
    wanted = _wanted(content.get("outputs"), [tensor.name for tensor in outputs])
    inputs = content.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        raise malformed('The body needs "inputs", a list of tensors.')
    columns, rows = _read_inputs(inputs, schema, max_rows)
    return Inference(
        Asked(columns, rows, read_deadline((parameters or {}).get("deadline"))), name, wanted
    )


def _wanted(asked: Any, known: list[str]) -> list[str] | None:
    if asked is None or asked == []:
        return None
    if not isinstance(asked, list) or not all(isinstance(each, dict) for each in asked):
        raise invalid('"outputs" must be a list of objects with a name.')
    names = [each.get("name") for each in asked]
    for i, name in enumerate(names):
        if name not in known:
            raise invalid(f"There is no output {shown(name)}; there are {', '.join(known)}.")
        if name in names[:i]:
            raise invalid(f"The output {shown(name)} is asked for twice.")
    return names


def _read_inputs(
    inputs: list[dict[str, Any]], schema: Schema, max_rows: int
) -> tuple[Columns, int]:
    if len(inputs) == 1 and inputs[0].get("name") not in schema.names:
        return _read_table(inputs[0], schema, max_rows)
    tensors: dict[str, dict[str, Any]] = {}
    for tensor in inputs:
        name = tensor.get("name")
        if name not in schema.names:
            raise invalid(f"The input {shown(name)} is no column of the training table.")
        if name in tensors:
            raise invalid(f"The input {shown(name)} comes twice.")
        tensors[name] = tensor
    missing = next((name for name in schema.names if name not in tensors), None)
    if missing is not None:
        raise invalid(f"There is no input for column {shown(missing)}.")
    columns: Columns = {}
    rows: int | None = None
    for column in schema.columns:
        tensor = tensors[column.name]
        shape = _shape(tensor, column.name)
        if len(shape) == 2 and shape[1] != 1:
            raise invalid(
                f"The input {shown(column.name)} must have the shape [rows] or [rows, 1]."
            )
        if rows is not None and shape[0] != rows:
            raise invalid(
                f"The input {shown(column.name)} has {shape[0]} rows, the others have {rows}."
            )
        rows = shape[0]
        _check_rows(rows, max_rows)
        columns[column.name] = _column(column, tensor, _flat(tensor, shape, column.name))
    assert rows is not None
    return columns, rows


def _read_table(tensor: dict[str, Any], schema: Schema, max_rows: int) -> tuple[Columns, int]:
    """One tensor of all columns, in the order of the training table."""
    name = tensor.get("name")
    if not isinstance(name, str):
        raise invalid("An input needs a name.")
    shape = _shape(tensor, name)
    width = len(schema.columns)
    if len(shape) != 2 or shape[1] != width:
        raise invalid(
            f"The input {shown(name)} is no column; a tensor of all columns has the shape [rows, {width}]."
        )
    _check_rows(shape[0], max_rows)
    values = _flat(tensor, shape, name)
    return {
        column.name: _column(column, tensor, values[i::width])
        for i, column in enumerate(schema.columns)
    }, shape[0]


def _check_rows(rows: int, max_rows: int) -> None:
    if rows == 0:
        raise invalid("There are no rows.")
    if rows > max_rows:
        raise too_many_rows(rows, max_rows)


def _shape(tensor: dict[str, Any], name: str) -> list[int]:
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or not all(type(n) is int and n >= 0 for n in shape)
        or len(shape) not in (1, 2)
    ):
        raise invalid(f"The shape of input {shown(name)} must be [rows] or [rows, columns].")
    return shape


def _flat(tensor: dict[str, Any], shape: list[int], name: str) -> list[Any]:
    """The values row after row; lists of rows are taken too."""
    data = tensor.get("data")
    if not isinstance(data, list):
        raise invalid(f'The input {shown(name)} needs "data", a list of values.')
    if len(shape) == 2 and len(data) == shape[0] and all(isinstance(row, list) for row in data):
        if any(len(row) != shape[1] for row in data):
            raise invalid(f"The data of input {shown(name)} do not have its shape {shape}.")
        data = [value for row in data for value in row]
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if len(data) != count:
        raise invalid(
            f"The input {shown(name)} has {len(data)} values, its shape {shape} says {count}."
        )
    return data


def _column(column: Column, tensor: dict[str, Any], values: list[Any]) -> Any:
    datatype = tensor.get("datatype")
    if datatype not in DATATYPES:
        raise invalid(
            f"The datatype {shown(datatype)} of column {shown(column.name)} is none of the protocol's."
        )
    if datatype not in TAKEN[column.kind]:
        raise invalid(
            f"Column {shown(column.name)} takes tensors of type {_listed(TAKEN[column.kind])}, not {datatype}."
        )
    if datatype in WHOLE:
        low, high = (0, 1) if column.kind == "boolean" else _range(datatype)
        for value in values:
            if value is not None and (type(value) is not int or not low <= value <= high):
                raise invalid(
                    f"Column {shown(column.name)} holds a value that is no {datatype} from {low} to {high}."
                )
        if column.kind == "boolean":
            values = [None if value is None else bool(value) for value in values]
    return column.read(values)


def _range(datatype: str) -> tuple[int, int]:
    bits = WHOLE[datatype]
    return (
        (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def _listed(datatypes: Sequence[str]) -> str:
    return (
        datatypes[0] if len(datatypes) == 1 else f"{', '.join(datatypes[:-1])} or {datatypes[-1]}"
    )


def write_inference(
    model: str, asked: Inference, answers: Sequence[Answer], outputs: Outputs
) -> dict[str, Any]:
    classes = answers[0].classes
    parameters: dict[str, Any] = {"plan_version": answers[0].version}
    if classes is not None:
        parameters["classes"] = json.dumps(
            class_names(classes)
        )  # a parameter is text, a number or a truth value
    found: dict[str, Any] = {"model_name": model, "model_version": str(answers[0].version)}
    if asked.id is not None:
        found["id"] = asked.id
    found["parameters"] = parameters
    found["outputs"] = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": [len(answers), *tensor.shape],
            "data": outputs.values(tensor.name, answers),
        }
        for tensor in outputs.tensors(classes)
        if asked.outputs is None or tensor.name in asked.outputs
    ]
    return found


def metadata(
    model: str, versions: list[str], schema: Schema, outputs: Sequence[Tensor]
) -> dict[str, Any]:
    return {
        "name": model,
        "versions": versions,
        "platform": "crumb",
        "inputs": [
            {"name": column.name, "datatype": USUAL[column.kind], "shape": [-1]}
            for column in schema.columns
        ],
        "outputs": [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": [-1, *tensor.shape]}
            for tensor in outputs
        ],
    }


def example(schema: Schema) -> dict[str, Any]:
    return {
        "id": "1",
        "inputs": [
            {
                "name": column.name,
                "datatype": USUAL[column.kind],
                "shape": [1],
                "data": [column.example],
            }
            for column in schema.columns
        ],
    }


TENSOR = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "datatype": {"type": "string", "enum": list(DATATYPES)},
        "parameters": {"type": "object"},
        "data": {"type": "array"},
    },
    "required": ["name", "shape", "datatype", "data"],
}


def request_schema() -> dict[str, Any]:
    """The protocol's form; which names, shapes and types fit the table, the answer 422 says."""
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "parameters": {"type": "object"},
            "inputs": {"type": "array", "items": TENSOR, "minItems": 1},
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        },
        "required": ["inputs"],
    }


def response_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "parameters": {"type": "object"},
            "outputs": {"type": "array", "items": TENSOR},
        },
        "required": ["model_name", "model_version", "parameters", "outputs"],
    }
