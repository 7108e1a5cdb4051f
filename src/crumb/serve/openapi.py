"""The description of the service (OpenAPI), with examples that work as pasted."""

from __future__ import annotations

import html
import json
import shlex
from typing import Any

from crumb import __version__
from crumb.serve import infer_v2, predict
from crumb.serve.service import Service

ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
SAID = {
    400: "No JSON, or not of the right form.",
    401: "No valid token.",
    404: "No such model.",
    408: "The body did not arrive in time.",
    413: "Too many rows or bytes.",
    415: "Not application/json.",
    422: "Names, types, shapes or missing values that do not fit the training table.",
    503: "Full, shutting down, or the model failed: try again after Retry-After seconds.",
    504: "No answer within the deadline.",
}


def describe(service: Service, learn: bool) -> dict[str, Any]:
    classes = service.stream.estimator.__dict__.get("classes_")
    record = service.schema.example()
    predictions = service.outputs.json_schema(classes)
    paths: dict[str, Any] = {
        "/v2": _get("What this server is", ("name", "version", "extensions")),
        "/v2/health/live": _get("Whether the process lives", ("live",)),
        "/v2/health/ready": _get("Whether requests are taken", ("ready",), 503),
        "/v2/models/{name}": _get(
            "Inputs and outputs of the model", ("name", "inputs", "outputs"), 404
        ),
        "/v2/models/{name}/ready": _get("Whether the model answers", ("name", "ready"), 404, 503),
        "/v2/models/{name}/infer": _post(
            "Predict (Open Inference Protocol v2)",
            infer_v2.request_schema(),
            infer_v2.response_schema(),
            infer_v2.example(service.schema),
            404,
        ),
        "/predict": _post(
            "Predict (plain JSON)",
            predict.request_schema(service.schema, service.max_rows),
            predict.response_schema(predictions),
            {"records": [record]},
        ),
        "/live": _get("What the page shows", ("now", "seconds", "drift", "map")),
        "/metrics": _text("For Prometheus"),
    }
    if learn:
        label = service.stream.estimator.pool_.y[:0] if classes is None else classes[:1]
        paths["/learn"] = _post(
            "Labelled rows for the next refresh",
            learn_schema(service, classes),
            {
                "type": "object",
                "properties": {"waiting": {"type": "integer"}},
                "required": ["waiting"],
            },
            {"records": [record], "labels": label.tolist() or [0.0]},
        )
    for path, operations in paths.items():
        if "{name}" in path:
            operations["parameters"] = [
                {
                    "name": "name",
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "enum": [service.name]},
                    "example": service.name,
                }
            ]
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"CRUMB: {service.name}", "version": __version__},
        "paths": paths,
    }
    if service.limits.token is not None:
        described["components"] = {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}
        }
        described["security"] = [{"token": []}]
    return described


def learn_schema(service: Service, classes: Any) -> dict[str, Any]:
    schema = predict.request_schema(service.schema, service.max_rows)
    del schema["properties"]["deadline"]
    kinds = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
    label = "number" if classes is None else kinds.get(classes.dtype.kind, "string")
    schema["properties"]["labels"] = {"type": "array", "items": {"type": label}, "minItems": 1}
    schema["required"] = ["records", "labels"]
    return schema


def _get(summary: str, keys: tuple[str, ...], *errors: int) -> dict[str, Any]:
    schema = {"type": "object", "required": list(keys)}
    return {"get": {"summary": summary, "responses": _responses(schema, 401, *errors)}}


def _text(summary: str) -> dict[str, Any]:
    responses = _responses({}, 401)
    responses["200"] = {
        "description": "Answer.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return {"get": {"summary": summary, "responses": responses}}


def _post(summary: str, asks: Any, answers: Any, example: Any, *errors: int) -> dict[str, Any]:
    content = {"application/json": {"schema": asks, "example": example}}
    every = {400, 401, 408, 413, 415, 422, 503, 504, *errors}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": content},
            "responses": _responses(answers, *sorted(every)),
        }
    }


def _responses(schema: dict[str, Any], *errors: int) -> dict[str, Any]:
    found = {"200": {"description": "Answer.", "content": {"application/json": {"schema": schema}}}}
    for status in errors:
        found[str(status)] = {
            "description": SAID[status],
            "content": {"application/json": {"schema": ERROR}},
        }
    return found


def curl(base: str, path: str, method: str, operation: dict[str, Any], service: Service) -> str:
    """A command that works as pasted into a shell."""
    words = ["curl", "-s", base + path.replace("{name}", service.name)]
    if service.limits.token is not None:
        words += ["-H", "Authorization: Bearer $CRUMB_TOKEN"]
    if method == "post":
        example = operation["requestBody"]["content"]["application/json"]["example"]
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(example)]
    quoted = [f'"{word}"' if "$CRUMB_TOKEN" in word else shlex.quote(word) for word in words]
    return " ".join(quoted)


def docs_page(service: Service, learn: bool, base: str, style: str) -> str:
    """The description as a page: every operation with a command to paste, and nothing fetched from elsewhere."""
    sections = []
    for path, operations in describe(service, learn)["paths"].items():
        for method in ("get", "post"):
            if method not in operations:
                continue
            operation = operations[method]
            said = ", ".join(sorted(operation["responses"]))
            command = curl(base, path, method, operation, service)
            sections.append(
                f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>"
                f"<p>{html.escape(operation['summary'])}. Answers with {said}.</p>"
                f'<pre tabindex="0">{html.escape(command)}</pre></section>'
            )
    title = f"{html.escape(service.name)}: how to ask"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{title}</title><style>{style}</style></head><body><main class="docs"><h1>{title}</h1>'
        '<p><a href="/">The page</a> · <a href="/openapi.json">OpenAPI</a></p>'
        f"{''.join(sections)}</main></body></html>"
    )
