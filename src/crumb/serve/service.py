"""One stream behind HTTP: takes the rows of requests, waits for answers, knows when to stop."""

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice

from starlette.requests import Request

from crumb.errors import InvalidInput, StreamClosed, StreamFull
from crumb.online import Answer, CrumbOnline
from crumb.serve.limits import BodyReader, Limits, Refusal, gone, invalid, leaving
from crumb.serve.schema import Outputs, Record, Schema
from crumb.serve.state import Journal, Lesson, Teacher, Turns
from crumb.serve.watch import event, where

Futures = list[Future[Answer]]
FEW = 100  # rows that are read in some milliseconds


class Intake:
    """From requests to the stream: plain rows go straight in, the others as a table.

    A plain row is read in some tens of microseconds. A table takes milliseconds whatever its size,
    and seconds where the model itself makes the points (``--features embedding``): a thread does
    it, since all clients wait for the event loop.
    """

    def __init__(self, stream: CrumbOnline, schema: Schema):
        self._stream, self._schema = stream, schema
        self._tables: Turns[Sequence[Record], Futures] = Turns(
            "crumb-intake", self._submit, _cancel
        )
        self.close = self._tables.close

    @property
    def rows(self) -> int:
        """Rows that wait here."""
        return sum(map(len, self._tables.waiting))

    async def answers(self, records: Sequence[Record]) -> list[Answer]:
        """Answers to checked records. A task that is cancelled frees its places in the stream."""
        futures = None
        if len(records) <= FEW:
            futures = self._stream.submit_rows([self._schema.row(record) for record in records])
        if futures is None:
            # Before the rows are encoded: a service that is full must be quick to say so.
            self._stream.check_room(self.rows + len(records))
            futures = await self._tables(records)
        try:
            return await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            _cancel(futures)

    def _submit(self, turn: list[Sequence[Record]]) -> list[Futures]:
        self._stream.check_room(len(turn[0]))
        records = [record for table in turn for record in table]
        names = self._stream.estimator.pool_.columns
        futures = iter(self._stream.submit_many(self._schema.table(records, names)))
        return [list(islice(futures, len(table))) for table in turn]


def _cancel(futures: Iterable[Future[Answer]]) -> None:
    for future in futures:
        future.cancel()


class Service:
    """``journal``: where learned rows are before they are acknowledged; None: in memory alone."""

    def __init__(
        self,
        stream: CrumbOnline,
        schema: Schema,
        limits: Limits | None = None,
        name: str = "crumb",
        journal: Journal | None = None,
    ):
        self.stream, self.schema, self.name = stream, schema, name
        self.limits = limits or Limits()
        self.outputs = Outputs(stream.output.kind, tuple(stream.output.quantiles))
        # More rows than may wait could never be taken.
        self.max_rows = min(self.limits.max_rows, stream.options.max_pending)
        self.intake = Intake(stream, schema)
        self.teacher = Teacher(stream, schema, journal)
        values = 2 * self.max_rows * (len(schema.columns) + 1) + 1_000
        self.bodies = BodyReader(self.limits, values)
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

    async def learn(self, request: Request, lesson: Lesson) -> int:
        """Labelled rows for the next refresh; how many wait for it now."""
        if len(lesson.records) != len(lesson.labels):
            raise invalid(f"{len(lesson.records)} records have {len(lesson.labels)} labels.")
        self._accept(request, lesson.records)
        try:
            # Once it may be on disk it is answered, even if the client is gone.
            return await asyncio.shield(self.teacher.learn(lesson))
        except (InvalidInput, ValueError, TypeError) as error:
            raise invalid(str(error)) from error
        finally:
            self.active -= 1

    def close(self) -> None:
        self.bodies.close()
        self.intake.close()
        self.teacher.learn.close()

    async def drain(self) -> None:
        """No new work; return when everything that was accepted has its answer."""
        self.ready = False
        self.bodies.stop()
        self.stream.stop_refreshes()
        while self.active:
            self.stream.flush(wait_for_answers=False)  # again: rows may come from the intake
            await asyncio.sleep(0.02)


async def _disconnected(request: Request) -> None:
    """Returns when the client is gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
