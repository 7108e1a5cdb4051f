"""What a client may do: how much, how long, and whether at all. The rest is a ``Refusal``."""

import hmac
import json
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn

import anyio
from fastapi import HTTPException
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from crumb.errors import InvalidInput

HELD_BODIES = 32  # bodies of the largest size that may be in memory together
PATIENCE = 1.0  # seconds in which the rest of a refused body may come
GONE = 499  # the client closed the connection before the answer: nobody sees this status


class Refusal(HTTPException):
    """``reason`` is the word for logs and metrics: the sentence may quote the request."""

    def __init__(self, status: int, reason: str, message: str, retry_after: int | None = None):
        headers = None if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, message, headers)
        self.reason = reason


def malformed(message: str) -> Refusal:
    return Refusal(400, "malformed", message)


def invalid(message: str) -> Refusal:
    return Refusal(422, "invalid", message)


def too_many_rows(rows: int, most: int) -> Refusal:
    message = f"The request has {rows:,} rows, at most {most:,} are taken at once."
    return Refusal(413, "too_many_rows", message)


def leaving() -> Refusal:
    message = "The service is shutting down and takes no more requests."
    return Refusal(503, "draining", message, retry_after=1)


def gone() -> Refusal:
    return Refusal(GONE, "disconnected", "The client is gone.")


def shown(name: object, limit: int = 60) -> str:
    """A name from a request as an error quotes it: short, on one line."""
    text = ascii(name)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True)
class Limits:
    max_rows: int = 1_000  # of a request
    max_bytes: int = 16 * 2**20
    deadline: float = 30.0  # seconds
    token: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.deadline < math.inf:
            said = f"The deadline must be a positive number of seconds, got {self.deadline}."
            raise InvalidInput(said)
        if self.token is not None and not self.token.strip():
            raise InvalidInput("The token is empty: give one, or leave the option out.")

    def admits(self, authorization: bytes) -> bool:
        """Whether a header carries the token. Takes the same time whatever was sent."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(b" ")
        wanted = sha256(self.token.encode()).digest()
        equal = hmac.compare_digest(sha256(given.strip()).digest(), wanted)
        return equal and scheme.lower() == b"bearer"


class BodyReader:
    """Reads bodies and counts meanwhile: all of them together never hold more than they may."""

    def __init__(self, limits: Limits):
        self._limits, self._stopped = limits, False
        self._held, self._most_held = 0, HELD_BODIES * limits.max_bytes
        self._reading: set[anyio.CancelScope] = set()

    async def read(self, request: Request) -> bytes:
        if self._stopped:
            raise leaving()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            said = "The body must be JSON, with Content-Type: application/json."
            raise Refusal(415, "media_type", said)
        if "inference-header-content-length" in request.headers:
            raise malformed("Binary tensors are not supported: send the data as JSON.")
        with anyio.move_on_after(self._limits.deadline) as scope:
            self._reading.add(scope)
            try:
                return await self._collect(request)
            except ClientDisconnect:
                raise gone() from None
            finally:
                self._reading.discard(scope)
        if self._stopped:
            raise leaving()
        said = f"The body did not arrive within {self._limits.deadline:g} seconds."
        raise Refusal(408, "slow_body", said)

    def stop(self) -> None:
        """Requests whose bodies are on their way, or come later, get no answer but 503."""
        self._stopped = True
        for scope in list(self._reading):
            scope.cancel()

    async def _collect(self, request: Request) -> bytes:
        most, pieces, size = self._limits.max_bytes, [], 0
        chunks = request.stream()
        declared = request.headers.get("content-length", "")
        try:
            if not (declared.isdecimal() and int(declared) > most):
                async for chunk in chunks:
                    pieces.append(chunk)
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > most:
                        break
                    if self._held > self._most_held:
                        said = "Too many large requests at once: try again later."
                        raise Refusal(503, "full", said, retry_after=1)
                else:
                    return b"".join(pieces)
        finally:
            self._held -= size
        pieces.clear()
        if request.headers.get("expect", "").lower() != "100-continue":  # else nothing was sent
            # A client whose connection is closed while it sends may never read why.
            with anyio.move_on_after(PATIENCE):
                async for chunk in chunks:
                    size += len(chunk)
                    if size > 5 * most:
                        break
        raise Refusal(413, "too_many_bytes", f"The body is larger than {most:,} bytes.")


class JsonRoute(APIRoute):
    """A route whose bodies are read by the application's ``BodyReader``, as strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handler


class JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self.app.state.bodies.read(self)
        return self._body

    async def json(self) -> Any:
        try:
            return json.loads(await self.body(), parse_constant=_no_constant)
        except (RecursionError, ValueError) as error:
            raise malformed(f"The body is not JSON: {error}.") from None


def _no_constant(name: str) -> NoReturn:
    """NaN and Infinity, which Python would read, are no JSON."""
    raise malformed(f"{name} is not JSON: write null for a missing value.")
