"""Bodies of requests: read within limits, and parsed as JSON in the strict sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from crumb.serve.refusal import malformed


class JsonRequest(Request):
    """A request whose body the service reads."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self.app.state.service.read(self)
        return self._body

    async def json(self) -> Any:
        return parse(await self.body())


class JsonRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handler


def parse(body: bytes) -> Any:
    """NaN and Infinity, which Python would read, are no JSON."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise malformed(f"The body is not JSON ({place}).") from None
    except ValueError:  # no UTF-8, or a whole number of thousands of digits
        raise malformed("The body is not JSON.") from None


def _no_constant(name: str) -> NoReturn:
    raise malformed(f"{name} is not JSON: write null for a missing value.")
