"""Plain JSON: ``{"records": [{column: value, …}, …]}`` in, labels and probabilities by class name out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crumb.online import Answer
from crumb.serve.outputs import Outputs
from crumb.serve.refusal import invalid, malformed, shown, too_many_rows
from crumb.serve.schema import Columns, Schema


@dataclass(frozen=True)
class Asked:
    """Rows of a request, and the seconds in which it wants its answer (None: as many as the service gives)."""

    columns: Columns
    rows: int
    deadline: float | None = None


def read_records(
    content: dict[str, Any], schema: Schema, max_rows: int, others: Sequence[str] = ("deadline",)
) -> Asked:
    check_keys(content, ("records", *others), "The body")
    records = content.get("records")
    if not isinstance(records, list):
        raise malformed('The body needs "records", a list of objects.')
    if not records:
        raise invalid("There are no records.")
    if len(records) > max_rows:
        raise too_many_rows(len(records), max_rows)
    return Asked(schema.read(records), len(records), read_deadline(content.get("deadline")))


def check_keys(content: dict[str, Any], known: Sequence[str], what: str) -> None:
    unknown = next((key for key in content if key not in known), None)
    if unknown is not None:
        raise invalid(f"{what} has {shown(unknown)}; it may have {', '.join(known)}.")


def read_deadline(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not value > 0:
        raise invalid("The deadline must be a positive number of seconds.")
    return float(min(value, 1e9))


def write_predictions(model: str, answers: Sequence[Answer], outputs: Outputs) -> dict[str, Any]:
    return {
        "model": model,
        "plan_version": answers[0].version,
        "predictions": [outputs.record(answer) for answer in answers],
    }


def request_schema(schema: Schema, max_rows: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "records": {
                "type": "array",
                "items": schema.json_schema(),
                "minItems": 1,
                "maxItems": max_rows,
            },
            "deadline": {
                "type": ["number", "null"],
                "exclusiveMinimum": 0,
                "description": "Seconds in which the answer is wanted; the service may have a shorter one.",
            },
        },
        "required": ["records"],
        "additionalProperties": False,
    }


def response_schema(predictions: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "plan_version": {"type": "integer"},
            "predictions": {"type": "array", "items": predictions},
        },
        "required": ["model", "plan_version", "predictions"],
    }
