"""From requests to the stream: single rows go straight in, tables are encoded together.

A single row is read in microseconds. Encoding a table takes milliseconds whatever its size, which
would hold up the event loop: one thread does it, and what comes meanwhile goes into its next turn.
The rest runs in the event loop.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from crumb.online import Answer, CrumbOnline
from crumb.serve.schema import Record, Schema

Futures = list[Future[Answer]]


class Waiting(NamedTuple):
    """A table that waits to be encoded."""

    records: Sequence[Record]
    submitted: asyncio.Future[Futures]


class Intake:
    def __init__(self, stream: CrumbOnline, schema: Schema):
        self._stream, self._schema = stream, schema
        self._waiting: list[Waiting] = []
        self.rows = 0  # rows that wait here
        self._thread = ThreadPoolExecutor(1, "crumb-intake")
        self._pump: asyncio.Task[None] | None = None

    async def answers(self, records: Sequence[Record]) -> list[Answer]:
        """Answers to checked records. A task that is cancelled frees its places in the stream."""
        if len(records) == 1 and self._schema.plain:
            futures = [self._stream.submit(self._schema.row(records[0]))]
        else:
            futures = await self._submit_table(records)
        try:
            return await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            _cancel(futures)

    async def _submit_table(self, records: Sequence[Record]) -> Futures:
        # Before the rows are encoded: a service that is full must be quick to say so.
        self._stream.check_room(self.rows + len(records))
        submitted: asyncio.Future[Futures] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(records, submitted))
        self.rows += len(records)
        if self._pump is None:
            self._pump = asyncio.create_task(self._submit_all())
        try:
            return await submitted
        except asyncio.CancelledError:
            if submitted.done() and not submitted.cancelled():  # both happened at once
                _cancel(submitted.result())
            raise

    async def _submit_all(self) -> None:
        while self._waiting:
            turn, self._waiting, self.rows = self._waiting, [], 0
            await self._submit([one for one in turn if not one.submitted.done()])
        self._pump = None

    async def _submit(self, turn: list[Waiting]) -> None:
        if not turn:
            return
        loop = asyncio.get_running_loop()
        try:
            self._stream.check_room(len(turn[0].records))
            futures = iter(await loop.run_in_executor(self._thread, self._encode, turn))
        except Exception as error:
            if len(turn) > 1:  # one is at fault, or not all find room: the others go on
                for one in turn:
                    await self._submit([one])
            elif not turn[0].submitted.done():
                turn[0].submitted.set_exception(error)
            return
        for one in turn:
            mine = [next(futures) for _ in one.records]
            if one.submitted.done():  # cancelled
                _cancel(mine)
            else:
                one.submitted.set_result(mine)

    def _encode(self, turn: list[Waiting]) -> Futures:
        records = [record for one in turn for record in one.records]
        names = self._stream.estimator.pool_.columns
        return self._stream.submit_many(self._schema.table(records, names))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _cancel(futures: Iterable[Future[Answer]]) -> None:
    for future in futures:
        future.cancel()
