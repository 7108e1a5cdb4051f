"""What a client may do: how much, how long, and whether at all. The rest is a ``Refusal``."""

import asyncio
import hmac
import ipaddress
import math
import zlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import anyio
from fastapi import HTTPException
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from crumb.errors import InvalidInput, StreamClosed
from crumb.online.child import Child, ChildDied
from crumb.serve.parse import SMALL, NotJson, TooManyValues, parse

HELD_BODIES = 32  # bodies of the largest size that may be in memory together
ENCODINGS = ("gzip", "deflate")
HEADER = "inference-header-content-length"  # of bodies with binary tensors
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
    hosts: frozenset[str] | None = None  # names by which it may be called; None: any

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.deadline < math.inf:
            said = f"The deadline must be a positive number of seconds, got {self.deadline}."
            raise InvalidInput(said)
        if self.token is not None and not self.token.strip():
            raise InvalidInput("The token is empty: give one, or leave the option out.")

    def check_site(self, method: str, host: str, origin: str | None) -> None:
        """Refuse what a page of another site makes a browser send.

        A name that a stranger owns may lead here, so without a token names must be known.
        """
        try:
            name, site = urlsplit(f"//{host}").hostname or "", urlsplit(origin or "").netloc
        except ValueError:  # neither is what it should be
            raise malformed("The headers Host and Origin must be names or addresses.") from None
        if self.token is None and self.hosts is not None and not self._knows(name):
            said = f"This service does not answer to the name {shown(name)}: see --allow-host."
            raise Refusal(403, "host", said)
        if origin is not None and method != "GET" and site != host:
            raise Refusal(403, "origin", "Pages of other sites may not send requests here.")

    def _knows(self, name: str) -> bool:
        assert self.hosts is not None
        if name in self.hosts or "*" in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def admits(self, authorization: bytes) -> bool:
        """Whether a header carries the token. Takes the same time whatever was sent."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(b" ")
        wanted = sha256(self.token.encode()).digest()
        equal = hmac.compare_digest(sha256(given.strip()).digest(), wanted)
        return equal and scheme.lower() == b"bearer"


class BodyReader:
    """Reads bodies and counts meanwhile: all of them together never hold more than they may.

    ``most``: values of the largest request.
    """

    def __init__(self, limits: Limits, most: int):
        self._limits, self._most, self._stopped = limits, most, False
        self._held, self._most_held = 0, HELD_BODIES * limits.max_bytes
        self._reading: set[anyio.CancelScope] = set()
        self._child, self._thread = Child(), ThreadPoolExecutor(1, "crumb-bodies")

    async def read(self, request: Request) -> bytes:
        with anyio.move_on_after(self._limits.deadline) as scope:
            self._reading.add(scope)
            try:
                return await self._decoded(request, await self._collect(request))
            except ClientDisconnect:
                raise gone() from None
            finally:
                self._reading.discard(scope)
        if self._stopped:
            raise leaving()
        said = f"The body did not arrive within {self._limits.deadline:g} seconds."
        raise Refusal(408, "slow_body", said)

    def check_type(self, request: Request) -> None:
        """Refuse what cannot be read before it is."""
        if self._stopped:
            raise leaving()
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        # A browser sends no such header across sites without asking; tritonclient names no type.
        binary = HEADER in request.headers or (not kind and request.url.path.endswith("/infer"))
        if kind != "application/json" and not binary:
            said = "The body must be JSON, with Content-Type: application/json."
            raise Refusal(415, "media_type", said)
        if request.headers.get("content-encoding", "gzip") not in ENCODINGS:
            raise Refusal(415, "media_type", "A body may be compressed by gzip or deflate.")

    async def _decoded(self, request: Request, body: bytes) -> bytes:
        if "content-encoding" not in request.headers:
            return body
        most = self._limits.max_bytes
        content = await asyncio.to_thread(_unpacked, body, most + 1)
        if len(content) > most:
            raise _too_large(most)
        return content

    async def parse(self, request: Request, body: bytes) -> Any:
        """What the body says. Large ones are parsed elsewhere: here everybody would wait."""
        header = request.headers.get(HEADER)
        if header is not None and not (header.isdecimal() and int(header) <= len(body)):
            raise malformed("The length of the JSON before the tensors is not that of the body.")
        words = body, None if header is None else int(header), self._most
        try:
            if len(body) <= SMALL:
                return parse(*words)
            self._hold(len(body))
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, self._child.call, parse, *words)
            finally:
                self._held -= len(body)
        except NotJson as error:
            raise malformed(str(error)) from None
        except TooManyValues:
            said = f"The request has more values than {self._limits.max_rows:,} rows."
            raise Refusal(413, "too_many_rows", said) from None
        except StreamClosed:
            raise leaving() from None
        except ChildDied:
            raise _too_busy() from None

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._most_held:
            self._held -= size
            raise _too_busy()

    def stop(self) -> None:
        """Requests whose bodies are on their way, or come later, get no answer but 503."""
        self._stopped = True
        for scope in list(self._reading):
            scope.cancel()

    def close(self) -> None:
        self._child.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _collect(self, request: Request) -> bytes:
        most, pieces, size = self._limits.max_bytes, [], 0
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        try:
            async for chunk in request.stream():
                self._hold(len(chunk))
                pieces.append(chunk)
                size += len(chunk)
                if size > most:
                    raise _too_large(most)
            return b"".join(pieces)
        finally:
            self._held -= size


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_many_bytes", f"The body is larger than {most:,} bytes.")


def _too_busy() -> Refusal:
    said = "Too many large requests at once: try again later."
    return Refusal(503, "full", said, retry_after=1)


def _unpacked(body: bytes, most: int) -> bytes:
    """At most this many bytes of what gzip or zlib packed."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either of them
    try:
        content = unpacker.decompress(body, most)
    except zlib.error as error:
        raise malformed(f"The body is not what its Content-Encoding says: {error}.") from None
    if not unpacker.eof and len(content) < most:
        raise malformed("The compressed body is incomplete.")
    return content


class JsonRoute(APIRoute):
    """A route whose bodies are read by the application's ``BodyReader``, as strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if request.method == "POST":
                request.app.state.bodies.check_type(request)
            return await handle(JsonRequest(_as_json(request.scope), request.receive))

        return handler


def _as_json(scope: Any) -> Any:
    """FastAPI looks at the type: what comes with binary tensors is JSON to it as well."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
    return {**scope, "headers": [*headers, (b"content-type", b"application/json")]}


class JsonRequest(Request):
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self.app.state.bodies.read(self)
        return self._body

    async def json(self) -> Any:
        return await self.app.state.bodies.parse(self, await self.body())
