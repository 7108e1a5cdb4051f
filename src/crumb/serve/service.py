"""One stream behind HTTP: takes the rows of requests, waits for their answers, and knows when to stop."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from crumb.errors import InvalidInput, StreamClosed, StreamFull
from crumb.online import Answer, CrumbOnline
from crumb.serve.intake import Intake
from crumb.serve.limits import BodyReader, Disconnected, Limits, leaving
from crumb.serve.logs import event, where
from crumb.serve.outputs import Outputs
from crumb.serve.predict import Asked
from crumb.serve.refusal import Refusal, invalid
from crumb.serve.schema import Schema

MOST_LEARNED = 100_000  # labelled rows that may wait for the next refresh
NAME = "crumb"


class Service:
    """``keep`` writes what was learned to disk and says whether it could; None: there is no place for it."""

    def __init__(
        self,
        stream: CrumbOnline,
        schema: Schema,
        limits: Limits | None = None,
        name: str = NAME,
        keep: Callable[[], bool] | None = None,
    ):
        self.stream, self.schema, self.name, self._keep = stream, schema, name, keep
        self.limits = limits or Limits()
        self.outputs = Outputs.of(stream)
        max_pending = stream._buffers.max_pending
        self.max_rows = min(self.limits.max_rows, max_pending)  # more could never be taken
        self.intake = Intake(stream, schema, max_pending)
        self.bodies = BodyReader(self.limits)
        self.active = 0  # requests that were accepted and have no answer yet
        self.started = time.time()
        self.draining = False
        self._learned = (0, 0)  # version of the pool, rows that came since

    @property
    def ready(self) -> bool:
        return not self.draining

    async def read(self, request: Request) -> bytes:
        """The body of a request, for as long as the service takes any."""
        self._check_open()
        return await self.bodies.read(request.headers, request.receive)

    async def ask(self, request: Request, asked: Asked, came: float) -> list[Answer]:
        """Answers for the rows of a request, all with one version of the plan."""
        self._check_open()
        seconds = min(self.limits.deadline, asked.deadline or math.inf)
        self.active += 1
        try:
            ticket = self.intake.put(asked.columns, asked.rows)
            gone: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
            try:
                left = max(0.0, seconds - (time.monotonic() - came))
                await asyncio.wait(
                    [ticket.done, gone], timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if ticket.done.done():
                    return ticket.done.result()
                if gone.done():
                    raise Disconnected
                raise Refusal(504, "deadline", f"There was no answer within {seconds:g} seconds.")
            finally:
                gone.cancel()
                ticket.cancel()
        except (Refusal, Disconnected):
            raise
        except Exception as error:  # whatever a back-end raises
            raise self._refusal(error) from error
        finally:
            self.active -= 1

    def _refusal(self, error: BaseException) -> Refusal:
        """What a client hears of an error in the stream."""
        if isinstance(error, StreamFull):
            return Refusal(
                503, "full", str(error), retry_after=max(1, math.ceil(self.stream._buffers.timeout))
            )
        if isinstance(error, StreamClosed):
            return leaving()
        if isinstance(error, InvalidInput):
            return invalid(str(error))
        event("rows were not answered", logging.ERROR, **where(error))  # out of memory, most likely
        message = (
            f"The model could not answer these rows ({type(error).__name__}): try again later."
        )
        return Refusal(503, "pass_failed", message, retry_after=1)

    async def learn(self, asked: Asked, labels: list[Any]) -> int:
        """Labelled rows for the next refresh; how many wait for it now."""
        self._check_open()
        pool_version = self.stream.stats().pool_version
        waiting = self._learned[1] if self._learned[0] == pool_version else 0
        if waiting + asked.rows > MOST_LEARNED:
            message = f"{waiting:,} labelled rows wait for a refresh, which takes at most {MOST_LEARNED:,}."
            raise Refusal(503, "full", message, retry_after=60)
        self.active += 1
        try:
            await asyncio.to_thread(self._learn, asked, labels)
        except (InvalidInput, ValueError, TypeError) as error:
            raise invalid(str(error)) from error
        finally:
            self.active -= 1
        before = self._learned[1] if self._learned[0] == pool_version else 0
        self._learned = (pool_version, before + asked.rows)
        return before + asked.rows

    def _learn(self, asked: Asked, labels: list[Any]) -> None:
        names = self.stream.estimator.pool_.encoder.columns_
        self.stream.learn(self.schema.table([asked.columns], names), labels)
        if self._keep is not None and not self._keep():
            raise Refusal(
                503,
                "disk",
                "The rows could not be written to disk: try again later.",
                retry_after=60,
            )

    def _check_open(self) -> None:
        if self.draining:
            raise leaving()

    async def drain(self) -> None:
        """No new work; return when everything that was accepted has its answer."""
        self.draining = True
        self.bodies.stop()
        while self.active:
            self.stream.flush(
                wait_for_answers=False
            )  # again and again: rows may be on their way from the intake
            await asyncio.sleep(0.02)


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
