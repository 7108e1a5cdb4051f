"""From requests to the stream: single rows go straight in, tables are encoded together.

A single row is read in microseconds. Encoding a table takes milliseconds whatever its size, which
would hold up the event loop: one thread does it, and what comes meanwhile goes into its next turn.
The rest runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from crumb.errors import StreamFull
from crumb.online import Answer, CrumbOnline
from crumb.serve.schema import Record, Schema

MOST_ROWS = 2_048  # rows that are encoded together


class Ticket:
    """The rows of one request, on their way to be submitted and answered."""

    def __init__(self, records: Sequence[Record]):
        self.records, self._left = records, len(records)
        self.done: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._futures: Sequence[Future[Answer]] = ()

    def submitted(self, futures: Sequence[Future[Answer]]) -> None:
        """The stream has the rows."""
        self._futures = futures
        if self.done.done():  # the client is gone
            self.cancel()
            return
        loop = self.done.get_loop()
        for future in futures:
            future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._one_is_done))

    def _one_is_done(self) -> None:
        self._left -= 1
        if self._left or self.done.done():
            return
        errors = (future.exception() for future in self._futures if not future.cancelled())
        error = next((error for error in errors if error is not None), None)
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result([future.result() for future in self._futures])

    def failed(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def cancel(self) -> None:
        """The client waits no longer: free the places in the buffers."""
        self.done.cancel()
        for future in self._futures:
            future.cancel()


class Intake:
    def __init__(self, stream: CrumbOnline, schema: Schema):
        self._stream, self._schema = stream, schema
        self._waiting: deque[Ticket] = deque()
        self.rows = 0  # rows that wait here
        self._thread = ThreadPoolExecutor(1, "crumb-intake")
        self._pump: asyncio.Task[None] | None = None

    def put(self, records: Sequence[Record]) -> Ticket:
        ticket = Ticket(records)
        if len(records) == 1 and self._schema.plain:
            ticket.submitted([self._stream.submit(self._schema.row(records[0]))])
            return ticket
        self._check_room(self.rows + len(records))
        self._waiting.append(ticket)
        self.rows += len(records)
        if self._pump is None:
            self._pump = asyncio.create_task(self._submit_all())
        return ticket

    def _check_room(self, rows: int) -> None:
        """Before the rows are encoded: a service that is full must be quick to say so."""
        pending, most = self._stream.stats().pending, self._stream.options.max_pending
        if pending + rows > most:
            raise StreamFull(
                f"{pending} queries wait for an answer and {rows} more would exceed "
                f"max_pending={most}; try again when some are answered."
            )

    async def _submit_all(self) -> None:
        while self._waiting:
            await self._submit([ticket for ticket in self._take() if not ticket.done.done()])
        self._pump = None

    def _take(self) -> list[Ticket]:
        turn = [self._waiting.popleft()]
        rows = len(turn[0].records)
        while self._waiting and rows + len(self._waiting[0].records) <= MOST_ROWS:
            turn.append(self._waiting.popleft())
            rows += len(turn[-1].records)
        self.rows -= rows
        return turn

    async def _submit(self, turn: list[Ticket]) -> None:
        if not turn:
            return
        loop = asyncio.get_running_loop()
        try:
            self._check_room(len(turn[0].records))
            futures = await loop.run_in_executor(self._thread, self._encode, turn)
        except Exception as error:
            if len(turn) == 1:
                turn[0].failed(error)
                return
            for ticket in turn:  # one is at fault, or not all find room: the others go on
                await self._submit([ticket])
            return
        start = 0
        for ticket in turn:
            ticket.submitted(futures[start : start + len(ticket.records)])
            start += len(ticket.records)

    def _encode(self, turn: list[Ticket]) -> list[Future[Answer]]:
        records = [record for ticket in turn for record in ticket.records]
        names = self._stream.estimator.pool_.columns
        return self._stream.submit_many(self._schema.table(records, names))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
