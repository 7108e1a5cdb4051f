"""One stream behind HTTP: takes the rows of requests, waits for answers, knows when to stop."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request

from crumb.errors import InvalidInput, StreamClosed, StreamFull
from crumb.online import Answer, CrumbOnline
from crumb.serve.bodies import Outputs
from crumb.serve.intake import Intake
from crumb.serve.limits import BodyReader, Limits, Refusal, gone, invalid, leaving
from crumb.serve.schema import Record, Schema
from crumb.serve.watch import event, where

MOST_LEARNED = 100_000  # labelled rows that may wait for the next refresh


class Service:
    """``keep`` writes what was learned to disk and says whether it could; None: it need not."""

    def __init__(
        self,
        stream: CrumbOnline,
        schema: Schema,
        limits: Limits | None = None,
        name: str = "crumb",
        keep: Callable[[], bool] | None = None,
    ):
        self.stream, self.schema, self.name, self._keep = stream, schema, name, keep
        self.limits = limits or Limits()
        self.outputs = Outputs(stream.output.kind, tuple(stream.output.quantiles))
        # More rows than may wait could never be taken.
        self.max_rows = min(self.limits.max_rows, stream.options.max_pending)
        self.intake = Intake(stream, schema)
        self.bodies = BodyReader(self.limits)
        self.active = 0  # requests that were accepted and have no answer yet
        self.started = time.time()
        self.ready = True

    async def ask(
        self, request: Request, records: Sequence[Record], deadline: float | None
    ) -> list[Answer]:
        """Answers for the rows of a request, all with one version of the plan."""
        self._accept(request, records)
        seconds = min(self.limits.deadline, deadline or math.inf)
        left = max(0.0, request.state.came + seconds - time.monotonic())
        answered = asyncio.ensure_future(self.intake.answers(records))
        closed = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                {answered, closed}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if answered.done():
                request.state.version = answered.result()[0].version
                return answered.result()
        except Exception as error:  # whatever a back-end raises
            raise self._refusal(error) from error
        finally:
            self.active -= 1
            answered.cancel()
            closed.cancel()
        said = f"There was no answer within {seconds:g} seconds."
        raise gone() if closed.done() and not closed.cancelled() else Refusal(504, "deadline", said)

    def _accept(self, request: Request, records: Sequence[Record]) -> None:
        if not self.ready:
            raise leaving()
        request.state.rows = len(records)
        self.active += 1

    def _refusal(self, error: BaseException) -> Refusal:
        """What a client is told about an error in the stream."""
        if isinstance(error, StreamFull):
            later = max(1, math.ceil(self.stream.options.timeout))
            return Refusal(503, "full", str(error), retry_after=later)
        if isinstance(error, StreamClosed):
            return leaving()
        if isinstance(error, InvalidInput):
            return invalid(str(error))
        event("rows were not answered", logging.ERROR, **where(error))  # out of memory, most likely
        kind = type(error).__name__
        said = f"The model could not answer these rows ({kind}): try again later."
        return Refusal(503, "pass_failed", said, retry_after=1)

    async def learn(self, request: Request, records: list[Record], labels: list[Any]) -> int:
        """Labelled rows for the next refresh; how many wait for it now."""
        self._accept(request, records)
        try:
            waiting = self.stream.stats().learned
            if waiting + len(records) > MOST_LEARNED:
                most = f"at most {MOST_LEARNED:,} may"
                said = f"{waiting:,} labelled rows wait for a refresh, {most}."
                raise Refusal(503, "full", said, retry_after=60)
            await asyncio.to_thread(self._learn, records, labels)
        except (InvalidInput, ValueError, TypeError) as error:
            raise invalid(str(error)) from error
        finally:
            self.active -= 1
        return self.stream.stats().learned

    def _learn(self, records: list[Record], labels: list[Any]) -> None:
        names = self.stream.estimator.pool_.columns
        self.stream.learn(self.schema.table(records, names), labels)
        if self._keep is not None and not self._keep():
            said = "The rows could not be written to disk: try again later."
            raise Refusal(503, "disk", said, retry_after=60)

    async def drain(self) -> None:
        """No new work; return when everything that was accepted has its answer."""
        self.ready = False
        self.bodies.stop()
        while self.active:
            self.stream.flush(wait_for_answers=False)  # again: rows may come from the intake
            await asyncio.sleep(0.02)


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
