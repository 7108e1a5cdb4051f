"""What a client may do: how much, how long, and whether at all."""

from __future__ import annotations

import hmac
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256

import anyio
from starlette.requests import ClientDisconnect, Request

from crumb.errors import InvalidInput
from crumb.serve.refusal import Refusal, leaving, malformed

HELD_BODIES = 32  # bodies of the largest size that may be in memory together
PATIENCE = 1.0  # seconds in which the rest of a refused body may come
GONE = 499  # the client closed the connection before the answer: nobody sees this status


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
            raise InvalidInput(
                f"The deadline must be a positive number of seconds, got {self.deadline}."
            )
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


def gone() -> Refusal:
    return Refusal(GONE, "disconnected", "The client is gone.")


class BodyReader:
    """Reads bodies and counts meanwhile: all of them together never hold more than they may."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._held, self._most_held = 0, HELD_BODIES * limits.max_bytes
        self._reading: set[anyio.CancelScope] = set()

    async def read(self, request: Request) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            said = "The body must be JSON, with Content-Type: application/json."
            raise Refusal(415, "media_type", said)
        if "inference-header-content-length" in request.headers:
            raise malformed("Binary tensors are not supported: send the data as JSON.")
        ends = anyio.current_time() + self._limits.deadline
        with anyio.CancelScope(deadline=ends) as scope:
            self._reading.add(scope)
            try:
                return await self._collect(request)
            except ClientDisconnect:
                raise gone() from None
            finally:
                self._reading.discard(scope)
        if anyio.current_time() < ends:  # cancelled by ``stop``
            raise leaving()
        said = f"The body did not arrive within {self._limits.deadline:g} seconds."
        raise Refusal(408, "slow_body", said)

    def stop(self) -> None:
        """Requests whose bodies are on their way get no answer but 503."""
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
            await _let_end(chunks, 4 * most)
        raise Refusal(413, "too_many_bytes", f"The body is larger than {most:,} bytes.")


async def _let_end(chunks: AsyncIterator[bytes], most: int) -> None:
    """A client whose connection is closed while it sends may never read why."""
    size = 0
    with anyio.move_on_after(PATIENCE):
        async for chunk in chunks:
            size += len(chunk)
            if size > most:
                return
