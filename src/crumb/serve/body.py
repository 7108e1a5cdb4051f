"""JSON in and out: bodies that were read whole, and answers."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from starlette.responses import Response

from crumb.serve.refusal import malformed


def parse(body: bytes) -> dict[str, Any]:
    """The object that a body holds. NaN and Infinity, which Python would read, are no JSON."""
    try:
        content = json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None
    except ValueError as error:  # no JSON, no UTF-8, or a whole number of thousands of digits
        where = (
            f" (line {error.lineno}, column {error.colno})"
            if isinstance(error, json.JSONDecodeError)
            else ""
        )
        raise malformed(f"The body is not JSON{where}.") from None
    if not isinstance(content, dict):
        raise malformed("The body must be a JSON object.")
    return content


def _no_constant(name: str) -> NoReturn:
    raise malformed(f"{name} is not JSON: write null for a missing value.")


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """ASCII only: what a client sent may hold half characters, which UTF-8 cannot carry."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("ascii"), status, headers, media_type="application/json")
