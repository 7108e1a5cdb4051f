"""What a client may do: how much, how long, and whether at all."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers

from crumb.errors import InvalidInput
from crumb.serve.refusal import Refusal, malformed

Receive = Callable[[], Awaitable[Any]]
HELD_BODIES = 32  # bodies of the largest size that may be in memory together
PATIENCE = (
    2.0  # seconds in which a body that is too large may end, so that its sender reads the refusal
)


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
        equal = hmac.compare_digest(
            sha256(given.strip()).digest(), sha256(self.token.encode()).digest()
        )
        return equal and scheme.lower() == b"bearer"


class Disconnected(Exception):
    """The client is gone: there is nobody to answer."""


class BodyReader:
    """Reads bodies and counts while it reads: no client makes the service hold more than it may."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._held = 0
        self._most = HELD_BODIES * limits.max_bytes
        self._reading: set[asyncio.Task[bytes]] = set()

    async def read(self, headers: Headers, receive: Receive) -> bytes:
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(
                415, "media_type", "The body must be JSON, with Content-Type: application/json."
            )
        if "inference-header-content-length" in headers:
            raise malformed("Binary tensors are not supported: send the data as JSON.")
        task = asyncio.ensure_future(self._collect(headers, receive))
        self._reading.add(task)
        try:
            await asyncio.wait({task}, timeout=self._limits.deadline)
            if task.done() and not task.cancelled():
                return task.result()
            if task.done():
                raise leaving()
            raise Refusal(
                408,
                "slow_body",
                f"The body did not arrive within {self._limits.deadline:g} seconds.",
            )
        finally:
            task.cancel()
            self._reading.discard(task)

    def stop(self) -> None:
        """Bodies that are on their way get no answer but 503."""
        for task in list(self._reading):
            task.cancel()

    async def _collect(self, headers: Headers, receive: Receive) -> bytes:
        most = self._limits.max_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            if (
                headers.get("expect", "").lower() != "100-continue"
            ):  # else the body has not been sent
                await _discard(receive, 4 * most)
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                self._held += len(pieces[-1])
                if size > most:
                    pieces.clear()
                    await _discard(receive, 4 * most)
                    raise self._too_large()
                if self._held > self._most:
                    raise Refusal(
                        503,
                        "full",
                        "Too many large requests at once: try again later.",
                        retry_after=1,
                    )
                if not message.get("more_body"):
                    return b"".join(pieces)
        finally:
            self._held -= size

    def _too_large(self) -> Refusal:
        return Refusal(
            413, "too_many_bytes", f"The body is larger than {self._limits.max_bytes:,} bytes."
        )


async def _discard(receive: Receive, most: int) -> None:
    """Let a client finish: one whose connection is closed while it sends may never read why."""

    async def rest() -> None:
        size = 0
        while size <= most:
            message = await receive()
            size += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return

    await asyncio.wait({task := asyncio.ensure_future(rest())}, timeout=PATIENCE)
    task.cancel()


def leaving() -> Refusal:
    return Refusal(
        503, "draining", "The service is shutting down and takes no more requests.", retry_after=1
    )
